"""A process group over a store: for programs that make groups, and replace them, by themselves."""

from __future__ import annotations

import atexit
from datetime import timedelta

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _DistributedBackendOptions
from torch.distributed.constants import default_pg_timeout

from sprat.torch import _native, backend

# Who makes a default group leaves those of the one before, and these are none of them.
_groups = backend._groups.beside()
atexit.register(_groups.leave)


def store_group(store: dist.Store, rank: int, size: int,
                timeout: timedelta = default_pg_timeout) -> dist.ProcessGroup:
    """A group of `size` ranks that meet in the store; every one of them calls, with its own rank.

    It needs no default group and is none: call its methods (`group.allreduce([tensor]).wait()`).
    It is a job of its own: an error ends it and no other group. After one make another, over a
    store or a PrefixStore that no group has used. RuntimeError if a rank does not come in time.
    """
    if not 0 <= rank < size:
        raise ValueError(f"rank {rank} of {size}: a rank is 0 to {size - 1}")
    options = _DistributedBackendOptions()
    options.store, options.timeout = store, timeout
    options.group_rank, options.group_size = rank, size
    options.group_id, options.global_ranks_in_group = "", list(range(size))
    made = _native.join(_groups, options)
    group = dist.ProcessGroup(store, rank, size)
    group._set_default_backend(dist.ProcessGroup.BackendType.CUSTOM)
    for device in backend.devices():
        group._register_backend(torch.device(device), dist.ProcessGroup.BackendType.CUSTOM, made)
    return group
