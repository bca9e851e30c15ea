"""Which backend the world has for which device, and groups beside it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d

from .. import _native, local_groups
from ..backend import _backend_of


def backends() -> dict[str, str]:
    """The world's backend for each type of device."""
    return dict(pair.split(":") for pair in str(dist.get_backend_config()).split(","))


def new_group(ranks: list[int]) -> dist.ProcessGroup:
    """A group with the world's timeout; its members alone call."""
    timeout = backend_of(dist.group.WORLD).options._timeout
    return local_groups.new_group(ranks, timeout=timeout)


def backend_of(group: dist.ProcessGroup) -> Any:
    """That of the first type of device, as PyTorch binds it."""
    return group._get_backend(torch.device(next(iter(backends()))))


def groups_among(ranks: Collection[int]) -> dict[dist.ProcessGroup, _native.Backend]:
    """The groups on sprat of this rank and others of these."""
    found = {}
    for group in c10d._world.pg_map:
        backend = None if c10d._rank_not_in_group(group) else _backend_of(group)
        members = dist.get_process_group_ranks(group) if backend is not None else []
        if len(members) > 1 and set(members) <= set(ranks):
            found[group] = backend
    return found
