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


def asked() -> str:
    """The variable's value; "" where it is not set, or 0."""
    value = os.environ.get(VARIABLE, "")
    return "" if value == "0" else value


def take_the_place_of(*backends: str) -> None:
    """From here on, wherever init_process_group and new_group have been imported to.

    Also in Python programs that this one starts, if their environment and PyTorch are this one's.
    nccl, if it is named, stays where there is a GPU.
    """
    os.environ[VARIABLE] = asked() or "1"
    if not _replaced:
        _change("init_process_group")
        _change("new_group")
    _replaced.update(backends)


def _chosen(name: str, backend: str | None, device_id: Any = None) -> str | None:
    """What the function of that name is to be given for this backend; None is PyTorch's choice."""
    import torch
    import torch.distributed as dist

    replaced = _replaced - {"nccl"} if torch.cuda.device_count() > 0 else _replaced
    if backend:  # what is no text PyTorch refuses
        return with_sprat(backend, replaced) if isinstance(backend, str) else backend
    if name == "new_group":
        return None  # the default group's
    device = getattr(device_id, "type", torch._C._get_accelerator().type)
    return "sprat" if dist.Backend.default_device_backend_map.get(device) in replaced else None


def _change(name: str) -> None:
    import torch.distributed.distributed_c10d as c10d

    function = getattr(c10d, name)
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        bound = signature.bind(*arguments, **named)
        given = bound.arguments
        given["backend"] = _chosen(name, given.get("backend"), given.get("device_id"))
        return function(*bound.args, **bound.kwargs)

    for module in list(sys.modules.values()):
        if getattr(module, "__dict__", {}).get(name) is function:
            setattr(module, name, call)
