"""Optimizer state divided over data parallel ranks: each updates its parameters, and sends them."""

from __future__ import annotations

import torch.distributed as dist
from torch import nn


def balanced(sizes: list[int], parts: int) -> list[int]:
    """The part of each: the largest first, each to the part that has least; ties to the first."""
    owners, loads = [0] * len(sizes), [0] * parts
    for index in sorted(range(len(sizes)), key=lambda one: (-sizes[one], one)):
        owners[index] = loads.index(min(loads))
        loads[owners[index]] += sizes[index]
    return owners


class OptimizerShards:
    """Which of `parameters` this rank updates; the ranks of `group` have the same list."""

    def __init__(self, parameters: list[nn.Parameter], group: dist.ProcessGroup):
        sizes = [one.numel() * one.element_size() for one in parameters]
        self._group = group
        self._owned = list(zip(parameters, balanced(sizes, dist.get_world_size(group))))

    def own(self) -> list[nn.Parameter]:
        rank = dist.get_rank(self._group)
        return [one for one, owner in self._owned if owner == rank]

    def spread(self) -> None:
        """Every rank gets each parameter from the rank that has updated it."""
        works = [
            dist.broadcast(one.data, group=self._group, group_src=owner, async_op=True)
            for one, owner in self._owned
        ]
        for work in works:
            work.wait()
