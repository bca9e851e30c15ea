"""What a program of a framework tells the runner, in a file, and how it dies when the runner wants it to."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterable

import torch
import torch.distributed as dist


def rank() -> int:
    return dist.get_rank() if dist.is_initialized() else int(os.environ.get("REPLICA", "0"))


def begin(step: int) -> None:
    """At the start of each step: the rank that VICTIM=RANK:STEP names kills itself."""
    if os.environ.get("VICTIM") == f"{rank()}:{step}":
        tell(killed_at=time.time())
        os.kill(os.getpid(), signal.SIGKILL)


def finish(losses: Iterable[float], parameters: Iterable[torch.Tensor], backend: str = "") -> None:
    """Losses over all ranks by step; of each parameter, two sums of all its elements.

    backend: of a group that is not the default group.
    """
    sums = []
    for parameter in parameters:
        values = parameter.detach().double().flatten()
        sums += [values.sum().item(), (values * torch.arange(1, len(values) + 1)).sum().item()]
    if dist.is_initialized():
        backend = dist.get_backend()
    tell(backend=backend, losses=[float(loss) for loss in losses], sums=sums)


def tell(**what: object) -> None:
    """In one write, since ranks share the file."""
    with open(os.environ.get("REPORT_FILE", "/dev/stdout"), "ab", buffering=0) as file:
        file.write(json.dumps({"rank": rank(), **what}).encode() + b"\n")
