"""What a split does to a module tree: each rank keeps its modules, and asks for the others'."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import logging
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

log = logging.getLogger(__name__)


def require_same_model(module: nn.Module, options: dict[str, Any], group: dist.ProcessGroup) -> None:
    """ValueError on every rank of a pipeline or of its replicas, naming what differs, unless all made the same.

    options: of DistributedModel. Only where hashes differ do ranks tell each other all of it.
    """
    mine = [(name, tuple(p.shape), str(p.dtype)) for name, p in module.named_parameters()] + list(options.items())
    digest = hashlib.sha256(repr(mine).encode()).digest()
    hashed = torch.frombuffer(bytearray(digest), dtype=torch.int64)
    ends = torch.cat([hashed, ~hashed])  # largest, and the complement of the smallest
    dist.all_reduce(ends, op=dist.ReduceOp.MAX, group=group)
    if torch.equal(ends[: len(hashed)], ~ends[len(hashed) :]):
        return
    everyones: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(everyones, mine, group=group)
    for rank, theirs in enumerate(everyones):
        if theirs != everyones[0]:
            pairs = zip([*everyones[0], None], [*theirs, None])
            first = next(pair for pair in pairs if pair[0] != pair[1])
            members = dist.get_process_group_ranks(group)
            raise ValueError(
                f"ranks {members[0]} and {members[rank]} have different models: {first[0]} and "
                f"{first[1]}; every rank makes the same"
            )


class Asking:
    """Stands for the forward of a module that another rank has; `own`: one that was set before."""

    def __init__(self, ask: Callable[..., Any], name: str, own: Callable | None):
        self._ask, self._name, self.own = ask, name, own

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._ask(self._name, *args, **kwargs)


@contextlib.contextmanager
def own_forwards(module: nn.Module) -> Iterator[None]:
    """Inside, modules compute what they did before the split."""
    asking = [(one, vars(one)["forward"]) for one in module.modules()
              if isinstance(vars(one).get("forward"), Asking)]
    for one, asks in asking:
        del one.forward
        if asks.own is not None:
            one.forward = asks.own
    try:
        yield
    finally:
        for one, asks in asking:
            one.forward = asks


def keep_own(module: nn.Module, owner_of: Callable[[str], int], rank: int,
             ask: Callable[..., Any]) -> None:
    """Drops what other ranks have, and puts ask(name, ...) in the place of their forwards."""
    for name, inside in module.named_modules():
        for key, parameter in inside.named_parameters(recurse=False):
            its_name = f"{name}.{key}" if name else key
            owner = owner_of(its_name)
            if owner != rank:
                _drop(parameter, f"parameter {its_name!r} is rank {owner}'s and was used on rank "
                                 f"{rank} of the pipeline")
        # Code of any module that stands here may call it: a list around it calls nothing.
        if owner_of(name) != rank:
            inside.forward = Asking(ask, name, vars(inside).get("forward"))
    forget_cache(module)


def forget_cache(module: nn.Module) -> None:
    """A model of transformers keeps no keys and values from one call for the next."""
    if getattr(getattr(module, "config", None), "use_cache", False):
        log.warning("use_cache of the model's config is set to False: a cache that another rank's "
                    "modules change would be lost")
        module.config.use_cache = False


def stand_in_for(parameter: nn.Parameter) -> torch.Tensor:
    """Takes no memory: one number stands for all, and whoever computes with it computes NaN."""
    filler = torch.zeros((), dtype=parameter.dtype)
    if filler.is_floating_point():
        filler.fill_(float("nan"))
    return filler.expand(parameter.shape)


def _drop(parameter: nn.Parameter, misuse: str) -> None:
    stand_in = stand_in_for(parameter)
    if parameter.is_meta:
        torch.utils.swap_tensors(parameter, nn.Parameter(stand_in, parameter.requires_grad))
    else:
        parameter.data = stand_in
    parameter.grad = None
    if parameter.requires_grad:
        parameter.register_post_accumulate_grad_hook(functools.partial(_refuse_gradient, misuse))


def _refuse_gradient(misuse: str, parameter: nn.Parameter) -> None:
    parameter.grad = None
    raise RuntimeError(
        f"{misuse}, outside of its module's forward: keep the two together by smp.partition"
    )
