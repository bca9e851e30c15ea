"""Which backend the world has for which device, and groups beside it."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist


def backends() -> dict[str, str]:
    """The world's backend for each type of device."""
    return dict(pair.split(":") for pair in str(dist.get_backend_config()).split(","))


def new_group(ranks: list[int]) -> dist.ProcessGroup:
    """A group with the world's timeout; its members alone call."""
    timeout = backend_of(dist.group.WORLD).options._timeout
    return dist.new_group(ranks, timeout=timeout, use_local_synchronization=True)


def backend_of(group: dist.ProcessGroup) -> Any:
    """That of the first type of device, as PyTorch binds it."""
    return group._get_backend(torch.device(next(iter(backends()))))
