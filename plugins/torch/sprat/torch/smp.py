"""SMP's surface on torch.distributed: a configuration becomes mesh, groups, seeds, sharded modules.

Use: `import sprat.torch.smp as smp` has SMP's names; docs/pytorch.md lists the keys.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from .learning_rate import scaled_learning_rate, scaled_learning_rate_scheduler
from .smp_config import Settings, resolve
from .smp_placement import CommGroup, Placement, place
from .smp_state import (
    State,
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

__all__ = [
    "CommGroup",
    "clip_gradients",
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
    "mp_rank",
    "mp_size",
    "pp_rank",
    "pp_size",
    "rank",
    "rdp_rank",
    "rdp_size",
    "scaled_learning_rate",
    "scaled_learning_rate_scheduler",
    "shard",
    "size",
    "state",
    "tensor_parallel_random",
    "tp_rank",
    "tp_size",
]

Blocks = type | tuple[type, ...] | Callable[[nn.Module], bool]


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
        placement=placement,
        groups=groups,
    )
    _seed(settings.values.get("random_seed"))
    return state


def shard(model: nn.Module, blocks: Blocks | None = None, **options: Any) -> nn.Module:
    """Applies `fully_shard` to the model's blocks and to the rest of it, and returns the model.

    blocks: the class or classes of the transformer blocks, or a predicate on modules; by default
    the members of the outermost nn.ModuleLists. The parameters of a block travel together.
    options: passed to every `fully_shard`, for instance reshard_after_forward or mp_policy.
    The mesh is that of `init`. Each rank keeps its part of its own parameters: make them equal on
    all ranks before, by one seed or one checkpoint.
    """
    if "mesh" in options:
        raise ValueError(
            "shard takes its mesh from init: set hybrid_shard_degree there, or call fully_shard"
        )
    if state.config.get("bf16"):
        options.setdefault("mp_policy", MixedPrecisionPolicy(param_dtype=torch.bfloat16))
    mesh = state.mesh["shard"] if state.replicas == 1 else state.mesh["replicate", "shard"]
    for block in reversed(_find_blocks(model, blocks)):  # members come before what holds them
        fully_shard(block, mesh=mesh, **options)
    fully_shard(model, mesh=mesh, **options)
    if mesh.device_type == "cpu" and _backends().get("cpu") == "sprat":
        from .overlap import overlap

        overlap(model)
    return model


def clip_gradients(model: nn.Module) -> torch.Tensor:
    """Scales gradients down to the L2 norm `sdp_gradient_clipping` (v1); returns what it was."""
    if state.generation != "v1":
        raise ValueError(
            "sdp_gradient_clipping is a key of SMP v1 only: call torch.nn.utils.clip_grad_norm_"
        )
    norm = nn.utils.clip_grad_norm_(model.parameters(), state.config["sdp_gradient_clipping"])
    return norm.full_tensor() if hasattr(norm, "full_tensor") else norm


@contextlib.contextmanager
def tensor_parallel_random() -> Iterator[None]:
    """Draws from this tensor-parallel rank's random stream, seeded with `random_seed` + tp_rank.

    For what is split over tensor-parallel ranks, such as dropout between two split layers; all else
    draws the same numbers on each of them. The stream continues from one use to the next.
    """
    generators = _generators()
    kept = [generator.get_rng_state() for generator in generators]
    _set_states(generators, state.tensor_parallel_generators)
    try:
        yield
    finally:
        state.tensor_parallel_generators = [generator.get_rng_state() for generator in generators]
        _set_states(generators, kept)


def _join_world() -> None:
    if not dist.is_initialized():
        from .launch import launch_environment

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
    """The process group of each kind that this rank is in; kinds with the same ranks share one."""
    world = list(range(placement.size))
    made = {tuple(world): dist.group.WORLD}
    groups = {}
    for kind in (
        CommGroup
    ):  # the same order on every rank, and only members call, so no rank waits for a stranger
        ranks = tuple(placement.group(kind, dist.get_rank()))
        if ranks not in made:
            made[ranks] = dist.new_group(list(ranks), use_local_synchronization=True)
        groups[kind] = made[ranks]
    return groups


def _make_mesh(
    placement: Placement, groups: dict[CommGroup, dist.ProcessGroup], device_type: str
) -> DeviceMesh:
    axes = {"replicate": CommGroup.REPLICATE_GROUP, "shard": CommGroup.SHARD_GROUP}
    ranks = torch.tensor(placement.mesh())
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


def _backends() -> dict[str, str]:
    """The world's backend for each type of device."""
    return dict(pair.split(":") for pair in str(dist.get_backend_config()).split(","))


def _default_device_type() -> str:
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    return (
        accelerator.type if accelerator is not None and accelerator.type in _backends() else "cpu"
    )


def _find_blocks(model: nn.Module, blocks: Blocks | None) -> list[nn.Module]:
    if blocks is None:
        return _members(model)
    wanted = (
        blocks
        if not isinstance(blocks, (type, tuple))
        else lambda module: isinstance(module, blocks)
    )
    found = [module for module in model.modules() if module is not model and wanted(module)]
    if not found:
        kinds = sorted({type(module).__name__ for module in model.modules()})
        raise ValueError(
            f"blocks = {blocks!r} matches no module of {type(model).__name__}, which has "
            f"{', '.join(kinds)}"
        )
    return found


def _members(module: nn.Module) -> list[nn.Module]:
    """The members of the outermost nn.ModuleLists."""
    if isinstance(module, nn.ModuleList):
        return list(module)
    return [member for child in module.children() for member in _members(child)]


def _seed(seed: int | None) -> None:
    """Seeds ranks alike, for equal parameters, and begins the tensor-parallel stream."""
    if seed is not None:
        torch.manual_seed(seed)
    own_seed = torch.initial_seed() + state.tp_rank
    generators = _generators()
    kept = [generator.get_rng_state() for generator in generators]
    for generator in generators:
        generator.manual_seed(own_seed)
    state.tensor_parallel_generators = [generator.get_rng_state() for generator in generators]
    _set_states(generators, kept)


def _generators() -> list[Any]:
    """The modules that hold the random generators of the CPU and of the mesh's device."""
    device_type = state.mesh.device_type
    return (
        [torch.random]
        if device_type == "cpu"
        else [torch.random, torch.get_device_module(device_type)]
    )


def _set_states(generators: list[Any], states: list[torch.Tensor]) -> None:
    for generator, its_state in zip(generators, states, strict=True):
        generator.set_rng_state(its_state)
