"""What of autograd and autocast belongs to a thread, and so must travel with a call."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch


def modes_here() -> dict[str, Any]:
    return {
        "grad": torch.is_grad_enabled(),
        "autocast": torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else None,
    }


@contextlib.contextmanager
def with_modes(modes: dict[str, Any]) -> Iterator[None]:
    autocast = modes["autocast"]
    with torch.set_grad_enabled(modes["grad"]), torch.autocast(
        "cpu", dtype=autocast or torch.bfloat16, enabled=autocast is not None
    ):
        yield
