"""Tests that pipeline schedules go to torch.distributed.pipelining as CSV, and that its own come here.

Use: python tests/system/torch/pipeline_schedules_test.py build/release/bin/pipeline_schedules. Needs torch.
"""

from __future__ import annotations

import csv
import io
import pathlib
import subprocess
import sys
import tempfile
import types
import unittest

from torch.distributed.pipelining import schedules

PROGRAM = ""
SHAPES = ((2, 4), (2, 5), (4, 8), (4, 12))  # ranks, micro-batches


def stages(ranks: int, per_rank: int) -> list[types.SimpleNamespace]:
    """As much of rank 0's stages as a schedule looks at before it runs."""
    return [types.SimpleNamespace(num_stages=ranks * per_rank, group_size=ranks, group_rank=0, submod=None,
                                  is_first=index == 0, is_last=False)
            for index in range(per_rank)]


def theirs(name: str, ranks: int, microbatches: int, per_rank: int):
    return schedules.get_schedule_class(name)(stages(ranks, per_rank), microbatches, loss_fn=lambda *_: None)


def dumped(schedule, form: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "schedule.csv"
        schedule._dump_csv(path, format=form)
        return path.read_bytes().decode()


def rows(text: str) -> list[list[str]]:
    """What is done, without idle cells."""
    return [[cell for cell in row if cell] for row in csv.reader(io.StringIO(text, newline=""))]


def run(*arguments: str, given: str = "") -> str:
    done = subprocess.run([PROGRAM, *arguments], input=given.encode(), capture_output=True, timeout=60)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(arguments)}: {done.stderr.decode()}")
    return done.stdout.decode()


def checked(text: str) -> tuple[str, str]:
    """The verdict, and the CSV as it is written here."""
    verdict, _, again = run("check", given=text).partition("\r\n")
    return verdict, again


def made(name: str, ranks: int, microbatches: int, per_rank: int, form: str) -> str:
    return run("make", name, str(ranks), str(microbatches), str(per_rank), form)


class TheirSchedules(unittest.TestCase):
    def each(self):
        for name, per_rank in (("Interleaved1F1B", 2), ("Interleaved1F1B", 3), ("LoopedBFS", 2),
                               ("InterleavedZeroBubble", 1), ("InterleavedZeroBubble", 2),
                               ("ZBVZeroBubble", 2), ("DualPipeV", 2)):
            for ranks, microbatches in SHAPES:
                if name.startswith("Interleaved") and microbatches % max(1, microbatches // ranks) != 0:
                    continue  # they refuse it, as we do
                with self.subTest(name=name, ranks=ranks, microbatches=microbatches, per_rank=per_rank):
                    yield theirs(name, ranks, microbatches, per_rank)

    def test_of_computation_are_valid_and_come_back(self) -> None:
        for schedule in self.each():
            text = dumped(schedule, "compute_only")
            verdict, again = checked(text)
            self.assertEqual(verdict, "valid at capacity 0")
            self.assertEqual(rows(again), rows(text))

    def test_with_messages_are_valid_and_come_back_to_the_byte(self) -> None:
        for schedule in self.each():
            text = dumped(schedule, "compute_comms")
            verdict, again = checked(text)
            self.assertRegex(verdict, r"^valid at capacity \d+$")
            self.assertEqual(again, text)


class OurSchedules(unittest.TestCase):
    SHAPES = (("gpipe", 4, 8, 1), ("gpipe", 4, 8, 2), ("interleaved", 4, 16, 1), ("interleaved", 2, 4, 2),
              ("1f1b", 4, 8, 1), ("virtual_stages", 4, 8, 2), ("virtual_stages", 4, 10, 3),
              ("zero_bubble_h1", 4, 8, 1), ("zb_v", 4, 8, 2), ("dualpipe_v", 4, 10, 2))

    def test_are_taken_with_and_without_messages(self) -> None:
        for name, ranks, microbatches, per_rank in self.SHAPES:
            for form, their_form in (("computation", "compute_only"), ("messages", "compute_comms")):
                with self.subTest(name=name, form=form), tempfile.TemporaryDirectory() as folder:
                    text = made(name, ranks, microbatches, per_rank, form)
                    path = pathlib.Path(folder) / "schedule.csv"
                    path.write_bytes(text.encode())
                    runtime = schedules._PipelineScheduleRuntime(
                        stages(ranks, per_rank), microbatches, loss_fn=lambda *_: None)
                    runtime._load_csv(path, format=their_form)
                    # It ends with an error if ranks wait for each other for ever. It knows no overlaps.
                    if name != "dualpipe_v":
                        schedules._simulate_comms_compute(
                            {rank: [a for a in order if a.computation_type not in
                                    (schedules.UNSHARD, schedules.RESHARD, schedules.REDUCE_GRAD)]
                             for rank, order in runtime.pipeline_order_with_comms.items()},
                            lambda stage: runtime.stage_index_to_group_rank[stage], ranks * per_rank)
                    self.assertEqual(dumped(runtime, their_form), text)

    def test_of_one_name_have_one_order(self) -> None:
        for name, their_name, per_rank in (("virtual_stages", "Interleaved1F1B", 2), ("zb_v", "ZBVZeroBubble", 2),
                                           ("virtual_stages", "Interleaved1F1B", 3), ("dualpipe_v", "DualPipeV", 2),
                                           ("zero_bubble_h1", "InterleavedZeroBubble", 1)):
            for ranks, microbatches in ((2, 4), (4, 8), (4, 12), (3, 9)):
                with self.subTest(name=name, ranks=ranks, microbatches=microbatches):
                    ours = made(name, ranks, microbatches, per_rank, "computation")
                    text = dumped(theirs(their_name, ranks, microbatches, per_rank), "compute_only")
                    self.assertEqual(rows(ours), rows(text))


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    unittest.main()
