"""Forks the ranks of a group and drives them through tasks, each with a deadline."""

from __future__ import annotations

import datetime
import multiprocessing
import multiprocessing.connection
import os
import signal
import sys
import tempfile
import time
import traceback
from typing import Callable, NamedTuple

import torch
import torch.distributed as dist

# Ranks inherit torch from this process, which must not have started a thread: no computation before fork.
_FORK = multiprocessing.get_context("fork")

Task = Callable[[int, int], object]


class Report(NamedTuple):
    """What one rank says of one task."""

    error: str  # Empty if it succeeded.
    value: object  # What the task returned.
    seconds: float


def use_backend(name: str) -> None:
    """Imports what registers the backend; torch knows its own."""
    if "sprat" in name:
        import sprat.torch  # noqa: F401


def have_backend(name: str) -> bool:
    """Whether this Python can run the backend."""
    try:
        use_backend(name)
    except ImportError:
        return False
    return True


class Ranks:
    """Processes that have joined one group, and that run one task after another."""

    def __init__(self, backend: str, size: int, timeout: float = 60,
                 environment: dict[str, str] | None = None):
        self.backend, self.size = backend, size
        self.environment = environment or {}
        self.timeout = datetime.timedelta(seconds=timeout)
        self.log = tempfile.NamedTemporaryFile("w+", prefix="ranks.", suffix=".log")
        self.pipes, self.processes = [], []
        for rank in range(size):
            ours, theirs = _FORK.Pipe()
            process = _FORK.Process(target=self._serve, args=(rank, theirs))
            process.start()
            theirs.close()
            self.pipes.append(ours)
            self.processes.append(process)
        self._introduce()

    def run(self, task: Task, deadline: float, grace: float = 10) -> list[Report]:
        """What each rank says. Once a rank has failed, the others have `grace` seconds to notice."""
        for pipe in self.pipes:
            pipe.send(task)
        return self._collect(deadline, grace)

    def wait_ends(self, seconds: float) -> list[int | None]:
        """Exit codes, None of a process that did not end in time."""
        end = time.monotonic() + seconds
        for process in self.processes:
            process.join(max(0, end - time.monotonic()))
        return [process.exitcode for process in self.processes]

    def leave(self) -> list[int | None]:
        """Asks each rank to destroy its groups and to exit."""
        for pipe in self.pipes:
            try:
                pipe.send(None)
            except OSError:
                pass
        codes = self.wait_ends(30)
        self.kill()
        return codes

    def __enter__(self) -> Ranks:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def kill(self) -> None:
        for process in self.processes:
            if process.is_alive():
                process.kill()
            process.join()

    def tail(self, lines: int = 8) -> str:
        """The end of what the ranks have written."""
        with open(self.log.name, errors="replace") as log:
            return "".join(log.readlines()[-lines:])

    def _introduce(self) -> None:
        """Rank 0 opens the store and says its port, which the others are told."""
        port = self.pipes[0].recv()
        for pipe in self.pipes[1:]:
            pipe.send(port)
        for rank, report in enumerate(self._collect(60, 10)):
            if report.error:
                self.kill()
                raise RuntimeError(f"rank {rank} did not join: {report.error}\n{self.tail()}")

    def _collect(self, deadline: float, grace: float) -> list[Report]:
        start = time.monotonic()
        end = start + deadline
        reports: dict[int, Report] = {}
        while len(reports) < self.size:
            waiting = {self.pipes[r]: r for r in range(self.size) if r not in reports}
            ready = multiprocessing.connection.wait(list(waiting), max(0, end - time.monotonic()))
            for pipe in ready:
                rank = waiting[pipe]
                reports[rank] = self._receive(rank)
                if reports[rank].error:
                    end = min(end, time.monotonic() + grace)
            if not ready:
                break
        seconds = time.monotonic() - start
        failed = any(report.error for report in reports.values())
        late = "hung after another rank had failed" if failed else f"hung for {deadline:.0f} s"
        return [reports.get(rank, Report(late, None, seconds)) for rank in range(self.size)]

    def _receive(self, rank: int) -> Report:
        try:
            return self.pipes[rank].recv()
        except (EOFError, ConnectionError):
            self.processes[rank].join()
            code = self.processes[rank].exitcode
            name = signal.Signals(-code).name if code and code < 0 else f"status {code}"
            return Report(f"the process ended with {name}", None, 0)

    def _serve(self, rank: int, pipe: multiprocessing.connection.Connection) -> None:
        """The life of a rank."""
        os.dup2(self.log.fileno(), 1)
        os.dup2(self.log.fileno(), 2)
        os.environ.update(self.environment, RANK=str(rank), WORLD_SIZE=str(self.size),
                          LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(self.size))
        torch.set_num_threads(1)
        store = self._store(rank, pipe)
        use_backend(self.backend)
        dist.init_process_group(self.backend, store=store, rank=rank, world_size=self.size,
                                timeout=self.timeout)
        pipe.send(Report("", None, 0))
        while (task := pipe.recv()) is not None:
            pipe.send(_attempt(task, rank, self.size))
        dist.destroy_process_group()
        sys.stdout.flush()
        sys.stderr.flush()

    def _store(self, rank: int, pipe: multiprocessing.connection.Connection) -> dist.Store:
        if rank == 0:
            store = dist.TCPStore("127.0.0.1", 0, self.size, True, self.timeout, False)
            pipe.send(store.port)
            return store
        return dist.TCPStore("127.0.0.1", pipe.recv(), self.size, False, self.timeout)


def values_of(size: int, task: Task, timeout: float = 30, deadline: float = 100) -> list:
    """What each rank of a new group on sprat returns; AssertionError with their output if one fails."""
    with Ranks("sprat", size, timeout=timeout) as ranks:
        reports = ranks.run(task, deadline)
        errors = [f"rank {rank}: {one.error}" for rank, one in enumerate(reports) if one.error]
        if errors:
            raise AssertionError("\n".join([*errors, ranks.tail(40)]))
        return [report.value for report in reports]


def _attempt(task: Task, rank: int, size: int) -> Report:
    start = time.monotonic()
    torch.manual_seed(rank)
    try:
        value = task(rank, size)
    except Exception as error:
        traceback.print_exc()
        sys.stderr.flush()
        return Report(f"{type(error).__name__}: {error}", None, time.monotonic() - start)
    return Report("", value, time.monotonic() - start)
