"""Tests of what c10d offers beside collectives: errors, timeouts, timings, hooks, records, and groups that shrink.

Use: python tests/system/torch/face_test.py, with a Python that has torch and, by pip, sprat-torch.
"""

from __future__ import annotations

import datetime
import functools
import json
import os
import pathlib
import pickle
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from typing import Callable

import torch
import torch._C._distributed_c10d as native_c10d
import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d

from launch import Ranks, Report, Task

CPU = torch.device("cpu")
WATCHED = hasattr(c10d, "_FR_SELF_RECORDING_BACKENDS")  # PyTorch records every backend's calls by itself.


def backend_of(group: dist.ProcessGroup | None = None):
    return (group or dist.group.WORLD)._get_backend(CPU)


def seconds(count: float) -> datetime.timedelta:
    return datetime.timedelta(seconds=count)


def raised(call: Callable[[], object]) -> tuple[str, str]:
    """The exception's type and words, both empty if there is none."""
    try:
        call()
    except Exception as error:
        return type(error).__name__, str(error)
    return "", ""


# What ranks do: each returns what is compared on the other side.

def timeouts(rank: int, size: int) -> list[float]:
    group, backend = dist.group.WORLD, backend_of()

    def granted() -> float:
        work = dist.all_reduce(torch.ones(2), async_op=True)
        work.wait()
        return work.timeout.total_seconds()

    usual = [granted()]
    group.set_timeout(seconds(41))
    usual.append(granted())
    backend._set_default_timeout(seconds(42))
    usual.append(granted())
    c10d._set_pg_timeout(seconds(43), group)
    usual.append(granted())
    c10d._add_ephemeral_timeout_for_all_pgs(seconds(10))
    both = [dist.all_reduce(torch.ones(2), async_op=True) for _ in range(2)]
    usual += [work.timeout.total_seconds() for work in both]
    for work in both:
        work.wait()
    usual += [granted(), backend.options._timeout.total_seconds()]
    return usual


def timings(rank: int, size: int) -> tuple:
    group = dist.new_group()
    before = dist.all_reduce(torch.ones(4), group=group, async_op=True)
    before.wait()
    group._enable_collectives_timing()
    start = time.monotonic()
    if rank == 1:
        time.sleep(0.2)
    work = dist.all_reduce(torch.ones(4), group=group, async_op=True)
    other_way = raised(work._get_duration)
    work.wait()
    elapsed = 1000 * (time.monotonic() - start)
    duration = work._get_duration()
    time.sleep(0.05)
    return raised(before._get_duration), other_way if rank == 0 else ("RuntimeError", "not done"), duration, \
        elapsed, work._get_duration() == duration


def completion(rank: int, size: int) -> tuple:
    group = dist.new_group()
    seen, threads = [], set()

    def hook(info) -> None:
        seen.append((info.seq, str(info.op_type).split(".")[-1], info.active_duration >= datetime.timedelta(0)))
        threads.add(threading.get_ident())

    group._register_on_completion_hook(hook)
    twice = raised(lambda: group._register_on_completion_hook(hook))
    dist.all_reduce(torch.ones(4), group=group)
    dist.broadcast(torch.ones(4), 0, group=group, async_op=True)  # Nobody waits for it.
    dist.barrier(group)
    group._wait_for_pending_works()
    return group._has_hooks(), sorted(seen), threading.get_ident() in threads, twice[0]


def aborted(rank: int, size: int) -> tuple:
    backend, calls = backend_of(), []
    backend.register_abort_hook(7, lambda: calls.append(7))
    backend.register_abort_hook(3, lambda: calls.append(3))
    backend.register_abort_hook(9, lambda: calls.append(9))
    backend.unregister_abort_hook(9)
    unknown = raised(lambda: backend.unregister_abort_hook(9))
    well = backend.get_error()
    if rank == 0:
        work = dist.all_reduce(torch.ones(4), async_op=True)
        end = time.monotonic() + 20
        while not calls and time.monotonic() < end:
            time.sleep(0.01)  # Nobody waits for the work: the hook must come all the same.
        told = list(calls), str(backend.get_error()).split(".")[-1], raised(work.wait)[0]
        backend.abort()
        return told, list(calls), unknown[0], str(well).split(".")[-1]
    time.sleep(3)  # Rank 0 has 2 s.
    return (), list(calls), unknown[0], str(well).split(".")[-1]


def several(rank: int, size: int) -> list:
    group = dist.group.WORLD
    results = []
    for op, dtype in ((dist.ReduceOp.SUM, torch.float32), (dist.ReduceOp.AVG, torch.float64),
                      (dist.ReduceOp.PRODUCT, torch.int64), (dist.ReduceOp.MIN, torch.float32),
                      (dist.ReduceOp.MAX, torch.int32), (dist.ReduceOp.BXOR, torch.int32)):
        options = c10d.AllreduceOptions()
        options.reduceOp = op
        tensors = [torch.full((2, 3), 2 * rank + i + 1, dtype=dtype) for i in range(2)]
        future = group.allreduce(tensors, options).get_future()
        future.wait()
        results.append([sorted({float(x) for x in tensor.flatten()}) for tensor in future.value()])
    for root in range(size):
        for of in range(2):
            options = c10d.BroadcastOptions()
            options.rootRank, options.rootTensor = root, of
            tensors = [torch.tensor([10.0 * rank + i]) for i in range(2)]
            group.broadcast(tensors, options).wait()
            results.append([tensor.item() for tensor in tensors])
    inputs = [torch.tensor([10.0 * rank + i]) for i in range(2)]
    outputs = [[torch.tensor([-1.0]) for _ in range(2 * size)] for _ in range(2)]
    group.allgather(outputs, inputs).wait()
    results += [[tensor.item() for tensor in tensors] for tensors in outputs]
    return results


def bad_arguments(rank: int, size: int) -> dict[str, tuple[str, str]]:
    """By what is wrong; the group goes on after each, which the last call shows."""
    group = backend_of()  # PyTorch's dispatcher itself refuses lists of no tensors.
    one, double, longer = torch.zeros(1), torch.zeros(1, dtype=torch.float64), torch.zeros(2)

    def broadcast(tensors, root=0, of=0):
        options = c10d.BroadcastOptions()
        options.rootRank, options.rootTensor = root, of
        return lambda: group.broadcast(tensors, options)

    calls = {
        "invalid root rank": broadcast([one], root=size),
        "invalid root tensor": broadcast([one], of=1),
        "invalid root tensor ": broadcast([], of=0),
        "invalid tensor type": broadcast([one, double]),
        "invalid tensor size": broadcast([one, longer]),
        "requires non-empty tensor list": lambda: group.allreduce([], c10d.AllreduceOptions()),
        "invalid tensor type ": lambda: group.allreduce([one, double], c10d.AllreduceOptions()),
        "invalid tensor size ": lambda: group.allreduce([one, longer], c10d.AllreduceOptions()),
        "requires a single-element": lambda: group.reduce([one, one], c10d.ReduceOptions()),
        "Tensors must be contiguous": lambda: dist.all_to_all_single(
            torch.zeros(size, size), torch.zeros(size, size).t()),
        "has no splits and": lambda: dist.all_to_all_single(
            torch.zeros(size), torch.zeros(size + 1), [1] * size),
        "must not be negative": lambda: dist.send(one, (rank + 1) % size, tag=-1),
    }
    told = {words: raised(call) for words, call in calls.items()}
    total = torch.ones(1)
    dist.all_reduce(total)
    told["goes on"] = ("", str(total.item()))
    return told


def coalesced_refusals(rank: int, size: int) -> list[tuple[str, bool]]:
    """What is raised where the second of two is refused, and whether the first is then as it must be."""
    part, whole = torch.full((1000,), float(rank)), torch.full((1000 * size,), float(rank))
    buffer = torch.ones(1000 * (size + 1))

    def both(call: Callable, first: tuple, second: tuple) -> str:
        def coalesce() -> None:
            with c10d._coalescing_manager():
                call(*first)
                call(*second)

        return raised(coalesce)[0]

    def after(kind: str, result: torch.Tensor) -> tuple[str, bool]:
        dist.barrier()  # By then what was started all the same would have come.
        return kind, bool(result.isnan().all())

    gathered, reduced = torch.full((1000 * size,), torch.nan), torch.full((1000,), torch.nan)
    results = [
        after(both(dist.all_gather_into_tensor, (gathered, part), (torch.empty(1000 * size - 1), part)), gathered),
        after(both(dist.reduce_scatter_tensor, (reduced, whole), (torch.empty(999), whole)), reduced),
    ]
    # This one is refused when it is started: the first, which is under way, ends before the error comes.
    overlapping = buffer[:1000 * size], buffer[500:1500]
    kind = both(dist.all_gather_into_tensor, (gathered, part), overlapping)
    results.append((kind, torch.equal(gathered, torch.arange(float(size)).repeat_interleave(1000))))
    return results


def copies(rank: int, size: int) -> dict[str, int]:
    """Bytes of copies that are there while a program keeps the Work of a call that is over."""
    import sprat.torch

    holes = torch.ones(1000, 4)[:, ::2]
    calls = {
        "all_reduce": lambda: dist.all_reduce(holes, async_op=True),
        "broadcast": lambda: dist.broadcast(holes, 0, async_op=True),
        "all_gather": lambda: dist.all_gather([torch.empty(1000, 2) for _ in range(size)], holes, async_op=True),
        "reduce_scatter": lambda: dist.reduce_scatter(torch.empty(1000, 2), [holes] * size, async_op=True),
    }
    kept = {}
    for name, call in calls.items():
        work = call()
        work.wait()
        kept[name] = sprat.torch.memory_use()["used"]
        del work
    return kept


def profiled(rank: int, size: int) -> list[dict]:
    """Of each call: what the trace that Kineto writes says of it."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as profiler:
        dist.all_reduce(torch.ones(3, 4))
        dist.all_reduce(torch.ones(5, dtype=torch.float64), async_op=True).wait()
        dist.all_to_all_single(torch.empty(2 * size), torch.ones(2 * size), [2] * size, [2] * size)
        (dist.send if rank == 0 else dist.recv)(torch.ones(6), 1 - rank)
        dist.all_gather_into_tensor(torch.empty(size * 3), torch.ones(3))
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        profiler.export_chrome_trace(file.name)
        events = json.load(open(file.name))["traceEvents"]
    calls = [event["args"] for event in sorted(events, key=lambda event: event.get("ts", 0))
             if event.get("name") == "record_param_comms"]
    keys = ("Collective name", "In msg nelems", "Out msg nelems", "Group size", "dtype", "In split size",
            "Process Group Name", "Process Group Ranks")
    return [{key: call.get(key) for key in keys} for call in calls]


def recorded(rank: int, size: int) -> bytes:
    pair = dist.new_group([0, 1], group_desc="a pair")
    dist.all_reduce(torch.ones(3, 4))
    if rank < 2:
        dist.all_gather([torch.empty(5) for _ in range(2)], torch.ones(5), group=pair)
    dist.reduce_scatter_tensor(torch.empty(2), torch.ones(2 * size))
    work = dist.broadcast(torch.ones(7), 0, async_op=True)
    dist.barrier()
    work.wait()
    return native_c10d._dump_fr_trace(True, True, False)


def hangs(rank: int, size: int) -> tuple[str, bytes]:
    dist.all_reduce(torch.ones(3))
    if rank == 1:
        time.sleep(3)
        return "", native_c10d._dump_fr_trace(True, False, False)
    return raised(lambda: dist.all_reduce(torch.ones(3)))[0], b""


def shrunk(rank: int, size: int) -> tuple:
    """The default group loses its middle rank, then all but rank 0; groups beside it end."""
    dist.new_group([0, 2])
    total = torch.ones(1)
    dist.all_reduce(total)
    if rank == 1:
        return ()
    group = dist.shrink_group([1])
    first = dist.get_world_size(), dist.get_rank(), group is dist.group.WORLD
    dist.all_reduce(total)
    if dist.get_rank() == 1:
        return first, total.item()
    dist.shrink_group([1])
    alone = torch.full((1,), 5.0)
    dist.all_reduce(alone)
    return first, total.item(), dist.get_world_size(), alone.item()


def shrunk_after_failure(rank: int, size: int) -> tuple:
    """One does not come, the others' call fails, and they go on without it."""
    dist.all_reduce(torch.ones(1))
    if rank == 2:
        time.sleep(4)
        return ()
    told = raised(lambda: dist.all_reduce(torch.ones(1)))
    dist.shrink_group([2], shrink_flags=c10d.SHRINK_ABORT)
    total = torch.full((1,), rank + 1.0)
    dist.all_reduce(total)
    return told[0], dist.get_world_size(), total.item(), str(backend_of().get_error()).split(".")[-1]


def renewed(rank: int, size: int) -> tuple:
    """A group whose ranks have begun unlike operations is aborted and made anew, twice; what keeps it goes on, and others do."""
    group, other = dist.new_group([0, 2]), dist.new_group([0, 1, 2])
    told, totals = [], []
    store = dist.distributed_c10d._get_default_store()
    for turn in range(2 * (rank != 1)):
        backend = backend_of(group)
        left_behind = dist.all_reduce(torch.ones(1), group=group, async_op=True) if rank == 0 else None
        backend.abort()
        if left_behind:
            told.append(raised(left_behind.wait)[0])
        backend.renew()
        total = torch.full((3,), rank + 1.0)
        dist.all_reduce(total, group=group)
        totals.append(total.tolist())
        told.append(str(backend.get_error()).split(".")[-1])
        # An abort ends what is in flight on the other rank, though it is over on this one.
        store.set(f"turn {turn} of {rank}", "over")
        store.wait([f"turn {turn} of {2 - rank}"])
    everyones = torch.ones(1)
    dist.all_reduce(everyones, group=other)
    dist.all_reduce(everyones)
    return told, totals, everyones.item()


def grouped_unequally(rank: int, size: int) -> list[float]:
    """Sums in the groups that the package makes for itself, while rank 0 is in one group more than the others."""
    import sprat.torch
    from sprat.torch.smp import backends, state_dict_saver

    dist.new_group([0])
    states = [sprat.torch.BlockCompressState() for _ in range(2)]
    groups = [state.exchanges for state in states] + [state.replies for state in states]
    groups += [backends.new_group([1, 2]) for _ in range(2 * (rank > 0))]
    groups += [backends.new_group(list(range(size))), state_dict_saver._group_of_saves(dist.group.WORLD)]
    sums = [torch.full((1,), rank + 1.0) for _ in groups]
    for group, one in zip(groups, sums, strict=True):
        dist.all_reduce(one, group=group)
    return [one.item() for one in sums]


def traced(path: str, rank: int, size: int) -> tuple:
    """A span of the program's and a call; what was written, on rank 0."""
    import sprat.torch

    with sprat.torch.trace_span("forward"):
        dist.all_reduce(torch.ones(5))
    sprat.torch.write_trace()
    if rank > 0:
        return ()
    slices = [event for event in json.loads(pathlib.Path(path).read_text())["traceEvents"] if event["ph"] == "X"]
    return tuple(sorted((event["pid"], event["cat"], event["name"]) for event in slices
                        if event["name"] in ("forward", "all_reduce") and event["args"].get("bytes", 20) == 20))


def untraced(rank: int, size: int) -> tuple:
    """The same where nobody asked for it."""
    import sprat.torch

    with sprat.torch.trace_span("forward"):
        pass
    sprat.torch.write_trace("/no/such/folder/t.json")
    return ()


def frtrace(folder: str, *options: str) -> str:
    ended = subprocess.run([sys.executable, "-m", "torch.distributed.flight_recorder.fr_trace", folder, *options],
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=100)
    if ended.returncode:
        raise AssertionError(f"status {ended.returncode}: {ended.stdout}")
    return ended.stdout


class OnRanks(unittest.TestCase):
    def values(self, reports: list[Report], log: Callable[[], str]) -> list:
        errors = [f"rank {rank}: {report.error}" for rank, report in enumerate(reports) if report.error]
        self.assertFalse(errors, "\n".join([*errors, log()]))
        return [report.value for report in reports]

    def alone(self, task: Task, size: int = 2, timeout: float = 60, **environment: str) -> list:
        with Ranks("sprat", size, timeout=timeout, environment=environment) as ranks:
            return self.values(ranks.run(task, 60), lambda: ranks.tail(40))


class Face(OnRanks):
    """Tests on ranks that stay well share them; a test that ends a group has its own."""

    ranks: Ranks

    @classmethod
    def setUpClass(cls) -> None:
        cls.ranks = Ranks("sprat", 2)

    @classmethod
    def tearDownClass(cls) -> None:
        cls.ranks.kill()

    def each(self, task: Task) -> list:
        return self.values(self.ranks.run(task, 60), lambda: self.ranks.tail(40))

    def test_calls_get_the_groups_timeout_and_an_extension_ends_with_the_first(self) -> None:
        for value in self.each(timeouts):
            self.assertEqual(value, [60, 41, 42, 43, 53, 53, 43, 43])
        self.each(functools.partial(_set_timeout, 60))

    def test_timelines_have_calls_and_spans_of_all_ranks(self) -> None:
        self.each(untraced)
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/t.json"
            values = self.alone(functools.partial(traced, path), SPRAT_TRACE=path)
            self.assertEqual(values[0], ((0, "collectives", "all_reduce"), (0, "computes", "forward"),
                                         (1, "collectives", "all_reduce"), (1, "computes", "forward")))

    def test_works_of_a_timed_group_have_a_duration(self) -> None:
        values = self.each(timings)
        for untimed, running, duration, elapsed, again in values:
            self.assertEqual(untimed[0], "RuntimeError")
            self.assertIn("_enable_collectives_timing", untimed[1])
            self.assertEqual(running[0], "RuntimeError")
            self.assertIn("not done", running[1])
            self.assertGreater(duration, 0)
            self.assertLessEqual(duration, elapsed)
            self.assertTrue(again, "the duration changed after the end")
        self.assertGreaterEqual(values[0][2], 150, "rank 0 waited for rank 1 for 200 ms")

    def test_a_completion_hook_sees_every_operation_once_from_another_thread(self) -> None:
        for has, seen, own_thread, twice in self.each(completion):
            self.assertTrue(has)
            self.assertEqual(seen, [(1, "ALLREDUCE", True), (2, "BROADCAST", True), (3, "BARRIER", True)])
            self.assertFalse(own_thread)
            self.assertEqual(twice, "RuntimeError")

    def test_several_tensors_a_rank_are_one_call(self) -> None:
        for value in self.each(several):
            self.assertEqual(value[:6], [[[total]] * 2 for total in (10.0, 2.5, 24.0, 1.0, 4.0, 4.0)])
            self.assertEqual(value[6:10], [[0.0] * 2, [1.0] * 2, [10.0] * 2, [11.0] * 2])
            self.assertEqual(value[10:], [[0.0, 1.0, 10.0, 11.0]] * 2)

    def test_a_work_that_is_kept_keeps_no_copies(self) -> None:
        for kept in self.each(copies):
            self.assertEqual(kept, dict.fromkeys(kept, 0))

    def test_bad_arguments_raise_what_pytorch_raises_and_the_group_goes_on(self) -> None:
        for told in self.each(bad_arguments):
            self.assertEqual(told.pop("goes on"), ("", "2.0"))
            for words, (kind, text) in told.items():
                values = ("Tensors must be contiguous", "must not be negative")
                expected = "ValueError" if words in values else "RuntimeError"
                self.assertEqual(kind, expected, f"{words}: {text}")
                self.assertIn(words.strip(), text)

    def test_a_coalesced_call_that_is_refused_uses_no_tensor_afterwards(self) -> None:
        for results in self.each(coalesced_refusals):
            self.assertEqual(results, [("ValueError", True)] * 3)

    def test_kineto_sees_each_call_with_its_group_and_sizes(self) -> None:
        for rank, calls in enumerate(self.each(profiled)):
            names = ["allreduce", "allreduce", "all_to_allv", "send" if rank == 0 else "recv", "_allgather_base"]
            self.assertEqual([call["Collective name"] for call in calls], names)
            self.assertEqual([call["In msg nelems"] for call in calls], [12, 5, 4, 6, 3])
            self.assertEqual([call["Out msg nelems"] for call in calls], [12, 5, 4, 6, 6])
            self.assertEqual(calls[0]["dtype"], "Float")
            self.assertEqual(calls[1]["dtype"], "Double")
            self.assertEqual(calls[2]["In split size"], "[2, 2]")
            for call in calls:
                self.assertEqual(call["Group size"], 2)
                self.assertEqual(call["Process Group Ranks"], "[0, 1]")

    def test_abort_hooks_are_called_when_a_call_fails_though_nobody_waits(self) -> None:
        values = self.alone(aborted, timeout=2)
        self.assertEqual(values[0], (([3, 7], "TIMEOUT", "DistBackendError"), [3, 7], "RuntimeError", "SUCCESS"))
        self.assertEqual(values[1][2:], ("RuntimeError", "SUCCESS"))

    def test_a_group_is_made_anew_in_place(self) -> None:
        values = self.alone(renewed, 3)
        self.assertEqual(values[0], (["DistBackendError", "SUCCESS"] * 2, [[4.0] * 3] * 2, 9.0))
        self.assertEqual(values[2], (["SUCCESS"] * 2, [[4.0] * 3] * 2, 9.0))
        self.assertEqual(values[1], ([], [], 9.0))

    def test_the_packages_own_groups_are_made_where_ranks_are_in_unequal_numbers_of_groups(self) -> None:
        values = self.alone(grouped_unequally, 3, timeout=20)
        self.assertEqual(values, [[6.0] * 6] + [[6.0] * 4 + [5.0] * 2 + [6.0] * 2] * 2)

    def test_the_default_group_shrinks_and_shrinks_again(self) -> None:
        values = self.alone(shrunk, 3)
        self.assertEqual(values[0], ((2, 0, True), 6.0, 1, 5.0))
        self.assertEqual(values[2], ((2, 1, True), 6.0))

    def test_a_group_shrinks_after_a_rank_did_not_come(self) -> None:
        values = self.alone(shrunk_after_failure, 3, timeout=2)
        self.assertEqual(values[:2], [("DistBackendError", 2, 3.0, "SUCCESS")] * 2)


def _set_timeout(count: float, rank: int, size: int) -> None:
    dist.group.WORLD.set_timeout(seconds(count))


@unittest.skipIf(WATCHED, "this PyTorch records every backend's calls by itself")
class Records(OnRanks):
    def test_torchfrtrace_reads_a_run(self) -> None:
        dumps = self.alone(recorded, 3)
        names = {"nccl:all_reduce", "nccl:all_gather", "nccl:_reduce_scatter_base", "nccl:broadcast",
                 "nccl:all_reduce_barrier"}
        with tempfile.TemporaryDirectory() as folder:
            for rank, dump in enumerate(dumps):
                (pathlib.Path(folder) / f"run_{rank}").write_bytes(dump)
                entries = [entry for entry in pickle.loads(dump)["entries"] if entry["profiling_name"].startswith("nccl:")]
                self.assertEqual({entry["state"] for entry in entries}, {"completed"})
                self.assertEqual({entry["profiling_name"] for entry in entries},
                                 names if rank < 2 else names - {"nccl:all_gather"})
                self.assertEqual(len({entry["record_id"] for entry in entries}), len(entries))
            frtrace(folder, "-o", f"{folder}/database")
            _, database = pickle.loads(pathlib.Path(f"{folder}/database").read_bytes())
        self.assertEqual({one.desc: one.size for one in database.groups}, {"default_pg": 3, "a pair": 2})
        self.assertEqual(len(database.collectives), 5)
        self.assertTrue(all(one.pass_check for one in database.collectives))

    def test_torchfrtrace_names_the_rank_that_did_not_come(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            values = self.alone(hangs, 3, timeout=1, TORCH_FR_DUMP_TEMP_FILE=f"{folder}/run_", TORCH_FR_BUFFER_SIZE="16")
            self.assertEqual([kind for kind, _ in values], ["DistBackendError", "", "DistBackendError"])
            files = sorted(file.name for file in pathlib.Path(folder).iterdir())
            self.assertEqual(files, ["run_0", "run_2"])
            (pathlib.Path(folder) / "run_1").write_bytes(values[1][1])
            entry = pickle.loads((pathlib.Path(folder) / "run_0").read_bytes())["entries"][-1]
            self.assertEqual((entry["state"], entry["retired"], entry["timeout_ms"]), ("started", True, 1000))
            self.assertIn("hangs", {frame["name"] for frame in entry["frames"]})
            said = frtrace(folder)
            self.assertIn("missing ranks: {1}", said)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    unittest.main()
