"""Sharded data parallelism over the mesh of `init`: FSDP2, block by block."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.distributed.fsdp import (
    FSDPModule,
    FullyShardedDataParallel,
    MixedPrecisionPolicy,
    fully_shard,
)

from .backends import backends
from .state import state

Blocks = type | tuple[type, ...] | Callable[[nn.Module], bool]


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
    if state.tensor_parallel_degree > 1 and state.config.get("prescaled_batch") is False:
        raise ValueError(
            f"tensor_parallel_degree = {state.tensor_parallel_degree} with prescaled_batch = false: "
            "under shard tensor parallel ranks get the same batch; set prescaled_batch to true and "
            "choose batches by rdp_rank()"
        )
    if state.config.get("bf16"):
        options.setdefault("mp_policy", MixedPrecisionPolicy(param_dtype=torch.bfloat16))
    mesh = state.mesh["shard"] if state.replicas == 1 else state.mesh["replicate", "shard"]
    for block in reversed(_find_blocks(model, blocks)):  # members come before what holds them
        fully_shard(block, mesh=mesh, **options)
    fully_shard(model, mesh=mesh, **options)
    if mesh.device_type == "cpu" and backends().get("cpu") == "sprat":
        from ..fsdp2 import overlap

        overlap(model)
    return model


def require_not_sharded(model: nn.Module) -> None:
    """ValueError for what DistributedModel cannot split.

    It takes whole parameters, and gives blocks to FSDP2 once each rank has its own.
    """
    for name, module in model.named_modules():
        if isinstance(module, (FSDPModule, FullyShardedDataParallel)):
            raise ValueError(
                f"DistributedModel of a model whose module {name!r} FSDP shards already: leave that to "
                "DistributedModel(..., shard_at='blocks') and sharded_data_parallel_degree, or train the "
                "model without DistributedModel"
            )


def clip_gradients(model: nn.Module) -> torch.Tensor:
    """Scales gradients down to the L2 norm `sdp_gradient_clipping` (v1); returns what it was."""
    if state.generation != "v1":
        raise ValueError(
            "sdp_gradient_clipping is a key of SMP v1 only: call torch.nn.utils.clip_grad_norm_"
        )
    norm = nn.utils.clip_grad_norm_(model.parameters(), state.config["sdp_gradient_clipping"])
    return norm.full_tensor() if hasattr(norm, "full_tensor") else norm


def _find_blocks(model: nn.Module, blocks: Blocks | None) -> list[nn.Module]:
    if blocks is None:
        return members(model)
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


def members(module: nn.Module) -> list[nn.Module]:
    """The members of the outermost nn.ModuleLists."""
    if isinstance(module, nn.ModuleList):
        return list(module)
    return [member for child in module.children() for member in members(child)]
