#!/usr/bin/env python3
"""PyTorch's own tests of process groups on a GPU, with all ranks on device 0.

  tests/gpu/pytorch_tests.py [--device cuda] [--ranks 2] [--only WORD,WORD] [--seconds 140]

They are those of torch.testing._internal.distributed.distributed_test, which want a GPU for each rank: they are told of as many as
there are ranks, and whichever they name is the first. Ranks are processes that take one test after another, so that CUDA starts
once; one that hangs, or leaves a rank that is gone, costs a start. A test that the machine cannot run says so and is no failure;
what is known to fail is in tests/system/torch/pytorch_known.py. The status is 0 if no other test failed, 77 without a GPU.
--device cpu runs those that need none: a rehearsal of this program.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import datetime
import importlib.util
import multiprocessing
import multiprocessing.connection
import os
import pathlib
import re
import sys
import tempfile
import time
import traceback
import unittest
from collections.abc import Callable
from typing import NamedTuple

TREE = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TREE / "tests" / "system" / "torch"))
REFUSED = 77
# The last: what other ranks have to end in when one has failed, which may be what they wait for.
SECONDS_A_TEST, SECONDS_TO_START, SECONDS_TO_FOLLOW = 40, 120, 5
# What a test says that asks for a second device in a way that cannot be turned, or for what is not installed.
OF_THE_MACHINE = re.compile(r"invalid device ordinal|Need at least \d+ (CUDA|GPU)|CUDA is not available|no torchvision")


class Outcome(NamedTuple):
    verdict: str  # "passed", "skipped", "refused" (by the machine), "failed"
    reason: str = ""


def first_device(value: object) -> object:
    """A device of CUDA's, by object or name, as the first one; all else as it is."""
    import torch

    if isinstance(value, torch.device) and value.type == "cuda":
        return torch.device("cuda", 0)
    if isinstance(value, str) and re.fullmatch(r"cuda:\d+", value):
        return "cuda:0"
    return value


def turn_to_first_device(size: int) -> None:
    """From here on torch says that there are `size` devices, and takes the first one for each."""
    import torch
    from torch.overrides import TorchFunctionMode

    class FirstDevice(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            kwargs = {name: 0 if name == "device" and isinstance(value, int) else first_device(value)
                      for name, value in (kwargs or {}).items()}
            # Tensor.cuda() and Tensor.to() take a number, which is a device's there and nowhere else.
            if getattr(function, "__name__", "") == "cuda" and len(args) > 1:
                return function(args[0], 0, *args[2:], **kwargs)
            return function(*map(first_device, args), **kwargs)

    FirstDevice().__enter__()
    torch.cuda.device_count = lambda: size
    for name in ("set_device", "synchronize", "current_stream", "default_stream", "get_device_properties", "memory_allocated"):
        setattr(torch.cuda, name, _with_first_device(getattr(torch.cuda, name)))
    torch.cuda.device.__init__ = _with_first_device(torch.cuda.device.__init__, place=1)
    ddp = torch.nn.parallel.DistributedDataParallel
    ddp.__init__ = _with_first_ids(ddp.__init__)


def _with_first_device(function: Callable, place: int = 0) -> Callable:
    def turned(*arguments, **names):
        names.pop("device", None)
        return function(*arguments[:place], 0, *arguments[place + 1:], **names)
    return turned


def _with_first_ids(init: Callable) -> Callable:
    def turned(self, module, device_ids=None, output_device=None, *arguments, **names):
        return init(self, module, [0] if device_ids else device_ids, 0 if isinstance(output_device, int) else output_device,
                    *arguments, **names)
    return turned


class Rank:
    """One rank's process: takes the tests' names from the pipe, and answers with what became of them."""

    def __init__(self, rank: int, given: argparse.Namespace, folder: str):
        self.rank, self.size, self.folder = rank, given.ranks, folder
        # Decorators let pass what this name can do; what a test then runs on is sprat.
        os.environ.update(WORLD_SIZE=str(self.size), TEMP_DIR=folder, INIT_METHOD=f"file://{folder}/init", MASTER_ADDR="127.0.0.1",
                          BACKEND="nccl" if given.device == "cuda" else "gloo")
        import torch

        import sprat.torch  # noqa: F401  (registers the backend)

        torch.set_num_threads(1)
        from torch.testing._internal import common_distributed

        for feature in ("ddp", "subgroup", "plugin", "cuda", "gpu"):
            common_distributed.DistTestCases.backend_feature[feature].add("sprat")
        self.skips = {skip.exit_code: skip.message for skip in common_distributed.TEST_SKIPS.values()}
        if given.device == "cuda":
            torch.cuda.set_device(0)
        turn_to_first_device(self.size)  # on the CPU too, so that the rehearsal has it
        where = importlib.util.find_spec("torch.testing._internal.distributed.distributed_test").origin
        spec = importlib.util.spec_from_file_location("distributed_test_on_one_device", where)
        self.module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = self.module
        spec.loader.exec_module(self.module)
        self.module.BACKEND = "sprat"
        self.cases = type("Cases", (self.module.TestDistBackend, self.module.DistributedTest._DistTestBase), {})

    def names(self) -> list[str]:
        return sorted(name for name in dir(self.module.DistributedTest._DistTestBase) if name.startswith("test"))

    def take(self, test: str, number: int) -> Outcome:
        import pytorch_known
        import torch
        import torch.distributed as dist

        if getattr(getattr(self.cases, test), "__unittest_skip__", False):
            return Outcome("skipped", getattr(self.cases, test).__unittest_skip_why__)
        case = self.cases(test)
        # With a rank of its own its methods run here, and start no processes.
        case.rank, case.file_name = self.rank, f"{self.folder}/init.{number}"
        self.module.INIT_METHOD = f"file://{self.folder}/again.{number}"
        self.module.BACKEND = pytorch_known.TOLD_NAMES.get(test, "sprat")
        self.module.Barrier.barrier_id = 0
        torch.manual_seed(1234)
        try:
            dist.init_process_group("sprat", init_method=case.init_method, world_size=self.size, rank=self.rank,
                                    timeout=datetime.timedelta(seconds=SECONDS_A_TEST))
            case._barrier()
            getattr(case, test)()
            case._barrier()
        except unittest.SkipTest as skip:
            return Outcome("skipped", str(skip))
        except SystemExit as ended:
            return Outcome("skipped", self.skips[ended.code]) if ended.code in self.skips else Outcome("failed", f"exit({ended.code})")
        except BaseException as error:
            print(traceback.format_exc(), flush=True)
            return Outcome("failed", f"{type(error).__name__}: {error}".strip().split("\n")[0][:300])
        finally:
            with contextlib.suppress(Exception):
                dist.destroy_process_group()
        return Outcome("passed")


def serve(rank: int, given: argparse.Namespace, folder: str, pipe: multiprocessing.connection.Connection) -> None:
    with open(f"{folder}/rank{rank}.log", "a") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    here = Rank(rank, given, folder)
    pipe.send(here.names())
    while True:
        number, test = pipe.recv()
        print(f"== {test}", flush=True)
        pipe.send(here.take(test, number))


class Ranks:
    """The processes, started anew when one is lost."""

    def __init__(self, given: argparse.Namespace, folder: str):
        self.given, self.folder, self.processes = given, folder, []

    def start(self) -> list[str]:
        context = multiprocessing.get_context("spawn")
        self.pipes, self.processes = [], []
        for rank in range(self.given.ranks):
            mine, theirs = context.Pipe()
            self.pipes.append(mine)
            self.processes.append(context.Process(target=serve, args=(rank, self.given, self.folder, theirs), daemon=True))
            self.processes[-1].start()
            theirs.close()
        answers = self._answers(time.monotonic() + SECONDS_TO_START)
        if None in answers:
            self.end()
            raise RuntimeError(f"ranks do not start; their words:\n{self.words()}")
        return answers[0]

    def take(self, number: int, test: str, limit: float) -> Outcome:
        if not self.processes:
            self.start()
        for file in (pathlib.Path(self.folder) / "barrier").iterdir():
            file.unlink()
        for pipe in self.pipes:
            with contextlib.suppress(OSError):
                pipe.send((number, test))
        answers = self._answers(time.monotonic() + limit)
        if None in answers:
            lost = [rank for rank, process in enumerate(self.processes) if process.exitcode is not None]
            self.end()
            answers.append(Outcome("failed", f"rank {lost[0]} has ended" if lost else f"not done after {limit:.0f} s"))
        # In the order of ranks, before what was seen from here: who failed says why.
        come = [outcome for outcome in answers if outcome is not None]
        return next((outcome for verdict in ("failed", "skipped") for outcome in come if outcome.verdict == verdict), come[0])

    def _answers(self, end: float) -> list:
        """Of each rank; None of one that does not come, or whose process has ended."""
        answers = [None] * len(self.pipes)
        waiting = dict(zip(self.pipes, range(len(self.pipes))))
        while waiting and (left := end - time.monotonic()) > 0:
            for pipe in multiprocessing.connection.wait(list(waiting), timeout=left):
                rank = waiting.pop(pipe)
                with contextlib.suppress(EOFError, OSError):
                    answers[rank] = pipe.recv()
                if answers[rank] is None or getattr(answers[rank], "verdict", "") == "failed":
                    end = min(end, time.monotonic() + SECONDS_TO_FOLLOW)
        return answers

    def words(self) -> str:
        return "\n".join(path.read_text(errors="replace")[-2000:] for path in sorted(pathlib.Path(self.folder).glob("rank*.log")))

    def end(self) -> None:
        for process in self.processes:
            process.kill()
            process.join()
        self.processes = []


def judged(test: str, outcome: Outcome, size: int) -> Outcome:
    """What is the machine's fault, and what is known, is no failure."""
    import pytorch_known

    if OF_THE_MACHINE.search(outcome.reason):
        return Outcome("refused", outcome.reason)
    known = pytorch_known.FAILURES.get(test)
    if outcome.verdict == "failed" and known is not None and size in known.sizes:
        return Outcome("known", known.reason)
    return outcome


def run(given: argparse.Namespace) -> dict[str, Outcome]:
    end = time.monotonic() + given.seconds
    outcomes = {}
    with tempfile.TemporaryDirectory(prefix="pytorch_tests.") as folder:
        for name in ("barrier", "test_dir", "init_dir"):
            (pathlib.Path(folder) / name).mkdir()
        ranks = Ranks(given, folder)
        try:
            names = [name for name in ranks.start() if any(word in name for word in given.only.split(","))]
            # Those of devices first: time may not be enough for all.
            for number, test in enumerate(sorted(names, key=lambda name: ("cuda" not in name and "nccl" not in name, name))):
                left = end - time.monotonic()
                if left < 1:
                    outcomes[test] = Outcome("left out", "no time is left")
                    continue
                begin = time.monotonic()
                outcomes[test] = judged(test, ranks.take(number, test, min(SECONDS_A_TEST, left)), given.ranks)
                print(f"{time.monotonic() - begin:5.1f} s  {test}: {' '.join(outcomes[test])}".rstrip(), flush=True)
        finally:
            ranks.end()
            print(ranks.words(), file=sys.stderr)
    return outcomes


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    options.add_argument("--ranks", type=int, default=2)
    options.add_argument("--only", default="", help="tests whose names have one of these in them, separated by commas")
    options.add_argument("--seconds", type=float, default=140, help="for all tests together")
    given = options.parse_args()
    if given.device == "cuda":
        import torch

        if not torch.cuda.is_available():
            print("refused: PyTorch sees no GPU here")
            return REFUSED
    outcomes = run(given)
    counts = collections.Counter(outcome.verdict for outcome in outcomes.values())
    for test, outcome in outcomes.items():
        if outcome.verdict == "failed":
            print(f"FAILED {test}: {outcome.reason}")
    print(f"PyTorch's tests, {given.ranks} ranks on {given.device}: "
          + ", ".join(f"{counts[verdict]} {verdict}" for verdict in ("passed", "failed", "known", "refused", "skipped", "left out")))
    return 1 if counts["failed"] or not counts["passed"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
