"""Starts the ranks of a job on this host, waits for them, and ends all if one fails.

They find what torchrun's workers find in their environment, so that frameworks which ask for
torchrun take this for it. The rendezvous' store lies here: its port is free when ranks begin.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
import time
from typing import NamedTuple

import torch.distributed as dist

# After a rank has failed the others may say by themselves what they saw of it, for this long.
GRACE_SECONDS = 10.0
# Between being asked to end and being killed.
END_SECONDS = 5.0


class Failure(NamedTuple):
    rank: int
    status: int  # of subprocess: below zero a signal's number

    def __str__(self) -> str:
        if self.status < 0:
            return f"rank {self.rank} was killed by {_name_of(-self.status)}"
        return f"rank {self.rank} ended with status {self.status}"


def _name_of(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # one of the real-time signals, most of which have no name
        return f"signal {number}"


def run_ranks(count: int, command: list[str]) -> int:
    """The exit status as a shell has it: 0, or that of the rank that failed first.

    The ranks write where this process writes. A signal that ends this process ends them.
    """
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    for ending in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(ending) is not signal.SIG_IGN:  # as nohup wants it
            signal.signal(ending, lambda number, _: sys.exit(128 + number))
    ranks: list[subprocess.Popen] = []
    try:
        for rank in range(count):
            environment = os.environ | _environment(rank, count, store.port)
            ranks.append(subprocess.Popen(command, env=environment))
        failure = _wait(ranks)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    finally:
        _end(ranks)
    if failure is None:
        return 0
    print(f"sprat.torch.run: {failure}, and with it the job of {count}", file=sys.stderr)
    return 128 - failure.status if failure.status < 0 else failure.status


def _environment(rank: int, count: int, port: int) -> dict[str, str]:
    threads = max(1, len(os.sched_getaffinity(0)) // count)
    return {
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(threads)),
        "RANK": str(rank), "LOCAL_RANK": str(rank), "GROUP_RANK": "0", "ROLE_RANK": str(rank),
        "WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count), "GROUP_WORLD_SIZE": "1",
        "ROLE_WORLD_SIZE": str(count), "ROLE_NAME": "default",
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
        "TORCHELASTIC_RUN_ID": f"sprat.torch.run.{os.getpid()}",
        "TORCHELASTIC_RESTART_COUNT": "0", "TORCHELASTIC_MAX_RESTARTS": "0",
        "TORCHELASTIC_USE_AGENT_STORE": "True",
    }


def _wait(ranks: list[subprocess.Popen]) -> Failure | None:
    """Until all have ended, or the grace after the first failure has."""
    first, deadline = None, None
    with selectors.DefaultSelector() as running:
        for rank, process in enumerate(ranks):
            running.register(os.pidfd_open(process.pid), selectors.EVENT_READ, rank)
        while running.get_map():
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            ended = running.select(left)
            if not ended:
                break
            for key, _ in ended:
                running.unregister(key.fd)
                os.close(key.fd)
            statuses = [Failure(key.data, ranks[key.data].wait()) for key, _ in ended]
            failed = [one for one in statuses if one.status != 0]
            if failed and first is None:
                # Seen at once, a rank that was killed comes before those that complain of it.
                first = min(failed, key=lambda one: (one.status > 0, one.rank))
                deadline = time.monotonic() + GRACE_SECONDS
        for key in list(running.get_map().values()):
            os.close(key.fd)
    return first


def _end(ranks: list[subprocess.Popen]) -> None:
    # It takes some seconds at most, and whoever is impatient in them must not leave ranks behind.
    for ending in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, signal.SIG_IGN)
    for process in ranks:
        if process.poll() is None:
            process.terminate()
    deadline = time.monotonic() + END_SECONDS
    for process in ranks:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
