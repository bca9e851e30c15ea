"""Which layers are cut: marks of the script, a model's own plan, and a table of what can be cut."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

from ..made_inside import MadeInside
from . import regions
from .distributed_module import DistributedModule
from .embedding import DistributedEmbedding
from .linear import CutConv1D, DistributedLinear
from .plans import apply_plan, plan_of, shared_parameters

log = logging.getLogger(__name__)
_MARKS = MadeInside("_sprat_tensor_parallel")


@dataclass(frozen=True)
class Registered:
    """How a class is cut; of keywords the distributed one gets those that it takes.

    init_hook: of the original's constructor arguments makes (args, kwargs) of the distributed one's,
    or None where that layer stays whole. forward_hook: the same of forward's arguments.
    return_hook: of what the distributed layer returns makes what the original would.
    """

    distributed: type[DistributedModule]
    init_hook: Callable | None = None
    forward_hook: Callable | None = None
    return_hook: Callable | None = None


_registered: dict[type, Registered] = {}


def tensor_parallelism(enabled: bool = True, **options: Any) -> contextlib.AbstractContextManager:
    """Modules made inside are cut over tensor parallel ranks where they can be.

    options: given to the constructors of registered layers. Inner contexts may say enabled=False.
    """
    return _MARKS(options if enabled else None)


def set_tensor_parallelism(module: nn.Module, enabled: bool = True, **options: Any) -> None:
    """As tensor_parallelism(), of a module that is made, and of all in it."""
    for one in module.modules():
        _MARKS.mark(one, options if enabled else None)


def tp_register(dist_cls: type, init_hook: Callable | None = None,
                forward_hook: Callable | None = None,
                return_hook: Callable | None = None) -> Callable[[type], type]:
    """Decorates a class of layers: dist_cls takes its place where it is marked."""

    def register(original: type) -> type:
        tp_register_with_module(original, dist_cls, init_hook, forward_hook, return_hook)
        return original

    return register


def tp_register_with_module(module_cls: type, dist_cls: type, init_hook: Callable | None = None,
                            forward_hook: Callable | None = None,
                            return_hook: Callable | None = None) -> None:
    """As tp_register(), of a class that somebody else has written.

    Register it before layers of it are made: their constructor's arguments are kept. ValueError: no
    subclass of smp.nn.DistributedModule.
    """
    if not (isinstance(dist_cls, type) and issubclass(dist_cls, DistributedModule)):
        raise ValueError(
            f"tp_register: {dist_cls!r} takes the place of {module_cls.__name__}: derive it from "
            "smp.nn.DistributedModule"
        )
    _registered[module_cls] = Registered(dist_cls, init_hook, forward_hook, return_hook)
    _keep_arguments_of(module_cls)


def distribute(root: nn.Module) -> nn.Module:
    """Cuts marked layers, the outermost that can be cut; returns the root, maybe another.

    A model with a plan of its own for tensor parallelism (transformers' tp_plan) is cut by that,
    wherever it lies.
    Layers that share a parameter, or whose sizes the ranks do not divide, stay whole.
    """
    if regions.ranks() == 1:
        return root
    return _distributed(root, "", shared_parameters(root))


def _distributed(module: nn.Module, name: str, shared: set[int]) -> nn.Module:
    if isinstance(module, DistributedModule):
        return module
    options = _MARKS.of(module)
    if options is not None and plan_of(module):
        apply_plan(module, plan_of(module), shared)
        return module
    if options is not None and _can_be_cut(module):
        new = _replacement(module, name, shared, options)
        if new is not None:
            return new
    for key, child in list(module.named_children()):
        new = _distributed(child, f"{name}.{key}" if name else key, shared)
        if new is not child:
            setattr(module, key, new)
    return module


def _can_be_cut(module: nn.Module) -> bool:
    return type(module) in _registered or type(module) in (nn.Linear, nn.Embedding) or _is_conv(module)


def _replacement(module: nn.Module, name: str, shared: set[int],
                 options: dict[str, Any]) -> nn.Module | None:
    if any(id(one) in shared for one in module.parameters()):
        log.info("%s stays whole: it shares a parameter", name or "the model")
        return None
    try:
        if type(module) in _registered:
            return _of_registered(module, _registered[type(module)], options)
        if isinstance(module, nn.Linear):
            return DistributedLinear(module.in_features, module.out_features, inside=module)
        if isinstance(module, nn.Embedding):
            _require_plain(module)
            return DistributedEmbedding(module.num_embeddings, module.embedding_dim, inside=module)
        if module.weight.shape[0] % regions.ranks() == 0:
            return CutConv1D(module)
        raise ValueError("its input does not divide")
    except ValueError as error:
        log.info("%s stays whole: %s", name or "the model", error)
        return None


def _require_plain(module: nn.Embedding) -> None:
    if module.max_norm is not None or module.sparse or module.scale_grad_by_freq:
        raise ValueError("max_norm, sparse and scale_grad_by_freq go with whole vectors")


class _Adapted(DistributedModule):
    """A distributed layer called as the one whose place it took."""

    def __init__(self, inside: nn.Module, how: Registered):
        super().__init__()
        self.inside, self._how = inside, how

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if self._how.forward_hook is not None:
            args, kwargs = self._how.forward_hook(*args, **kwargs)
        value = self.inside(*args, **kwargs)
        return value if self._how.return_hook is None else self._how.return_hook(value)


def _of_registered(module: nn.Module, how: Registered, options: dict[str, Any]) -> nn.Module | None:
    args, kwargs = getattr(module, "_sprat_arguments", ((), {}))
    if how.init_hook is not None:
        given = how.init_hook(*args, **kwargs)
        if given is None:
            return None
        args, kwargs = given
    # A hook may hand over a whole configuration, and a context may mean other layers too.
    taken = how.distributed.keywords()
    made = how.distributed(*args, **{k: v for k, v in {**kwargs, **options}.items() if k in taken})
    hooks = how.forward_hook is not None or how.return_hook is not None
    return _Adapted(made, how) if hooks else made


def _is_conv(module: nn.Module) -> bool:
    kind = type(module)
    return kind.__name__ == "Conv1D" and kind.__module__ == "transformers.pytorch_utils"


def _keep_arguments_of(kind: type) -> None:
    if "_sprat_keeps_arguments" in kind.__dict__:
        return
    initialise = kind.__init__

    def keeping(module: nn.Module, *args: Any, **kwargs: Any) -> None:
        initialise(module, *args, **kwargs)
        if type(module) is kind:
            object.__setattr__(module, "_sprat_arguments", (args, kwargs))

    kind.__init__ = keeping
    kind._sprat_keeps_arguments = True
