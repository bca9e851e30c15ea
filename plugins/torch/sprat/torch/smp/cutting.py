"""What a split does to a module tree: each rank keeps its modules, and asks for the others'."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

log = logging.getLogger(__name__)


def require_same_model(module: nn.Module, group: dist.ProcessGroup) -> None:
    """ValueError on every rank of the pipeline, naming what differs, unless all made the same."""
    mine = [(name, tuple(p.shape), str(p.dtype)) for name, p in module.named_parameters()]
    everyones: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(everyones, mine, group=group)
    for rank, theirs in enumerate(everyones):
        if theirs != everyones[0]:
            pairs = zip([*everyones[0], None], [*theirs, None])
            first = next(pair for pair in pairs if pair[0] != pair[1])
            raise ValueError(
                f"ranks 0 and {rank} of the pipeline have different models: {first[0]} and "
                f"{first[1]}; every rank makes the same"
            )


def keep_own(module: nn.Module, owner_of: Callable[[str], int], rank: int,
             ask: Callable[..., Any]) -> None:
    """Drops what other ranks have, and puts ask(name, ...) in the place of their forwards."""
    for name, inside in module.named_modules():
        owner = owner_of(name)
        if owner == rank:
            continue
        for key, parameter in inside.named_parameters(recurse=False):
            its_name = f"{name}.{key}" if name else key
            _drop(parameter, f"parameter {its_name!r} is rank {owner}'s and was used on rank {rank} "
                             "of the pipeline")
        # Code of any module that stands here may call it: a list around it calls nothing.
        inside.forward = functools.partial(ask, name)
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
