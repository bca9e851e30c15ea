"""SMP v2's loading of sharded states, on torch.distributed.checkpoint."""

from __future__ import annotations

import os
from typing import Any

import torch.distributed as dist
import torch.distributed.checkpoint as dcp


def load(state_dict: dict[str, Any], checkpoint_id: str | os.PathLike | None = None, *,
         storage_reader: Any = None, process_group: dist.ProcessGroup | None = None,
         strict: bool = True, **_: Any) -> None:
    """Fills the state in place from the folder checkpoint_id, whatever ranks have saved it.

    Every rank calls it. strict: an error for what the folder lacks; else it stays as it is.
    """
    planner = dcp.DefaultLoadPlanner(allow_partial_load=not strict)
    dcp.load(state_dict, checkpoint_id=checkpoint_id, storage_reader=storage_reader,
             planner=planner, process_group=process_group)
