"""SMP v2's saving of sharded states, on torch.distributed.checkpoint: at once, or behind training."""

from __future__ import annotations

import copy
import os
from collections import deque
from concurrent.futures import Future
from typing import Any

import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed._shard.sharded_tensor import ShardedTensor
from torch.distributed.checkpoint.staging import AsyncStager
from torch.utils import _pytree as pytree

from ..local_groups import new_group


class AsyncCallsQueue:
    """Saves that are under way, oldest first. One after another: each waits for the one before."""

    def __init__(self) -> None:
        self._calls: deque[Future] = deque()

    def add(self, call: Future) -> None:
        self._calls.append(call)

    def finish(self, blocking: bool) -> int:
        """Ends those that are done, with `blocking` all; raises what one has failed of."""
        ended = 0
        while self._calls and (blocking or self._calls[0].done()):
            self._calls.popleft().result()
            ended += 1
        return ended

    def maybe_finalize_async_calls(self, blocking: bool = True, process_group: Any = None) -> int:
        """SMP's name of finish()."""
        return self.finish(blocking)

    def __len__(self) -> int:
        return len(self._calls)


_queue = AsyncCallsQueue()


def save(state_dict: dict[str, Any], checkpoint_id: str | os.PathLike | None = None, *,
         storage_writer: Any = None, process_group: dist.ProcessGroup | None = None,
         **sagemaker: Any) -> Any:
    """Writes each rank's shards to the folder checkpoint_id. Every rank calls it.

    state_dict: of tensors, DTensors and values, as the models give it. Returns the metadata. Other
    arguments of SageMaker's are refused where they name its storage, else taken.
    """
    _require_ours(sagemaker)
    return dcp.save(state_dict, checkpoint_id=checkpoint_id, storage_writer=storage_writer,
                    process_group=process_group)


def async_save(state_dict: dict[str, Any], checkpoint_id: str | os.PathLike | None = None, *,
               storage_writer: Any = None, process_group: dist.ProcessGroup | None = None,
               queue: AsyncCallsQueue | None = None, **sagemaker: Any) -> Future:
    """Copies the state, and writes it while training goes on.

    The save before is waited for. Call maybe_finalize_async_calls() now and then, and with
    blocking=True before the end: a save that failed raises there. process_group: the ranks that
    save, all of which call it; training may go on using that group, since a save has one of its own.
    """
    _require_ours(sagemaker)
    calls = queue if queue is not None else _queue
    calls.finish(blocking=True)
    of_fsdp1 = any(isinstance(one, ShardedTensor) for one in pytree.tree_leaves(state_dict))
    call = dcp.async_save(state_dict, checkpoint_id=checkpoint_id, storage_writer=storage_writer,
                          async_stager=_Copies() if of_fsdp1 else None,
                          process_group=_group_of_saves(process_group or dist.group.WORLD))
    calls.add(call)
    return call


def maybe_finalize_async_calls(blocking: bool = False, process_group: dist.ProcessGroup | None = None,
                               queue: AsyncCallsQueue | None = None) -> int:
    """Ends the saves that are done, with `blocking` all; how many. Raises what one has failed of."""
    return (queue if queue is not None else _queue).finish(blocking)


class _Copies(AsyncStager):
    """FSDP1's sharded tensors, whose storages PyTorch's own stager asks for in vain."""

    def stage(self, state_dict: dict[str, Any]) -> dict[str, Any]:
        return copy.deepcopy(state_dict)


# By the world, and the group of the ranks that save.
_groups: dict[tuple[dist.ProcessGroup, dist.ProcessGroup], dist.ProcessGroup] = {}


def _group_of_saves(of: dist.ProcessGroup) -> dist.ProcessGroup:
    """Apart from the given one, so that its collectives never meet those of training."""
    world = dist.group.WORLD
    for gone in [key for key in _groups if key[0] is not world]:
        del _groups[gone]
    if (world, of) not in _groups:
        ranks = dist.get_process_group_ranks(of)
        _groups[world, of] = new_group(ranks, backend="sprat")
    return _groups[world, of]


def _require_ours(given: dict[str, Any]) -> None:
    taken = ("sharded_strategy", "wait_error_handling", "force_check_all_plans", "coordinator_rank",
             "planner", "no_dist")
    for name, value in given.items():
        if name in ("s3_region", "s3client_config"):
            if value is not None:
                raise ValueError(
                    f"{name} = {value!r}: S3 is SageMaker's; save to a folder, and copy that"
                )
        elif name not in taken:
            raise TypeError(f"save has no argument {name!r}")
