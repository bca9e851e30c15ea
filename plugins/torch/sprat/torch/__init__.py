"""Sprat under PyTorch: ``import sprat.torch; torch.distributed.init_process_group("sprat")``."""

from __future__ import annotations

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
from sprat.torch.overlap import overlap  # noqa: E402
from sprat.torch.smp import (  # noqa: E402
    init,
    scaled_learning_rate,
    scaled_learning_rate_scheduler,
    shard,
    state,
)

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
    "state",
    "trace_span",
    "write_trace",
]
__version__ = _native.version()

register()
