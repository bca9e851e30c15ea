"""`init`: an SMP configuration becomes groups, a mesh and random streams on torch.distributed."""

from __future__ import annotations

import os
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from .backends import backends, new_group
from .config import Settings, resolve
from .placement import CommGroup, Placement, Ranker, place
from .random import begin_streams
from .state import State, state


def init(
    config: dict | str | os.PathLike | None = None, *, device_type: str | None = None
) -> State:
    """Sets up what an SMP configuration asks for, and returns `state`.

    config: a dict, JSON text, a JSON file, or None for SMP v2's defaults; also nested as the
    estimator of SageMaker takes it.
    device_type: of the mesh; by default the accelerator if the world has a backend for it, else
    "cpu".
    Every rank calls it, with the same configuration. If torch.distributed is not initialized, it
    is, with backend "sprat" and the launcher's variables. ValueError names a key that is wrong or
    not served.
    """
    settings = resolve(config)
    _join_world()
    _require_agreement(settings)
    placement = place(settings, dist.get_world_size())
    groups = _make_groups(placement)
    state.__dict__.clear()
    state.__dict__.update(
        config=settings.values,
        generation=settings.generation,
        rank=dist.get_rank(),
        world_size=placement.size,
        replicas=placement.replicas,
        hybrid_shard_degree=placement.shard,
        tensor_parallel_degree=placement.tensor,
        tp_size=placement.tensor,
        tp_rank=dist.get_rank(groups[CommGroup.TP_GROUP]),
        mesh=_make_mesh(placement, groups, device_type or _default_device_type()),
        rep_rank_process_group=groups[CommGroup.REPLICATE_GROUP],
        shard_process_group=groups[CommGroup.SHARD_GROUP],
        tp_process_group=groups[CommGroup.TP_GROUP],
        world_process_group=groups[CommGroup.WORLD],
        # Neither sequences nor experts are cut over ranks; scripts ask whether they are.
        context_parallel_degree=1,
        cp_size=1,
        cp_rank=0,
        expert_parallel_degree=1,
        ep_size=1,
        ep_rank=0,
        sm_activation_offloading=settings.values.get("sm_activation_offloading", False),
        ranker=Ranker(placement),
        placement=placement,
        groups=groups,
    )
    begin_streams(settings.values.get("random_seed"))
    return state


def _join_world() -> None:
    if not dist.is_initialized():
        from ..launch import launch_environment

        launch_environment()
        dist.init_process_group("sprat")


def _require_agreement(settings: Settings) -> None:
    """Ranks that differ would make different groups, and wait for each other without end."""
    everyone: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, (settings.generation, settings.values))
    generation, values = everyone[0]
    for other, (its_generation, its_values) in enumerate(everyone):
        if its_generation != generation:
            raise ValueError(
                f"rank 0 has a configuration of SMP {generation}, rank {other} one of SMP "
                f"{its_generation}: give every rank the same"
            )
        for name, value in values.items():
            if its_values[name] != value:
                raise ValueError(
                    f"rank 0 has {name} = {value!r}, rank {other} {its_values[name]!r}: "
                    "give every rank the same configuration"
                )


def _make_groups(placement: Placement) -> dict[CommGroup, dist.ProcessGroup]:
    """The process group of each kind that this rank is in; kinds with the same ranks share one.

    But for the tensor group: it can be aborted in the midst of a step, and nothing else is to end with it. Nor with
    that of replicas, where a hook of communication fails; it is not the world's even where it has all ranks.
    """
    world = tuple(range(placement.size))
    made = {(world, False): dist.group.WORLD}
    groups = {}
    for kind in (
        CommGroup
    ):  # the same order on every rank, and only members call, so no rank waits for a stranger
        ranks = tuple(placement.group(kind, dist.get_rank()))
        if kind is CommGroup.TP_GROUP and len(ranks) > 1:
            groups[kind] = new_group(list(ranks))
            continue
        apart = kind in (CommGroup.DP_GROUP, CommGroup.RDP_GROUP) and ranks == world and len(world) > 1
        if (ranks, apart) not in made:
            made[ranks, apart] = new_group(list(ranks))
        groups[kind] = made[ranks, apart]
    return groups


def _make_mesh(
    placement: Placement, groups: dict[CommGroup, dist.ProcessGroup], device_type: str
) -> DeviceMesh:
    axes = {"replicate": CommGroup.REPLICATE_GROUP, "shard": CommGroup.SHARD_GROUP}
    ranks = torch.tensor(placement.mesh(dist.get_rank()))
    if placement.tensor > 1:
        axes["tensor"] = CommGroup.TP_GROUP
    else:
        ranks = ranks.squeeze(2)
    return DeviceMesh.from_group(
        [groups[kind] for kind in axes.values()],
        device_type,
        mesh=ranks,
        mesh_dim_names=tuple(axes),
    )


def _default_device_type() -> str:
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    return (
        accelerator.type if accelerator is not None and accelerator.type in backends() else "cpu"
    )
