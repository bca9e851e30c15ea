"""What SMP v2 does to PyTorch's FullyShardedDataParallel: groups of hybrid_shard_degree, and a hook.

SMP changes PyTorch itself, so scripts written for it say FSDP(model, ...) and nothing of groups.
Under --sagemaker this does so too, in programs that import torch.sagemaker; groups from init() on.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import torch.distributed as dist
import torch.distributed.checkpoint.optimizer as optimizer_checkpoints
import torch.distributed.fsdp._init_utils as init_utils
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy

from sprat.torch.smp.state import State, state

HYBRID = (ShardingStrategy.HYBRID_SHARD, ShardingStrategy._HYBRID_SHARD_ZERO2)
Hook = Callable[[nn.Module], Any]
# Of the FSDP that this thread is making, and of those inside of it.
_hook: ContextVar[Hook | None] = ContextVar("hook", default=None)


def change_fsdp() -> None:
    """Again does nothing."""
    if hasattr(FullyShardedDataParallel.__init__, "of_pytorch"):
        return
    FullyShardedDataParallel.__init__ = _with_groups(FullyShardedDataParallel.__init__)
    init_utils._materialize_with_param_init_fn = _with_hook(
        init_utils._materialize_with_param_init_fn)
    name = "load_sharded_optimizer_state_dict"
    of_pytorch = getattr(optimizer_checkpoints, name)
    for module in list(sys.modules.values()):
        if getattr(module, "__dict__", {}).get(name) is of_pytorch:
            setattr(module, name, _with_process_group(of_pytorch))


def strategy_of(asked: ShardingStrategy | None, degree: int, replicas: int) -> ShardingStrategy:
    """What FSDP is told where `degree` ranks share each of so many replicas.

    As SMP: another strategy than the hybrid ones becomes HYBRID_SHARD, degree 1 shares nothing.
    """
    if degree == 1:
        return ShardingStrategy.NO_SHARD
    if asked in HYBRID:
        return asked
    if replicas == 1:  # the same, without sums over replicas that are alone
        shares = asked is not None and asked != ShardingStrategy.NO_SHARD
        return asked if shares else ShardingStrategy.FULL_SHARD
    return ShardingStrategy.HYBRID_SHARD


def _chosen(asked: ShardingStrategy | None, of: State) -> dict[str, Any]:
    """Strategy and group of the degree in SMP's configuration; {} where it leaves both to PyTorch."""
    if "config" not in vars(of) or of.generation != "v2":
        return {}
    if of.config["hybrid_shard_degree"] == 0 and of.tp_size == 1:
        return {}
    strategy = strategy_of(asked, of.hybrid_shard_degree, of.replicas)
    shards, replicas = of.shard_process_group, of.rep_rank_process_group
    if strategy in HYBRID:
        return {"sharding_strategy": strategy, "process_group": (shards, replicas)}
    alone = strategy == ShardingStrategy.NO_SHARD
    return {"sharding_strategy": strategy, "process_group": replicas if alone else shards}


def _with_groups(of_pytorch: Callable[..., None]) -> Callable[..., None]:
    signature = inspect.signature(of_pytorch)

    @functools.wraps(of_pytorch)
    def made(*arguments: Any, post_param_init_fn: Hook | None = None, **named: Any) -> None:
        bound = signature.bind(*arguments, **named)
        given = bound.arguments
        if given.get("process_group") is None and given.get("device_mesh") is None:
            given.update(_chosen(given.get("sharding_strategy"), state))
        token = _hook.set(post_param_init_fn or _hook.get())
        try:
            of_pytorch(*bound.args, **bound.kwargs)
        finally:
            _hook.reset(token)

    made.of_pytorch = of_pytorch
    return made


def _with_hook(of_pytorch: Callable[..., None]) -> Callable[..., None]:
    """FSDP makes flat what this has given values, so modules share parameters again before."""

    @functools.wraps(of_pytorch)
    def give_values(root: nn.Module, *arguments: Any, **named: Any) -> None:
        of_pytorch(root, *arguments, **named)
        hook = _hook.get()
        if hook is not None:
            hook(root)

    return give_values


def _with_process_group(of_pytorch: Callable[..., Any]) -> Callable[..., Any]:
    """SMP's argument; PyTorch divides the state over all ranks."""

    @functools.wraps(of_pytorch)
    def load(*arguments: Any, process_group: dist.ProcessGroup | None = None, **named: Any) -> Any:
        ranks = dist.get_world_size(process_group)
        if ranks != dist.get_world_size():
            raise ValueError(
                f"load_sharded_optimizer_state_dict(process_group=) of {ranks} of "
                f"{dist.get_world_size()} ranks: PyTorch divides the state over all of them; set "
                "hybrid_shard_degree to their number to resume, or load by "
                "torch.distributed.checkpoint.state_dict.set_optimizer_state_dict"
            )
        return of_pytorch(*arguments, **named)

    return load
