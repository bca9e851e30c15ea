"""Data parallel ranks with more batches than others: who is done sums zeros until the last is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch.distributed.algorithms.join import JoinHook

if TYPE_CHECKING:
    from .model import DistributedModel


class Shadow(JoinHook):
    """What a rank does for steps that it has no batch for."""

    def __init__(self, model: DistributedModel, group: dist.ProcessGroup):
        self._model = model
        self._group = group

    def main_hook(self) -> None:
        self._model.shadow_step()

    def post_hook(self, is_last_joiner: bool) -> None:
        """All end with the values of a rank that took every step."""
        rank = dist.get_rank(self._group)
        last = torch.tensor([rank if is_last_joiner else -1])
        dist.all_reduce(last, op=dist.ReduceOp.MAX, group=self._group)
        for value in self._model.local_values():
            dist.broadcast(value, group=self._group, group_src=int(last))
        self._model.end_join()
