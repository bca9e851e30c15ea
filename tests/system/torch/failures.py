"""What ranks are told when one is lost, late or calls something else, and what must change nothing."""

from __future__ import annotations

import datetime
import functools
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path
from typing import Callable, NamedTuple

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

from launch import Ranks, Report
from ports import reserved_port

NOTICE_SECONDS = 5.0  # After a death every other rank has raised.
_killed_at = multiprocessing.get_context("fork").Value("d", 0.0)  # Seconds of the monotonic clock, of all ranks.


class Told(NamedTuple):
    """The error that a rank got."""

    kind: str
    text: str
    at: float  # Of the monotonic clock.


class Check(NamedTuple):
    """One failure; `run(backend)` raises AssertionError if ranks are told something wrong."""

    name: str
    run: Callable[[str], None]


CHECKS: list[Check] = []


def check(name: str):
    def register(function: Callable[[str], None]) -> Callable[[str], None]:
        CHECKS.append(Check(name, function))
        return function

    return register


def _told(call: Callable[[], object]) -> Told:
    try:
        call()
    except Exception as error:
        return Told(type(error).__name__, str(error), time.monotonic())
    return Told("", "nothing was raised", time.monotonic())


def _all_told(backend: str, size: int, task, timeout: float = 60, deadline: float = 60) -> list[Report]:
    ranks = Ranks(backend, size, timeout)
    try:
        return ranks.run(task, deadline, grace=30)
    finally:
        ranks.kill()


def _require_errors(reports: list[Report], names: Callable[[int], list[str]], but: tuple[int, ...] = ()) -> None:
    """Every rank (but some) got a DistBackendError whose message holds all of names(rank)."""
    for rank, report in enumerate(reports):
        if rank in but:
            continue
        assert not report.error, f"rank {rank}: {report.error}"
        told = report.value
        assert told.kind == "DistBackendError", f"rank {rank} got {told.kind or 'no error'}: {told.text}"
        for name in names(rank):
            assert name in told.text, f"rank {rank} is not told {name!r}: {told.text}"


def _train_until_killed(victim: int, rank: int, size: int) -> Told:
    """FSDP2 steps; the victim kills itself in the third forward pass, between two gathers."""
    from torch.distributed.fsdp import fully_shard

    model = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(6)))
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    steps = 0

    def die(*_) -> None:
        if rank == victim and steps == 2:
            _killed_at.value = time.monotonic()
            os.kill(os.getpid(), signal.SIGKILL)

    model[3].register_forward_hook(die)

    def train() -> None:
        nonlocal steps
        for steps in range(100):
            model(torch.ones(2, 64)).sum().backward()

    return _told(train)


def _killed(backend: str, victim: int, size: int) -> None:
    reports = _all_told(backend, size, functools.partial(_train_until_killed, victim))
    _require_errors(reports, lambda rank: [f"rank {victim}"], but=(victim,))
    for rank, report in enumerate(reports):
        if rank != victim:
            late = report.value.at - _killed_at.value
            assert late <= NOTICE_SECONDS, f"rank {rank} noticed after {late:.1f} s"


@check("SIGKILL of the last rank in an FSDP2 step: every other raises, naming it, within 5 s")
def killed_last(backend: str) -> None:
    _killed(backend, 3, 4)


@check("SIGKILL of rank 0, which holds the store")
def killed_first(backend: str) -> None:
    _killed(backend, 0, 4)


def _broadcast_and_meet(tensor: torch.Tensor, root: int) -> None:
    """A root needs nothing of the others: it is told in the next call that needs them all."""
    dist.broadcast(tensor, root)
    dist.barrier()


def _of_shape(call: str, rank: int, size: int) -> Told:
    count = 12 if rank == 0 else 24
    calls = {
        "all_reduce": lambda: dist.all_reduce(torch.ones(count)),
        "broadcast": lambda: _broadcast_and_meet(torch.ones(count), 0),
        "all_gather_into_tensor": lambda: dist.all_gather_into_tensor(torch.ones(count * size), torch.ones(count)),
        "reduce_scatter_tensor": lambda: dist.reduce_scatter_tensor(torch.ones(count), torch.ones(count * size)),
        "all_to_all_single": lambda: dist.all_to_all_single(torch.ones(count * size), torch.ones(count * size)),
    }
    return _told(calls[call])


@check("shapes that differ: every rank raises, with both")
def shapes(backend: str) -> None:
    for call in ("all_reduce", "broadcast", "all_gather_into_tensor", "reduce_scatter_tensor", "all_to_all_single"):
        reports = _all_told(backend, 2, functools.partial(_of_shape, call), timeout=10)
        _require_errors(reports, lambda rank: [call.split("_tensor")[0].split("_into")[0].split("_single")[0],
                                               "12", "24"])


def _of_type(rank: int, size: int) -> Told:
    return _told(lambda: dist.all_reduce(torch.ones(10, dtype=torch.float32 if rank else torch.float64)))


def _of_operation(rank: int, size: int) -> Told:
    return _told(lambda: dist.all_reduce(torch.ones(10), dist.ReduceOp.MAX if rank else dist.ReduceOp.SUM))


def _of_call(rank: int, size: int) -> Told:
    tensor = torch.ones(10)
    return _told(lambda: dist.broadcast(tensor, 0) if rank else dist.all_reduce(tensor))


def _barrier_or_sum(rank: int, size: int) -> Told:
    return _told(lambda: dist.barrier() if rank else dist.all_reduce(torch.ones(10)))


def _of_root(rank: int, size: int) -> Told:
    return _told(lambda: _broadcast_and_meet(torch.ones(10), rank))


@check("types, operations, roots or calls that differ: every rank raises, with both")
def disagreements(backend: str) -> None:
    for task, names in ((_of_type, ["f32", "f64"]), (_of_operation, ["sum", "max"]),
                        (_of_call, ["all_reduce", "broadcast"]), (_of_root, ["broadcast"])):
        _require_errors(_all_told(backend, 2, task, timeout=10), lambda rank: names)
    reports = _all_told(backend, 2, _barrier_or_sum, timeout=10)
    _require_errors(reports, lambda rank: ["rank 0 of the group: all_reduce of [10] float32",
                                           "rank 1 of the group: barrier"])
    for report in reports:
        assert "barrier of" not in report.value.text, f"of nothing: {report.value.text}"


def _without_rank_1(rank: int, size: int) -> Told:
    if rank == 1:
        time.sleep(8)
        return Told("", "late", 0)
    return _told(lambda: dist.all_reduce(torch.ones(10)))


@check("a timeout names the late rank")
def timeout(backend: str) -> None:
    reports = _all_told(backend, 3, _without_rank_1, timeout=4)
    _require_errors(reports, lambda rank: ["rank 1", "4 s"], but=(1,))


def _without_rank_1_by_pg_timeout(rank: int, size: int) -> Told:
    dist.distributed_c10d._set_pg_timeout(datetime.timedelta(seconds=2), dist.group.WORLD)
    return _without_rank_1(rank, size)


@check("a timeout set by _set_pg_timeout holds")
def pg_timeout(backend: str) -> None:
    reports = _all_told(backend, 2, _without_rank_1_by_pg_timeout, timeout=50)
    _require_errors(reports, lambda rank: ["rank 1", "2 s"], but=(1,))


def _work_times_out(rank: int, size: int) -> Told:
    """wait(timeout) of one Work, though the group's is long."""
    if rank == 1:
        time.sleep(4)
        return Told("", "late", 0)
    work = dist.all_reduce(torch.ones(10), async_op=True)
    return _told(lambda: work.wait(datetime.timedelta(seconds=1)))


@check("Work.wait(timeout) ends, though the group's timeout is longer")
def work_timeout(backend: str) -> None:
    reports = _all_told(backend, 2, _work_times_out)
    _require_errors(reports, lambda rank: [], but=(1,))
    assert "1000 ms" in reports[0].value.text, reports[0].value.text


class Numbers(Dataset):
    """Items that worker processes compute."""

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((16,), float(index)).sin()


def _losses(workers: int, rank: int, size: int) -> list[float]:
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(1)
    model = fully_shard(torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1)))
    optimizer = torch.optim.AdamW(model.parameters())
    losses = []
    for _ in range(2):
        for items in DataLoader(Numbers(), batch_size=8, num_workers=workers):
            loss = model(items * (rank + 1)).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
    return losses


def _barrier(rank: int, size: int) -> None:
    dist.barrier()


@check("a DataLoader with worker processes changes no bit of the losses")
def data_loader(backend: str) -> None:
    ranks = Ranks(backend, 2)
    try:
        runs = [ranks.run(functools.partial(_losses, workers), 90) for workers in (0, 2)]
        for rank in range(2):
            for run in runs:
                assert not run[rank].error, f"rank {rank}: {run[rank].error}"
            assert runs[0][rank].value == runs[1][rank].value, f"rank {rank} has other losses beside the workers"
        for report in ranks.run(_barrier, 30):
            assert not report.error, report.error
        codes = ranks.leave()
        assert codes == [0, 0], f"the ranks ended with {codes}"
    finally:
        ranks.kill()


SCRIPT = """
    import os, sys, torch, torch.distributed as dist
    backend = sys.argv[1]
    if "sprat" in backend:
        import sprat.torch
    dist.init_process_group(backend)
    other = dist.new_group()
    tensor = torch.ones(1000)
    dist.all_reduce(tensor, group=other)
    work = dist.all_reduce(tensor, async_op=True)
    {end}
"""


def _scripts(backend: str, end: str = "", script: str = SCRIPT) -> list[tuple[int, str]]:
    """Two processes of their own run the script; their exit statuses and what they wrote."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "script.py")
        with open(path, "w") as file:
            file.write(textwrap.dedent(script).replace("{end}", end))
        port = str(reserved_port())
        processes = []
        for rank in range(2):
            environment = dict(os.environ, RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=port,
                               OMP_NUM_THREADS="1")
            processes.append(subprocess.Popen([sys.executable, path, backend], env=environment, text=True,
                                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT))
        results = []
        for rank, process in enumerate(processes):
            try:
                output, _ = process.communicate(timeout=60)
            except subprocess.TimeoutExpired:
                for other in processes:
                    other.kill()
                raise AssertionError(f"rank {rank} did not end within 60 s") from None
            results.append((process.returncode, output))
        return results


@check("a group that is not destroyed at exit: status 0, no hang, no crash")
def not_destroyed(backend: str) -> None:
    for code, output in _scripts(backend, "work.wait()"):
        assert code == 0 and "Traceback" not in output and "Fatal" not in output, f"status {code}: {output[-300:]}"


@check("an operation in flight at exit, and nobody waits for it")
def in_flight(backend: str) -> None:
    for code, output in _scripts(backend, "pass"):
        assert code == 0 and "Fatal" not in output, f"status {code}: {output[-300:]}"


@check("a rank that ends by an exception: the other is told its rank")
def exception(backend: str) -> None:
    end = "work.wait(); (1 / 0 if dist.get_rank() == 1 else dist.barrier())"
    (code, output), (other, _) = _scripts(backend, end)
    assert code != 0 and other != 0, f"statuses {code} and {other}"
    assert "rank 1" in output and "DistBackendError" in output, output[-300:]


LATE = """
    import os, sys, time, torch.distributed as dist
    backend = sys.argv[1]
    if "sprat" in backend:
        import sprat.torch
    rank = int(os.environ["RANK"])
    store = dist.TCPStore("127.0.0.1", int(os.environ["MASTER_PORT"]), 2, rank == 0, wait_for_workers=False)
    if rank == 0:
        store.wait(["waiting"])
        time.sleep(2.5)  # Rank 0 is late, which nothing else can be waited for to show.
    else:
        store.set("waiting", "")
    dist.init_process_group(backend, store=store, rank=rank, world_size=2)
    dist.barrier()
    dist.destroy_process_group()
"""


@check("while rank 0 is late the others are quiet")
def late_rank_0(backend: str) -> None:
    for code, output in _scripts(backend, script=LATE):
        assert code == 0, f"status {code}: {output[-300:]}"
        assert "timed out" not in output, f"{output.count('timed out')} lines: {output[:300]}"


AFTERWARDS = """
    import os, socket, sys, torch, torch.distributed as dist
    backend = sys.argv[1]
    if "sprat" in backend:
        import sprat.torch
    dist.init_process_group(backend)
    tensor = torch.ones(10)
    work = dist.all_reduce(tensor, async_op=True)
    work.wait()
    dist.new_group()
    dist.barrier()
    dist.destroy_process_group()
    if os.environ["RANK"] == "0":
        with socket.socket() as door:
            assert door.connect_ex(("127.0.0.1", int(os.environ["MASTER_PORT"]))) != 0, "the store's port is open"
    child = os.fork()
    if child == 0:
        store = dist.HashStore()
        dist.init_process_group(backend, store=store, rank=0, world_size=1)
        dist.all_reduce(tensor)
        dist.destroy_process_group()
        sys.exit(0)
    _, status = os.waitpid(child, 0)
    assert status == 0, f"the child ended with {status}"
"""


@check("destroy_process_group closes the store, though a Work is kept; a child of fork() may start afresh")
def destroyed(backend: str) -> None:
    for code, output in _scripts(backend, script=AFTERWARDS):
        assert code == 0, f"status {code}: {output[-300:]}"


FORKED = """
    import os, sys, torch
    from torch import empty
    if "sprat" in sys.argv[1]:
        from sprat.torch import empty
    used, freed = empty(8).fill_(2), empty(8)
    del freed
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.read(read, 1)
        del used
        mine = [empty(8).fill_(1) for _ in range(2)]
        os._exit(0)
    after = empty(8).fill_(2)
    os.write(write, b"!")
    _, status = os.waitpid(child, 0)
    assert status == 0, f"the child ended with {status}"
    for mine in (used, after):
        assert (mine == 2).all(), f"the child wrote into what its parent has: {mine}"
"""


@check("a child of fork() and its parent take memory of their own")
def forked(backend: str) -> None:
    for code, output in _scripts(backend, script=FORKED):
        assert code == 0, f"status {code}: {output[-300:]}"


@check("nothing is left in /dev/shm")
def shared_memory(backend: str) -> None:
    before = set(os.listdir("/dev/shm"))
    ranks = Ranks(backend, 2)
    ranks.run(_use_memory, 60)
    ranks.kill()
    end = time.monotonic() + 10
    while (left := set(os.listdir("/dev/shm")) - before - _mapped()) and time.monotonic() < end:
        time.sleep(0.2)  # Other programs' files come and go.
    assert not left, f"left: {sorted(left)}"


def _mapped() -> set[str]:
    """The names in /dev/shm of what living processes use, such as jobs beside this one."""
    names = set()
    for maps in Path("/proc").glob("[0-9]*/maps"):
        try:
            lines = maps.read_text().splitlines()
        except OSError:
            continue  # It has ended.
        names |= {Path(line.split()[5]).name for line in lines if " /dev/shm/" in line and not line.endswith("(deleted)")}
    return names


def _use_memory(rank: int, size: int) -> None:
    dist.all_reduce(torch.ones(1 << 20))
    if "sprat" in dist.get_backend():
        import sprat.torch

        dist.all_reduce(sprat.torch.empty(1 << 20).fill_(1))


def run(backend: str, only: list[str] | None = None) -> list[tuple[str, str]]:
    """Each check and what is wrong with it, empty if nothing is."""
    results = []
    for item in CHECKS:
        if only and not any(word.lower() in item.name.lower() for word in only):
            continue
        start = time.monotonic()
        try:
            item.run(backend)
            error = ""
        except (AssertionError, RuntimeError) as problem:
            error = " ".join(str(problem).split())
        results.append((item.name, error))
        verdict = f"FAILED {error[:400]}" if error else "ok"
        print(f"{backend} {time.monotonic() - start:5.1f} s  {item.name}: {verdict}", file=sys.stderr, flush=True)
    return results
