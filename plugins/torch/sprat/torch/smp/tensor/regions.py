"""Where values of a tensor parallel group part and meet: functions that autograd knows.

Outside of them every rank of the group has the same value and the same gradient.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist

from ..placement import CommGroup
from ..state import state

_alone = False


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Inside, shapes are as ever, and nothing travels: for a trace that one rank makes."""
    global _alone
    kept, _alone = _alone, True
    try:
        yield
    finally:
        _alone = kept


def ranks() -> int:
    return state.placement.tensor


def rank() -> int:
    return state.tp_rank


def enter(x: torch.Tensor) -> torch.Tensor:
    """The value as it is; its gradient is the sum of the ranks'. Before what uses it in parts."""
    return _Region.apply(x, lambda same: same.view_as(same), sum_over_ranks)


def leave(x: torch.Tensor) -> torch.Tensor:
    """The sum of the ranks' values; its gradient is each one's. Behind what gives sums in parts."""
    return _Region.apply(x, sum_over_ranks, lambda gradient: gradient)


def part(x: torch.Tensor, dim: int = -1) -> torch.Tensor:
    """This rank's slice of a value that all have; gradients are put together."""
    return _Region.apply(x, slice_of, join_slices, dim)


def whole(x: torch.Tensor, dim: int = -1) -> torch.Tensor:
    """The ranks' slices put together; of the gradient this rank's slice."""
    return _Region.apply(x, join_slices, slice_of, dim)


def whole_in_parts(x: torch.Tensor, dim: int) -> torch.Tensor:
    """whole() before what uses it in parts: of the sum of the ranks' gradients this rank's slice."""
    return _Region.apply(x, join_slices, sum_and_slice, dim)


def part_of_sum(x: torch.Tensor, dim: int) -> torch.Tensor:
    """This rank's slice of the sum of the ranks' values; gradients are put together."""
    return _Region.apply(x, sum_and_slice, join_slices, dim)


def sum_over_ranks(x: torch.Tensor) -> torch.Tensor:
    """A new tensor."""
    x = x.contiguous().clone()
    if not _alone and ranks() > 1:
        dist.all_reduce(x, group=state.groups[CommGroup.TP_GROUP])
    return x


def slice_of(x: torch.Tensor, dim: int) -> torch.Tensor:
    length = x.shape[dim] // ranks()
    return x.narrow(dim, rank() * length, length).contiguous()


def join_slices(x: torch.Tensor, dim: int) -> torch.Tensor:
    x = x.contiguous()
    if ranks() == 1:
        return x.view_as(x)
    if _alone:
        return torch.cat([x] * ranks(), dim)
    parts = [torch.empty_like(x) for _ in range(ranks())]
    dist.all_gather(parts, x, group=state.groups[CommGroup.TP_GROUP])
    return torch.cat(parts, dim)


def of_first_rank(x: torch.Tensor) -> torch.Tensor:
    """A tensor with its value."""
    if _alone or ranks() == 1:
        return x
    x = x.clone(memory_format=torch.contiguous_format)
    dist.broadcast(x, group=state.groups[CommGroup.TP_GROUP], group_src=0)
    return x


def sum_and_slice(x: torch.Tensor, dim: int) -> torch.Tensor:
    parts = torch.stack(x.chunk(ranks(), dim))
    own = torch.empty_like(parts[0])
    if _alone:
        return own.copy_(parts[rank()])
    dist.reduce_scatter_tensor(own, parts, group=state.groups[CommGroup.TP_GROUP])
    return own


class _Region(torch.autograd.Function):
    """One function forward, another of the gradient; both take the same dimension, or none."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, there: Callable, back: Callable, *dim: int) -> torch.Tensor:
        ctx.back, ctx.dim = back, dim
        return there(x, *dim)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return ctx.back(gradient, *ctx.dim), None, None, *(None for _ in ctx.dim)
