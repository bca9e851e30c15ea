"""Sprat under PyTorch: ``import sprat.torch; torch.distributed.init_process_group("sprat")``."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import torch

from sprat.torch._extension import load

_native = load(torch.__version__)  # before whatever imports it
from sprat.torch.allocation import empty, is_shared, memory_use, release_kept_memory  # noqa: E402
from sprat.torch.backend import (  # noqa: E402
    flight_record,
    independent_group,
    register,
    trace_span,
    write_trace,
)
from sprat.torch.block_compress import BlockCompressState, block_compress_hook  # noqa: E402
from sprat.torch.launch import launch_environment  # noqa: E402
from sprat.torch.learning_rate import (  # noqa: E402
    scaled_learning_rate,
    scaled_learning_rate_scheduler,
)

if TYPE_CHECKING:
    from sprat.torch import smp
    from sprat.torch.fsdp2 import overlap
    from sprat.torch.smp import init, shard, state

#: Where these names come from, on their first use. With FSDP, checkpoints and export, which their modules need, a process
#: takes half as long again to start.
_ON_FIRST_USE = {"init": "smp", "overlap": "fsdp2", "shard": "smp", "state": "smp"}

__all__ = [
    "BlockCompressState",
    "block_compress_hook",
    "empty",
    "flight_record",
    "independent_group",
    "init",
    "is_shared",
    "launch_environment",
    "memory_use",
    "overlap",
    "register",
    "release_kept_memory",
    "scaled_learning_rate",
    "scaled_learning_rate_scheduler",
    "shard",
    "smp",
    "state",
    "trace_span",
    "write_trace",
]
__version__ = _native.version()

register()


def __getattr__(name: str) -> Any:
    if name == "smp":
        return importlib.import_module("sprat.torch.smp")
    if name not in _ON_FIRST_USE:
        raise AttributeError(f"module 'sprat.torch' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"sprat.torch.{_ON_FIRST_USE[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
