"""Gradients of one step: added by micro-batch in rising order, then over data parallel ranks."""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import nn

from .server.tasks import current_microbatch


class Gradients:
    """Takes each contribution as autograd makes it; joins them in an order of their own.

    Backwards of micro-batches end in any order, and sums of floats depend on theirs. So what
    micro-batch j adds waits until all before it are complete.
    """

    def __init__(self, parameters: Iterable[nn.Parameter]):
        self.parameters = [one for one in parameters if one.requires_grad]
        self._hooks = [
            one.register_post_accumulate_grad_hook(self._take) for one in self.parameters
        ]
        self._begun = False

    def begin(self) -> None:
        """At a step's start: what stands in .grad is put aside."""
        self._before = {id(one): one.grad for one in self.parameters}
        for one in self.parameters:
            one.grad = None
        self._slots: dict[int, dict[int, torch.Tensor]] = {}
        self._sums: dict[int, torch.Tensor] = {}
        self._next = 0
        self._finished: set[int] = set()
        self._begun = True

    def finish(self, microbatch: int) -> None:
        """Nothing more comes of this micro-batch."""
        self._finished.add(microbatch)
        while self._next in self._finished:
            for key, gradient in self._slots.pop(self._next, {}).items():
                if key in self._sums:
                    self._sums[key] += gradient
                else:
                    self._sums[key] = gradient
            self._next += 1

    def end(self, divisor: int, group: dist.ProcessGroup | None, bucket_bytes: int) -> None:
        """Divides by `divisor`, takes the mean over the group, adds to what was put aside."""
        self._begun = False
        for key in self._sums:
            if divisor > 1:
                self._sums[key] /= divisor
        if group is not None and dist.get_world_size(group) > 1:
            self._mean_over(group, bucket_bytes)
        for one in self.parameters:
            before, gained = self._before[id(one)], self._sums.get(id(one))
            one.grad = gained if before is None else before if gained is None else before + gained
        self._before, self._sums = {}, {}

    def forget(self) -> None:
        """After a step that failed: .grad is what it was."""
        if self._begun:
            for one in self.parameters:
                one.grad = self._before[id(one)]
            self._begun = False

    def _take(self, parameter: nn.Parameter) -> None:
        microbatch = current_microbatch()
        if not self._begun or microbatch < 0:
            return
        slot = self._slots.setdefault(microbatch, {})
        gradient, parameter.grad = parameter.grad, None
        if id(parameter) in slot:
            slot[id(parameter)] = slot[id(parameter)] + gradient
        else:
            slot[id(parameter)] = gradient

    def _mean_over(self, group: dist.ProcessGroup, bucket_bytes: int) -> None:
        """All ranks sum the same buckets in the same order, also of parameters they did not use."""
        ranks = dist.get_world_size(group)
        works = []
        for bucket in _buckets(self.parameters, bucket_bytes):
            parts = [self._sums.setdefault(id(one), torch.zeros_like(one)) for one in bucket]
            flat = torch.cat([part.reshape(-1) for part in parts])
            works.append((dist.all_reduce(flat, group=group, async_op=True), flat, parts))
        for work, flat, parts in works:
            work.wait()
            flat /= ranks
            for part, mean in zip(parts, flat.split([part.numel() for part in parts])):
                part.copy_(mean.view_as(part))


def _buckets(parameters: list[nn.Parameter], most_bytes: int) -> list[list[nn.Parameter]]:
    """In reverse order, as backward makes them; one type a bucket."""
    buckets: list[list[nn.Parameter]] = []
    size = 0
    for one in reversed(parameters):
        own = one.numel() * one.element_size()
        if not buckets or buckets[-1][0].dtype != one.dtype or size + own > most_bytes:
            buckets.append([])
            size = 0
        buckets[-1].append(one)
        size += own
    return buckets
