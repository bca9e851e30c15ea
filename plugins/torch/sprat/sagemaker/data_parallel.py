"""SMDDP's calls before it was a backend of torch.distributed (before version 1.4)."""

from __future__ import annotations

import os
from typing import Any

import torch
import torch.distributed as dist
from torch import nn


class ReduceOp:
    """SMDDP's names of torch.distributed's operations."""

    SUM, AVERAGE = dist.ReduceOp.SUM, dist.ReduceOp.AVG
    MIN, MAX = dist.ReduceOp.MIN, dist.ReduceOp.MAX


def init_process_group(*_: Any, **__: Any) -> None:
    """Joins the world with backend sprat, whatever is asked for."""
    dist.init_process_group("sprat")


def get_local_rank() -> int:
    """This rank's place on its host; RuntimeError where no launcher has said it."""
    if "LOCAL_RANK" not in os.environ:
        raise RuntimeError("LOCAL_RANK is not set: start the script by python -m sprat.torch.run")
    return int(os.environ["LOCAL_RANK"])


def all_reduce(tensor: torch.Tensor, op: Any = ReduceOp.SUM, group: Any = None,
               async_op: bool = False) -> dist.Work | None:
    """In place; afterwards the tensor has the same bits on every rank."""
    return dist.all_reduce(tensor, op, group, async_op)


class DistributedDataParallel(nn.parallel.DistributedDataParallel):
    """PyTorch's, with SMDDP's arguments: buffers are not broadcast, and the group is the world."""

    def __init__(self, module: nn.Module, device_ids: Any = None, output_device: Any = None,
                 broadcast_buffers: bool = False, process_group: Any = None,
                 bucket_cap_mb: float = 25) -> None:
        if broadcast_buffers:
            raise ValueError("broadcast_buffers=True: SMDDP never broadcast them; leave it out, or "
                             "take torch.nn.parallel.DistributedDataParallel")
        on_gpu = any(one.is_cuda for one in module.parameters())
        super().__init__(module, device_ids=device_ids if on_gpu else None,
                         output_device=output_device if on_gpu else None,
                         broadcast_buffers=False, bucket_cap_mb=bucket_cap_mb)
