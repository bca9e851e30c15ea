#!/usr/bin/env python3
"""Kills rank 1 of 4 in an all_reduce, on gloo and on sprat, and keeps what rank 0 is told: docs/pictures/errors.py

Run it with a Python that has torch and sprat.torch. It writes errors.json, which draw reads.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import sys
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

RANKS = 4
TIMEOUT = timedelta(seconds=60)


def rank_of(rank: int, backend: str, port: int, told: "mp.Queue[tuple[int, str]]") -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group(backend, rank=rank, world_size=RANKS, timeout=TIMEOUT)
    tensor = torch.ones(1 << 20)
    dist.all_reduce(tensor)
    dist.barrier()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        for _ in range(1000):
            dist.all_reduce(tensor)
        told.put((rank, "nothing"))
    except Exception as error:  # whatever a backend throws
        told.put((rank, f"{type(error).__name__}: {error}"))
    # Exits by itself, so that no process group waits for the dead.
    told.close()
    told.join_thread()
    os._exit(0)


def ask(backend: str) -> str:
    """What rank 0 is told."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    told: mp.Queue = mp.get_context("spawn").Queue()
    processes = [mp.get_context("spawn").Process(target=rank_of, args=(rank, backend, port, told)) for rank in range(RANKS)]
    for process in processes:
        process.start()
    answers = dict(told.get(timeout=90) for _ in range(RANKS - 1))
    for process in processes:
        process.join(20)
    return re.sub(r"\s+", " ", answers[0].split("\nException raised from")[0]).strip()


def main() -> None:
    import sprat.torch  # noqa: F401  its name among backends

    seen = {"torch": torch.__version__.split("+")[0]}
    for backend in ("gloo", "sprat"):
        seen[backend] = ask(backend)
        print(backend, seen[backend])
    Path(__file__).with_name("errors.json").write_text(json.dumps(seen, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
