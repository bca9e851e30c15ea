"""What all ranks that hold parts of one model must decide alike."""

from __future__ import annotations

import torch
import torch.distributed as dist

from .placement import CommGroup
from .state import state


def any_has(found: bool) -> bool:
    """Whether one of the ranks that update parts of one model has found it; they call together.

    Replicas have the same gradients, and are not asked, unless they divide parameters or their
    updates.
    """
    kinds = [CommGroup.MP_GROUP]
    if state.hybrid_shard_degree > 1 or state.config.get("shard_optimizer_state"):
        kinds.append(CommGroup.RDP_GROUP)
    worst = torch.tensor([float(found)])
    for kind in kinds:
        dist.all_reduce(worst, op=dist.ReduceOp.MAX, group=state.groups[kind])
    return bool(worst.item())
