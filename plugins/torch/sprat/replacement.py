"""Puts sprat in the place of other backends, in this process and in Python programs that it starts.

It needs torch.distributed alone, so that a program which never makes a group pays for nothing:
autoload.py calls it at the end of ``import torch`` where the variable below is set.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
from collections.abc import Collection
from typing import Any

# Children read it. It does not begin with SPRAT_: the library takes such a name that it does not
# know for a misspelt setting, and says so.
VARIABLE = "TORCH_RUN_ON_SPRAT"
_replaced: set[str] = set()


def with_sprat(backend: str, replaced: Collection[str] = ("gloo",)) -> str:
    """"sprat" for "gloo", and "cpu:sprat,cuda:nccl" for "cpu:gloo,cuda:nccl"."""
    parts = [part.split(":") for part in backend.lower().split(",")]
    if not any(part[-1] in replaced for part in parts):
        return backend
    for part in parts:
        part[-1] = "sprat" if part[-1] in replaced else part[-1]
    return ",".join(":".join(part) for part in parts)


def take_the_place_of(*backends: str) -> None:
    """From here on, wherever init_process_group and new_group have been imported to.

    Also in Python programs that this one starts, if their environment and PyTorch are this one's.
    nccl, if it is named, stays where there is a GPU.
    """
    os.environ.setdefault(VARIABLE, "1")
    if not _replaced:
        _change("init_process_group")
        _change("new_group")
    _replaced.update(backends)


def _chosen(name: str, backend: str | None) -> str | None:
    """What the function of that name is to be given for this backend; None is PyTorch's choice."""
    import torch
    import torch.distributed as dist

    if backend:
        has_gpu = torch.cuda.device_count() > 0
        return with_sprat(backend, _replaced - {"nccl"} if has_gpu else _replaced)
    if name == "new_group":
        return None  # the default group's
    device = torch._C._get_accelerator().type
    of_device = dist.Backend.default_device_backend_map.get(device)
    return "sprat" if of_device in _replaced else None


def _change(name: str) -> None:
    import torch.distributed.distributed_c10d as c10d

    function = getattr(c10d, name)
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        bound = signature.bind(*arguments, **named)
        bound.arguments["backend"] = _chosen(name, bound.arguments.get("backend"))
        return function(*bound.args, **bound.kwargs)

    for module in list(sys.modules.values()):
        if getattr(module, "__dict__", {}).get(name) is function:
            setattr(module, name, call)
