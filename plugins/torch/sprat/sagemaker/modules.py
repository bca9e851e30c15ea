"""SMP v2's helpers for modules, and for the time that a block of a script takes."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator

import torch
from torch import nn


def empty_module_params(module: nn.Module, device: torch.device | None = None,
                        recurse: bool = False) -> nn.Module:
    """Gives its parameters memory without values; with recurse also those of modules in it."""
    with torch.no_grad():
        for one in module.parameters(recurse=recurse):
            made = nn.Parameter(torch.empty_like(one, device=device), one.requires_grad)
            made.__dict__.update(one.__dict__)
            torch.utils.swap_tensors(one, made)  # for modules that share it
    return module


def move_buffers_to_device(module: nn.Module, device: torch.device,
                           recurse: bool = False) -> nn.Module:
    """Its buffers; with recurse also those of modules in it."""
    for holder in module.modules() if recurse else (module,):
        for name, buffer in list(holder.named_buffers(recurse=False)):
            holder._buffers[name] = buffer.to(device)
    return module


@contextlib.contextmanager
def timeit(enabled: bool = True, message: str = "", rank: int = 0) -> Iterator[None]:
    """Logs on rank 0 how many seconds the block took."""
    begin = time.perf_counter()
    yield
    if enabled and rank == 0:
        logging.getLogger("sprat.sagemaker").info("%s: %.3f s", message,
                                                  time.perf_counter() - begin)
