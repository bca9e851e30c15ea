"""SMP's surface on torch.distributed: `import sprat.torch.smp as smp` has its names.

docs/smp/configuration.md lists the keys of its configuration.
"""

from typing import NoReturn

from . import amp, nn, optimizers, state_dict_loader, state_dict_saver
from ..learning_rate import scaled_learning_rate, scaled_learning_rate_scheduler
from .checkpoints import load, resume_from_checkpoint, save, save_checkpoint
from .delayed import DelayedParamIniter, delay_param_initialization, model_creation
from .model import DistributedModel, is_tracing
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
from .offload import offload_wrapper
from .optimizer import DistributedOptimizer
from .placement import CommGroup
from .refused import refusal
from .random import tensor_parallel_random
from .recomputation import (
    checkpoint,
    checkpoint_sequential,
    set_activation_checkpointing,
)
from .setup import init
from .sharding import clip_gradients, shard
from .split import partition, set_partition
from .state import (
    dp_rank,
    dp_size,
    get_dp_group,
    get_dp_process_group,
    get_mp_group,
    get_mp_process_group,
    get_pp_group,
    get_pp_process_group,
    get_rdp_group,
    get_rdp_process_group,
    get_tp_group,
    get_tp_process_group,
    get_world_process_group,
    is_initialized,
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
from .tensor import (
    set_tensor_parallelism,
    tensor_parallelism,
    tp_register,
    tp_register_with_module,
)
from .transform import transform

# SMP has them under both names.
WORLD, MP_GROUP, DP_GROUP = CommGroup.WORLD, CommGroup.MP_GROUP, CommGroup.DP_GROUP
TP_GROUP, PP_GROUP, RDP_GROUP = CommGroup.TP_GROUP, CommGroup.PP_GROUP, CommGroup.RDP_GROUP
__all__ = [
    "DP_GROUP",
    "MP_GROUP",
    "PP_GROUP",
    "RDP_GROUP",
    "TP_GROUP",
    "WORLD",
    "CommGroup",
    "DelayedParamIniter",
    "DistributedModel",
    "DistributedOptimizer",
    "StepOutput",
    "RankType",
    "allgather",
    "amp",
    "barrier",
    "broadcast",
    "checkpoint",
    "checkpoint_sequential",
    "clip_gradients",
    "delay_param_initialization",
    "dp_barrier",
    "dp_rank",
    "dp_size",
    "get_dp_group",
    "get_dp_process_group",
    "get_mp_group",
    "get_mp_process_group",
    "get_pp_group",
    "get_pp_process_group",
    "get_rdp_group",
    "get_rdp_process_group",
    "get_tp_group",
    "get_tp_process_group",
    "get_world_process_group",
    "init",
    "is_initialized",
    "is_tracing",
    "load",
    "local_rank",
    "local_size",
    "model_creation",
    "mp_barrier",
    "mp_rank",
    "mp_size",
    "nn",
    "offload_wrapper",
    "optimizers",
    "partition",
    "pp_barrier",
    "pp_rank",
    "pp_size",
    "rank",
    "rdp_barrier",
    "rdp_rank",
    "rdp_size",
    "recv_from",
    "resume_from_checkpoint",
    "save",
    "save_checkpoint",
    "scaled_learning_rate",
    "scaled_learning_rate_scheduler",
    "send",
    "set_activation_checkpointing",
    "set_partition",
    "set_tensor_parallelism",
    "shard",
    "size",
    "state",
    "state_dict_loader",
    "state_dict_saver",
    "step",
    "tensor_parallel_random",
    "tensor_parallelism",
    "tp_barrier",
    "tp_rank",
    "tp_register",
    "tp_register_with_module",
    "tp_size",
    "transform",
]


def __getattr__(name: str) -> NoReturn:
    raise refusal(name)
