"""Groups that their members alone make, under names that these agree on.

PyTorch names such a group by how many groups the rank is in, of whatever ranks. Where one rank has made a
group of its own before, the members would wait for each other under different names.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from contextvars import ContextVar
from typing import Any
from weakref import WeakKeyDictionary

import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d

# For each default group, how many groups were named here, by their ranks.
_named: WeakKeyDictionary[dist.ProcessGroup, Counter[tuple[int, ...]]] = WeakKeyDictionary()
# Whether the group that this thread is making is to be named here.
_ours: ContextVar[bool] = ContextVar("ours", default=False)


def new_group(ranks: list[int], **options: Any) -> dist.ProcessGroup:
    """``torch.distributed.new_group`` with ``use_local_synchronization``; ``options`` are its others.

    The members of ``ranks`` call, all as often for these ranks. Other ranks do not.
    """
    token = _ours.set(True)
    # What counts all groups of a rank names those that all ranks make, so ours leave it alone.
    count = getattr(c10d._world, "group_count", None)
    try:
        return dist.new_group(ranks, use_local_synchronization=True, **options)
    finally:
        _ours.reset(token)
        if count is not None:
            c10d._world.group_count = count


def _name(ranks: list[int]) -> str:
    """In PyTorch's place, which goes on naming what others make."""
    if not _ours.get():
        return _name_of_others(ranks)
    named = _named.setdefault(dist.group.WORLD, Counter())
    key = tuple(ranks)
    named[key] += 1
    return hashlib.sha1(f"sprat {key} {named[key]}".encode(), usedforsecurity=False).hexdigest()


# Once, as this module is imported: by turns with somebody else's, each would call the other.
_name_of_others = c10d._hash_ranks_to_str
c10d._hash_ranks_to_str = _name
