"""Runs PyTorch's own process-group tests (DistributedTest._DistTestBase) on a backend, as third parties run them."""

from __future__ import annotations

import fnmatch
import importlib.util
import io
import multiprocessing
import os
import re
import shutil
import signal
import sys
import tempfile
import time
import unittest
from contextlib import redirect_stderr, redirect_stdout
from types import ModuleType
from typing import NamedTuple

import pytorch_known
from launch import use_backend

# The tests' decorators ask for names; a test runs under the first of these that its decorators let pass, and what
# it then runs on is the backend asked for all the same.
NAMES = ("", "gloo", "mpi")


class Outcome(NamedTuple):
    """What became of one test."""

    name: str
    known_as: str  # The backend's name that the decorators saw.
    verdict: str  # "passed", "skipped" or "failed"
    reason: str
    seconds: float


def load(backend: str, size: int) -> dict[str, ModuleType]:
    """The module of the tests, once for each name; its decorators are evaluated when it is imported."""
    use_backend(backend)
    folder = tempfile.mkdtemp(prefix="pytorch_tests.")
    os.environ.update(WORLD_SIZE=str(size), TEMP_DIR=folder, INIT_METHOD=f"file://{folder}/init",
                      MASTER_ADDR="127.0.0.1", BACKEND=backend)
    from torch.testing._internal import common_distributed

    for feature in ("ddp", "subgroup", "plugin", "cuda", "gpu"):
        common_distributed.DistTestCases.backend_feature[feature].add(backend)
    where = importlib.util.find_spec("torch.testing._internal.distributed.distributed_test").origin
    modules = {}
    for name in NAMES:
        name = name or backend
        if name not in modules:
            modules[name] = _module_as(name, where)
            modules[name].BACKEND = backend
    return modules


def _module_as(name: str, where: str) -> ModuleType:
    os.environ["BACKEND"] = name
    spec = importlib.util.spec_from_file_location(f"distributed_test_as_{name}", where)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _class_of(module: ModuleType, limit: float) -> type[unittest.TestCase]:
    """A test case whose ranks are forks of this process: they need not import torch again."""

    class Forked(module.TestDistBackend, module.DistributedTest._DistTestBase):
        def setUp(self) -> None:
            super().setUp()
            self._start_processes(multiprocessing.get_context("fork").Process)

        def run_test(self, test_name: str, parent_pipe) -> None:
            module.BACKEND = pytorch_known.TOLD_NAMES.get(test_name, module.BACKEND)
            super().run_test(test_name, parent_pipe)

        def tearDown(self) -> None:
            for process in self.processes:
                process.kill()
                process.join()
            super().tearDown()

    sys.modules["torch.testing._internal.common_distributed"].get_timeout = lambda _: limit
    return Forked


def names(modules: dict[str, ModuleType], pattern: str) -> list[str]:
    cases = next(iter(modules.values())).DistributedTest._DistTestBase
    return sorted(name for name in dir(cases)
                  if name.startswith("test") and fnmatch.fnmatch(name, f"*{pattern}*"))


def run(modules: dict[str, ModuleType], wanted: list[str], backend: str, limit: float) -> list[Outcome]:
    """Runs the tests one after another and says what became of each."""
    classes = {name: _class_of(module, limit) for name, module in modules.items()}
    # Tests of a group of ranks 1 and 2 ask for eight ranks unless this says "mpi"; three are enough for them.
    os.environ["BACKEND"] = "mpi" if int(os.environ["WORLD_SIZE"]) > 2 else backend
    outcomes = []
    try:
        for number, test in enumerate(wanted, 1):
            outcomes.append(_run_one(classes, test))
            outcome = outcomes[-1]
            text = f"{outcome.verdict} {outcome.reason[:160]}".strip()
            print(f"{number:3}/{len(wanted)} {outcome.seconds:5.1f} s  {test}: {text}", file=sys.stderr, flush=True)
    finally:
        shutil.rmtree(os.environ["TEMP_DIR"], ignore_errors=True)
    return outcomes


def _run_one(classes: dict[str, type[unittest.TestCase]], test: str) -> Outcome:
    known_as = next((name for name, cls in classes.items()
                     if not getattr(getattr(cls, test), "__unittest_skip__", False)), next(iter(classes)))
    result = unittest.TestResult()
    start = time.monotonic()
    with tempfile.TemporaryFile("w+") as log:
        saved = os.dup(1), os.dup(2)
        sys.stdout.flush()
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
        try:
            with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
                classes[known_as](test).run(result)
        finally:
            os.dup2(saved[0], 1)
            os.dup2(saved[1], 2)
            os.close(saved[0])
            os.close(saved[1])
        log.seek(0)
        written = log.read()
    seconds = time.monotonic() - start
    if result.skipped:
        return Outcome(test, known_as, "skipped", _skip_reason(result.skipped[0][1], written), seconds)
    problems = result.errors + result.failures
    if problems:
        return Outcome(test, known_as, "failed", _last_error(problems[0][1], written), seconds)
    return Outcome(test, known_as, "passed", "", seconds)


def _skip_reason(reason: str, written: str) -> str:
    """Ranks that skip say why only in their log."""
    inner = re.search(r"for following reason: (.*)", written)
    return inner.group(1) if inner and "subprocess level" in reason else reason


def _last_error(text: str, written: str) -> str:
    """The last line that names an exception, without the stack of C++."""
    ended = re.search(r"Expected exit code 0 but got (-?\d+)", text)
    if ended and int(ended.group(1)) < 0:
        return f"a rank ended with {signal.Signals(-int(ended.group(1))).name}"
    lines = [line.strip() for line in (text + written).splitlines()
             if re.match(r"\s*([\w.]*(Error|Exception|Failure))\b.*: ", line)]
    lines = [line for line in lines if not line.startswith("RuntimeError: Process")] or lines
    return lines[0] if lines else text.strip().splitlines()[-1]


def judge(outcomes: list[Outcome], size: int) -> list[str]:
    """What disagrees with the table of known failures."""
    known = pytorch_known.FAILURES
    wrong = []
    for outcome in outcomes:
        listed = known.get(outcome.name)
        expected = listed is not None and size in listed.sizes
        if outcome.verdict == "failed" and not expected:
            wrong.append(f"{outcome.name} failed and is not in pytorch_known.py: {outcome.reason}")
        if outcome.verdict == "passed" and expected:
            wrong.append(f"{outcome.name} passed though pytorch_known.py says that it fails: {listed.reason}")
    return wrong


def _by_reason(outcomes: list[Outcome], verdict: str) -> dict[str, list[str]]:
    """The names of the tests that ended so, by why."""
    reasons: dict[str, list[str]] = {}
    for outcome in outcomes:
        if outcome.verdict == verdict:
            listed = pytorch_known.FAILURES.get(outcome.name)
            reason = listed.reason if listed and verdict == "failed" else outcome.reason
            reasons.setdefault(reason, []).append(outcome.name)
    return reasons


def summary(outcomes: list[Outcome], backend: str, size: int) -> str:
    counts = {verdict: sum(o.verdict == verdict for o in outcomes) for verdict in ("passed", "skipped", "failed")}
    seconds = sum(o.seconds for o in outcomes)
    lines = [f"{backend}, {size} ranks: " + ", ".join(f"{n} {verdict}" for verdict, n in counts.items())
             + f", in {seconds / 60:.0f} min", ""]
    for verdict in ("failed", "skipped"):
        reasons = _by_reason(outcomes, verdict)
        for reason, tests in sorted(reasons.items(), key=lambda item: -len(item[1])):
            lines.append(f"{verdict} {len(tests)}: {reason}")
            lines.append("    " + " ".join(tests))
    return "\n".join(lines)


def markdown(outcomes: list[Outcome]) -> str:
    """Tables of reasons, for docs/pytorch_tests.md."""
    lines = []
    for verdict in ("failed", "skipped"):
        reasons = _by_reason(outcomes, verdict)
        if reasons:
            lines += ["", f"| {verdict} | tests | reason |", "|---|---|---|"]
        for reason, tests in sorted(reasons.items(), key=lambda item: -len(item[1])):
            names = ", ".join(test.removeprefix("test_") for test in tests)
            lines.append(f"| {len(tests)} | {names} | {reason.replace('|', '/')} |")
    return "\n".join(lines)
