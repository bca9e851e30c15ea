"""Parameters without memory until the split: each rank makes the values of its own modules.

A module's values come from a random stream of its own, keyed by the seed and its name, so they do
not depend on the cut, on the number of ranks or on what other modules draw.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from .tensor.cut_parameters import dim_of, part_of, whole_shape

Initialise = Callable[[nn.Module], Any]


@contextlib.contextmanager
def delay_param_initialization(enabled: bool = True) -> Iterator[None]:
    """Modules made inside have parameters without memory; buffers are made as ever.

    DistributedModel makes them at the split, DelayedParamIniter elsewhere.
    """
    if not enabled:
        yield
        return
    register = nn.Module.register_parameter

    def registering(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        if parameter is not None and not parameter.is_meta:
            parameter = nn.Parameter(parameter.to("meta"), requires_grad=parameter.requires_grad)
        register(module, name, parameter)

    nn.Module.register_parameter = registering
    try:
        yield
    finally:
        nn.Module.register_parameter = register


@contextlib.contextmanager
def model_creation(
    tensor_parallelism: bool = False,
    dtype: torch.dtype | None = None,
    delayed: bool | None = None,
    **options: Any,
) -> Iterator[None]:
    """Around the lines that make the model: its type, and what else is to hold for it.

    delayed: without memory until the split; by default as `delayed_parameter_initialization` of the
    configuration says. tensor_parallelism and options: as smp.tensor_parallelism.
    """
    from .state import state

    if delayed is None:
        delayed = bool(state.config.get("delayed_parameter_initialization"))
    kept = torch.get_default_dtype()
    if dtype is not None:
        torch.set_default_dtype(dtype)
    try:
        with delay_param_initialization(delayed), _tensor_parallel(tensor_parallelism, options):
            yield
    finally:
        torch.set_default_dtype(kept)


class DelayedParamIniter:
    """SMP v2's: makes the values of a model whose parameters have no memory, module by module.

    model: made under torch.device("meta") or delay_param_initialization().
    init_method_using_config: called with each module; by default the model's own _init_weights, as
    transformers has it, else the module's reset_parameters. verbose: taken.
    """

    def __init__(self, model: nn.Module, init_method_using_config: Initialise | None = None,
                 verbose: bool = False):
        self.model = model
        self._names = {id(module): name for name, module in model.named_modules()}
        self._initialise = init_method_using_config or initialiser_of(model)
        self._shared = _shared_parameters(model)
        self._seed = torch.initial_seed()

    def get_param_init_fn(self) -> Callable[[nn.Module], None]:
        """For FSDP's param_init_fn: gives one module's own parameters memory and values."""

        def initialise(module: nn.Module) -> None:
            with torch.no_grad():
                _allocate(module)
                initialise_module(module, self._names[id(module)], self._initialise, self._seed)

        return initialise

    def get_post_param_init_fn(self) -> Callable[[nn.Module, Any], None]:
        """Makes parameters that modules shared one again, which wrapping has made several."""

        def tie(module: nn.Module, _: Any = None) -> None:
            for first, others in self._shared:
                holder, key = _holder(self.model, first)
                for other in others:
                    its_holder, its_key = _holder(self.model, other)
                    if getattr(its_holder, its_key) is not getattr(holder, key):
                        setattr(its_holder, its_key, getattr(holder, key))

        return tie

    @contextlib.contextmanager
    def validate_params_and_buffers_inited(self, enabled: bool = True) -> Iterator[None]:
        """Around the lines that make the values: afterwards ValueError names what has none."""
        yield
        for kind, named in (("parameter", self.model.named_parameters()),
                            ("buffer", self.model.named_buffers())):
            for name, one in named if enabled else ():
                if one.is_meta:
                    raise ValueError(f"{kind} {name!r} has no values yet: give its module a "
                                     "reset_parameters, or pass init_method_using_config")


def has_delayed(module: nn.Module) -> bool:
    return any(one.is_meta for one in module.parameters())


@torch.no_grad()
def make_values(root: nn.Module, is_local: Callable[[str], bool], seed: int) -> None:
    """Memory and values of the modules of this rank. Parameters stay the objects that they are.

    ValueError names a module with parameters, and nothing that gives them values.
    """
    initialise = initialiser_of(root)
    delayed = [(name, module) for name, module in root.named_modules() if is_local(name)
               and any(one.is_meta for one in module.parameters(recurse=False))]
    for _, module in delayed:
        _allocate(module)
    for name, module in delayed:
        initialise_module(module, name, initialise, seed)


def initialiser_of(root: nn.Module) -> Initialise:
    """The root's own way, of modules that it knows, else the module's."""
    own = getattr(root, "_init_weights", None)

    def initialise(module: nn.Module) -> None:
        if hasattr(module, "reset_parameters"):
            module.reset_parameters()
        elif own is None:
            raise ValueError(
                f"a {type(module).__name__} has parameters, and no reset_parameters() that gives "
                "them values: write one, or make it outside of delay_param_initialization"
            )
        if own is not None:
            own(module)

    return initialise


def initialise_module(module: nn.Module, name: str, initialise: Initialise, seed: int) -> None:
    """By a random stream that nothing else draws from; nothing where it has no parameters itself."""
    key = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    own = list(module.named_parameters(recurse=False))
    if not own:  # FSDP asks for those that only hold others too
        return
    for _, one in own:
        if dim_of(one) is not None:  # whole for the while, so that ranks draw the same numbers
            one.data = torch.empty(whole_shape(one), dtype=one.dtype)
        one.fill_(float("nan") if one.is_floating_point() else 0)  # shows what is left out
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int.from_bytes(key[:8], "little") >> 1)
        initialise(module)
    for its_name, one in own:
        if dim_of(one) is not None:
            one.data = part_of(one.data, *dim_of(one))
        if one.is_floating_point() and bool(torch.isnan(one).any()):
            raise ValueError(
                f"parameter {its_name!r} of module {name!r} ({type(module).__name__}) got no value: "
                "its reset_parameters, or the model's _init_weights, must set every parameter"
            )


def _allocate(module: nn.Module) -> None:
    for one in module.parameters(recurse=False):
        if one.is_meta:
            made = nn.Parameter(torch.empty_like(one, device="cpu"), requires_grad=one.requires_grad)
            made.__dict__.update(one.__dict__)
            torch.utils.swap_tensors(one, made)  # for optimizers, and for modules that share it


def _shared_parameters(model: nn.Module) -> list[tuple[str, list[str]]]:
    names: dict[int, list[str]] = {}
    for name, one in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(one), []).append(name)
    return [(all_of[0], all_of[1:]) for all_of in names.values() if len(all_of) > 1]


def _holder(model: nn.Module, name: str) -> tuple[nn.Module, str]:
    path, _, key = name.rpartition(".")
    return model.get_submodule(path), key


def _tensor_parallel(enabled: bool, options: dict[str, Any]) -> contextlib.AbstractContextManager:
    if not enabled:
        return contextlib.nullcontext()
    from .tensor.marks import tensor_parallelism

    return tensor_parallelism(True, **options)
