"""How errors call a rank, and the module that they come from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch.distributed as dist
from torch import nn


def rank_name(rank: int, members: Sequence[int]) -> str:
    """A rank of the pipeline that these ranks of the world are; also by its number there, where there are more."""
    name = f"rank {rank} of the pipeline"
    has_more = dist.is_initialized() and dist.get_world_size() > len(members)
    return f"{name}, rank {members[rank]} of all" if has_more else name


def module_of(error: BaseException, modules: dict[str, nn.Module]) -> str:
    """The innermost of the modules whose code the error has gone through, or the empty text."""
    names: dict[int, str] = {}
    for name, module in modules.items():
        names.setdefault(id(module), name or type(module).__name__)
    found, traceback = "", error.__traceback__
    while traceback is not None:
        owner: Any = traceback.tb_frame.f_locals.get("self")
        found = names.get(id(owner), found)
        traceback = traceback.tb_next
    return found
