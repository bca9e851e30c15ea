"""SMP's surface on torch.distributed: `import sprat.torch.smp as smp` has its names.

docs/pytorch.md lists the keys of its configuration.
"""

from ..learning_rate import scaled_learning_rate, scaled_learning_rate_scheduler
from .model import DistributedModel
from .objects import (
    RankType,
    allgather,
    barrier,
    broadcast,
    dp_barrier,
    mp_barrier,
    pp_barrier,
    rdp_barrier,
    recv_from,
    send,
    tp_barrier,
)
from .placement import CommGroup
from .random import tensor_parallel_random
from .recomputation import (
    checkpoint,
    checkpoint_sequential,
    set_activation_checkpointing,
)
from .setup import init
from .sharding import clip_gradients, shard
from .split import partition
from .state import (
    dp_rank,
    dp_size,
    get_dp_group,
    get_dp_process_group,
    get_mp_group,
    get_mp_process_group,
    get_pp_process_group,
    get_rdp_process_group,
    get_tp_process_group,
    get_world_process_group,
    local_rank,
    local_size,
    mp_rank,
    mp_size,
    pp_rank,
    pp_size,
    rank,
    rdp_rank,
    rdp_size,
    size,
    state,
    tp_rank,
    tp_size,
)

from .step import StepOutput, step

__all__ = [
    "CommGroup",
    "DistributedModel",
    "StepOutput",
    "RankType",
    "allgather",
    "barrier",
    "broadcast",
    "checkpoint",
    "checkpoint_sequential",
    "clip_gradients",
    "dp_barrier",
    "dp_rank",
    "dp_size",
    "get_dp_group",
    "get_dp_process_group",
    "get_mp_group",
    "get_mp_process_group",
    "get_pp_process_group",
    "get_rdp_process_group",
    "get_tp_process_group",
    "get_world_process_group",
    "init",
    "local_rank",
    "local_size",
    "mp_barrier",
    "mp_rank",
    "mp_size",
    "partition",
    "pp_barrier",
    "pp_rank",
    "pp_size",
    "rank",
    "rdp_barrier",
    "rdp_rank",
    "rdp_size",
    "recv_from",
    "scaled_learning_rate",
    "scaled_learning_rate_scheduler",
    "send",
    "set_activation_checkpointing",
    "shard",
    "size",
    "state",
    "step",
    "tensor_parallel_random",
    "tp_barrier",
    "tp_rank",
    "tp_size",
]
