"""FSDP2 on the CPU whose communication runs while it computes.

PyTorch's ``fully_shard`` overlaps by CUDA streams; on the CPU each gather and each reduction is
waited for where it is issued. Here gathers are asynchronous and issued ahead, reductions are waited
for at the end of backward, and both go through memory that the ranks of a host read in place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FSDPModule
from torch.distributed.fsdp._fully_shard._fsdp_api import AllGather, ReduceScatter

from sprat.torch.allocation import empty

#: Reductions under way at once: each keeps its unit's unsharded gradients.
_MOST_REDUCTIONS = 2


def overlap(model: torch.nn.Module, prefetch: int = 1) -> None:
    """Makes a ``fully_shard``-ed model on the CPU communicate while it computes.

    In forward the next ``prefetch`` units, in the order that the first forward shows, are gathered
    while one computes; in backward the next one, as FSDP2 does itself. A unit's gradients are
    reduced while the units before it run backward, and are complete when ``backward()`` returns.
    Gradients are reduced at once, as without this call, where something reads them earlier: with a
    second mesh axis (HSDP), when they are added to those of an earlier backward, when the reduction
    is in another type than the parameters', and for hooks that run on accumulated gradients.

    Results are the same bits. Peak memory grows by ``prefetch`` gathered units and two units'
    gradients. Call once, after the last ``fully_shard``. Units on CUDA are left as they are: there
    FSDP2 overlaps by streams, which sprat's operations follow. Raises ``ValueError`` for a model
    that has no sharded unit.
    """
    units = [module for module in model.modules() if isinstance(module, FSDPModule)]
    if not units:
        raise ValueError("overlap() needs a model that fully_shard has been applied to")
    if prefetch < 0:
        raise ValueError(f"prefetch is {prefetch}; it counts units and must not be negative")
    reductions = _Reductions()
    on_devices = False
    for unit in units:
        group = unit._get_fsdp_state()._fsdp_param_group
        if group is None:
            continue  # a unit without parameters of its own
        if group.device.type != "cpu":
            on_devices = True
            continue
        unit._set_unshard_async_op(True)
        unit.set_custom_all_gather(_Gather())
        unit.set_custom_reduce_scatter(_Reduce(group, reductions))
    if prefetch > 0 and not on_devices:
        _Order(model, units, prefetch)


class _Allocate:
    """Communication buffers in memory that the ranks of a host read in place."""

    def allocate(
        self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device
    ) -> torch.Tensor:
        return empty(*size, dtype=dtype)


class _Gather(_Allocate, AllGather):
    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: dist.ProcessGroup,
        async_op: bool = False,
    ) -> dist.Work | None:
        return dist.all_gather_into_tensor(
            output_tensor, input_tensor, group=group, async_op=async_op
        )


class _Reductions:
    """Reduce-scatters that a backward has begun and not waited for."""

    def __init__(self) -> None:
        self._under_way: list[dist.Work] = []
        self._ends_with_backward = False

    def add(self, work: dist.Work) -> None:
        """Called in backward; the work is waited for before that ends."""
        while len(self._under_way) >= _MOST_REDUCTIONS:
            self._under_way.pop(0).wait()
        self._under_way.append(work)
        if not self._ends_with_backward:
            self._ends_with_backward = True
            torch.autograd.Variable._execution_engine.queue_callback(self.wait)

    def wait(self) -> None:
        self._ends_with_backward = False
        while self._under_way:
            self._under_way.pop(0).wait()


class _Reduce(_Allocate, ReduceScatter):
    """One unit's gradients."""

    def __init__(self, group: Any, reductions: _Reductions) -> None:
        self._group = group  # FSDP2's parameter group, which owns this
        self._reductions = reductions

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: dist.ProcessGroup,
        op: Any,
        async_op: bool = False,
    ) -> dist.Work | None:
        may_wait = self._may_wait(output_tensor, op)
        work = dist.reduce_scatter_tensor(
            output_tensor, input_tensor, group=group, op=op, async_op=may_wait
        )
        if may_wait:
            self._reductions.add(work)
        return work

    def _may_wait(self, output: torch.Tensor, op: Any) -> bool:
        """Whether FSDP2 only makes views of the result before backward ends."""
        return (
            op != dist.ReduceOp.SUM  # is followed by a division
            and not self._group._is_hsdp
            and self._group._all_reduce_hook is None
            and not any(
                param.sharded_param.grad is not None
                or param.orig_dtype != output.dtype
                or param.offload_to_cpu
                or getattr(param.sharded_param, "_post_accumulate_grad_hooks", None)
                for param in self._group.fsdp_params
            )
        )


class _Order:
    """Learns the order of units from the first forward, and has them gathered ahead in it."""

    def __init__(self, model: torch.nn.Module, units: list[FSDPModule], prefetch: int) -> None:
        self._prefetch = prefetch
        self._order: list[FSDPModule] = []
        self._hooks = [unit.register_forward_pre_hook(self._enter) for unit in units]
        self._hooks.append(model.register_forward_hook(self._leave))

    def _enter(self, unit: FSDPModule, _: Any) -> None:
        if unit not in self._order:
            self._order.append(unit)

    def _leave(self, *_: Any) -> None:
        for hook in self._hooks:
            hook.remove()
        for at, unit in enumerate(self._order):
            ahead = self._order[at + 1 : at + 1 + self._prefetch]
            if ahead:
                unit.set_modules_to_forward_prefetch(ahead)
