"""The fixed subset for CI: features, training, failures and some of PyTorch's own tests, on one backend."""

from __future__ import annotations

import time

import failures
import features
import numerics
import pytorch_tests
from cells import CELLS

PYTORCH = ("all_reduce_sum", "all_gather_into", "all_to_all_single", "reduce_scatter", "send_recv_any_source",
           "barrier_full_group", "monitored_barrier", "ddp_uneven_inputs", "new_subgroups")


def run(backend: str) -> tuple[str, list[str]]:
    """A one-line summary, and what failed."""
    start = time.monotonic()
    results = [result for size in (2, 4)
               for result in features.run_cells([c for c in CELLS if c.quick and size in c.sizes], backend, size)]
    wrong = [f"{r.cell.feature} ({r.size} ranks): {r.error}" for r in results if r.error]
    lines = numerics.run(backend, [2, 4], steps=3)
    wrong += [f"training by {line.mode}, {line.dtype}, {line.ranks} ranks: {line.failure}"
              for line in lines if line.failure]
    checks = failures.run(backend)
    wrong += [f"{name}: {error}" for name, error in checks if error]
    modules = pytorch_tests.load(backend, 2)
    wanted = sorted({name for part in PYTORCH for name in pytorch_tests.names(modules, part)})
    outcomes = pytorch_tests.run(modules, wanted, backend, 60)
    wrong += pytorch_tests.judge(outcomes, 2)
    counts = f"{len(results)} features, {len(lines)} trainings, {len(checks)} failures, {len(outcomes)} PyTorch tests"
    return f"{backend}: {counts} in {time.monotonic() - start:.0f} s: {len(wrong)} failed", wrong
