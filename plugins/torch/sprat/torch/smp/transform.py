"""SMP v2's transform(): a model of transformers, cut over tensor parallel ranks and sharded."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from .placement import CommGroup
from .state import state
from .tensor.marks import distribute, set_tensor_parallelism


def transform(
    model: nn.Module,
    device: torch.device | None = None,
    dtype: torch.dtype | None = None,
    config: Any = None,
    load_state_dict_from_rank0: bool = False,
    cp_comm_type: str = "p2p",
) -> nn.Module:
    """The model, cut as tensor_parallel_degree says; shard it then by smp.shard or FSDP.

    By its own plan for tensor parallelism, as models of transformers have, else each linear layer
    and embedding whose size divides. Every rank has the same values before; with
    load_state_dict_from_rank0 those of rank 0. config: MoEConfig, which is not served. cp_comm_type:
    taken, as sequences are not cut.
    """
    if config is not None:
        from .refused import REFUSED

        raise ValueError(f"transform(config=...): {REFUSED['MoEConfig']}")
    if cp_comm_type not in ("p2p", "all_gather"):
        raise ValueError(f'cp_comm_type = {cp_comm_type!r}: "p2p" or "all_gather"')
    if load_state_dict_from_rank0:
        for one in (*model.parameters(), *model.buffers()):
            dist.broadcast(one.detach(), group=state.groups[CommGroup.WORLD], group_src=0)
    model = model.to(device=device, dtype=dtype)
    set_tensor_parallelism(model)
    return distribute(model)
