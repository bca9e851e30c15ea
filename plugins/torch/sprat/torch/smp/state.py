"""What `init` has set up, as SMP v2 shows it (`state`), and the rank helpers of SMP v1 over it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from .placement import CommGroup, Placement, Ranker

if TYPE_CHECKING:
    import torch
    from torch.distributed import ProcessGroup
    from torch.distributed.device_mesh import DeviceMesh


class State:
    """The result of `init`; reading it before is an error that says so.

    A later `init` replaces what is in it, so `from sprat.torch import state` stays valid.
    """

    config: dict[str, Any]  # every key of the configuration's generation, given or default
    generation: str  # "v1" or "v2"
    rank: int
    world_size: int
    replicas: int  # copies of the model
    hybrid_shard_degree: int  # ranks that share one copy, resolved: never 0
    tensor_parallel_degree: int
    tp_size: int
    tp_rank: int
    mesh: DeviceMesh  # axes "replicate", "shard" and, with tensor parallelism, "tensor"
    rep_rank_process_group: ProcessGroup  # the ranks that hold the same shard
    shard_process_group: ProcessGroup  # the ranks that share one copy
    tp_process_group: ProcessGroup
    world_process_group: ProcessGroup
    context_parallel_degree: int  # 1, as cp_size, expert_parallel_degree and ep_size
    cp_size: int
    cp_rank: int  # 0, as ep_rank
    expert_parallel_degree: int
    ep_size: int
    ep_rank: int
    sm_activation_offloading: bool
    ranker: Ranker
    placement: Placement
    groups: dict[CommGroup, ProcessGroup]
    tensor_parallel_generators: list[torch.Tensor]  # states of the random streams

    def __getattr__(self, name: str) -> Any:
        remedy = (
            "there is no such thing" if "config" in self.__dict__ else "call init(config) first"
        )
        raise AttributeError(f"state.{name}: {remedy}")


state = State()


def is_initialized() -> bool:
    """Whether `init` has been called."""
    return "config" in vars(state)


def rank() -> int:
    return state.rank


def size() -> int:
    return state.world_size


def local_rank() -> int:
    """This process's position among those of its host, as the launcher says."""
    return _launcher_says("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK")


def local_size() -> int:
    """How many processes its host has, as the launcher says."""
    return _launcher_says("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE")


def tp_rank() -> int:
    return _rank_in(CommGroup.TP_GROUP)


def tp_size() -> int:
    return len(_ranks(CommGroup.TP_GROUP))


def pp_rank() -> int:
    return _rank_in(CommGroup.PP_GROUP)


def pp_size() -> int:
    return len(_ranks(CommGroup.PP_GROUP))


def rdp_rank() -> int:
    return _rank_in(CommGroup.RDP_GROUP)


def rdp_size() -> int:
    return len(_ranks(CommGroup.RDP_GROUP))


def mp_rank() -> int:
    return _rank_in(CommGroup.MP_GROUP)


def mp_size() -> int:
    return len(_ranks(CommGroup.MP_GROUP))


def dp_rank() -> int:
    return _rank_in(CommGroup.DP_GROUP)


def dp_size() -> int:
    return len(_ranks(CommGroup.DP_GROUP))


def get_mp_group() -> list[int]:
    """The ranks that hold this rank's copy of the model together."""
    return _ranks(CommGroup.MP_GROUP)


def get_dp_group() -> list[int]:
    """The ranks that hold the same pipeline stage as this rank."""
    return _ranks(CommGroup.DP_GROUP)


def get_tp_group() -> list[int]:
    """The ranks that have parts of the same layers as this rank."""
    return _ranks(CommGroup.TP_GROUP)


def get_pp_group() -> list[int]:
    """The ranks of this rank's pipeline."""
    return _ranks(CommGroup.PP_GROUP)


def get_rdp_group() -> list[int]:
    """The ranks that hold what this rank holds."""
    return _ranks(CommGroup.RDP_GROUP)


def get_world_process_group() -> ProcessGroup:
    return state.groups[CommGroup.WORLD]


def get_tp_process_group() -> ProcessGroup:
    return state.groups[CommGroup.TP_GROUP]


def get_pp_process_group() -> ProcessGroup:
    return state.groups[CommGroup.PP_GROUP]


def get_rdp_process_group() -> ProcessGroup:
    return state.groups[CommGroup.RDP_GROUP]


def get_mp_process_group() -> ProcessGroup:
    return state.groups[CommGroup.MP_GROUP]


def get_dp_process_group() -> ProcessGroup:
    return state.groups[CommGroup.DP_GROUP]


def _ranks(kind: CommGroup) -> list[int]:
    return state.placement.group(kind, state.rank)


def _rank_in(kind: CommGroup) -> int:
    return _ranks(kind).index(state.rank)


def _launcher_says(*variables: str) -> int:
    for variable in variables:
        if variable in os.environ:
            return int(os.environ[variable])
    raise RuntimeError(
        f"none of {' and '.join(variables)} is set: launch with torchrun or mpirun, "
        f"or set {variables[0]}"
    )
