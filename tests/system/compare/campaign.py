#!/usr/bin/env python3
"""What bench/compare/campaign makes of what was measured: of figures made up here, in folders as it leaves them."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

CAMPAIGN = pathlib.Path(__file__).resolve().parents[3] / "bench/compare/campaign"


def ratio(median, low=None, high=None):
    return {"low": low or median, "median": median, "high": high or median}


def cell(collective, size, wrong=(), **ratios):
    return {"collective": collective, "bytes": size, "wrong": list(wrong), **ratios}


class Campaign(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def measured(self, name, *cells, at=None):
        path = pathlib.Path(self.folder.name, name)
        path.mkdir(parents=True)
        (path / "compare.json").write_text(json.dumps({"cells": cells}))
        if at is not None:
            os.utime(path / "compare.json", (at, at))

    def judge(self):
        done = subprocess.run([sys.executable, CAMPAIGN, "--judge", "--out", self.folder.name], capture_output=True, text=True)
        self.assertEqual(done.stderr, "")
        return done.stdout, done.returncode

    def test_a_gain_is_held_against_its_claim(self):
        self.measured("broadcast_8", cell("broadcast", 8, ratio_to_best=ratio(0.95)))
        self.assertEqual(self.judge()[1], 0)

    def test_a_gain_that_is_too_small_is_missed(self):
        self.measured("broadcast_8", cell("broadcast", 8, ratio_to_best=ratio(0.89)))
        text, status = self.judge()
        self.assertEqual(status, 1)
        self.assertIn("MISSED  broadcast_8: broadcast of 8 bytes, ratio_to_best: 0.89 (0.89-0.89), asked for >= 0.90", text)

    def test_a_claim_of_some_sizes_is_not_asked_of_others(self):
        self.measured("broadcast_4", cell("broadcast", 8, ratio_to_best=ratio(0.95)), cell("broadcast", 1 << 20, ratio_to_best=ratio(3.5)))
        self.assertEqual(self.judge()[1], 0)

    def test_rows_that_were_not_run_are_named(self):
        self.measured("broadcast_8", cell("broadcast", 8, ratio_to_best=ratio(0.95)))
        missing = self.judge()[0].splitlines()[-1]
        self.assertTrue(missing.startswith("not measured: "), missing)
        self.assertIn("broadcast_4", missing)
        self.assertNotIn("broadcast_8", missing)

    def test_nothing_is_not_enough(self):
        text, status = self.judge()
        self.assertEqual((text.split(" in ")[0], status), ("nothing has been measured", 1))

    def test_wrong_elements_are_missed_however_fast(self):
        self.measured("broadcast_8", cell("broadcast", 8, ["sprat: 3 wrong"], ratio_to_best=ratio(9)))
        self.assertEqual(self.judge()[1], 1)

    def test_a_slower_cell_stands_until_its_second_run_clears_it(self):
        fast = [cell("all_gather", size, ratio_to_before=ratio(1.1)) for size in (8, 64)]
        self.measured("table_shared_2_all_reduce", cell("all_reduce", 8, ratio_to_before=ratio(0.95, 0.94, 0.96)), *fast)
        text, status = self.judge()
        self.assertEqual(status, 1)
        self.assertIn("all_reduce of 8 bytes, twice: 0.95 (to 0.96), asked for not below 0.97", text)
        self.measured("table_shared_2_all_reduce.again/0", cell("all_reduce", 8, ratio_to_before=ratio(0.96, 0.95, 0.98)))
        text, status = self.judge()
        self.assertEqual(status, 0)
        self.assertIn("0.95 (to 0.96), 0.96 (to 0.98)", text)

    def test_the_mean_of_the_tables_is_geometric(self):
        self.measured("table_shared_2_all_reduce", cell("all_reduce", 8, ratio_to_before=ratio(0.5, 0.4, 2)),
                      cell("all_reduce", 64, ratio_to_before=ratio(2)))
        self.assertIn("holds   2 cells of tables, geometric mean of before / now: 1.000", self.judge()[0])

    def wires(self, count, minutes, least=0.95):
        for number in range(count):
            value = least if number == 1 else 0.95
            self.measured(f"wire.{number:03}", cell("all_reduce", 1 << 24, ratio_to_limit=ratio(0.96)),
                          cell("all_gather", 1 << 24, ratio_to_limit=ratio(value)), at=1e9 + number * minutes * 60 / (count - 1))

    def test_wires_hold_in_all_of_twenty_runs_over_two_hours(self):
        self.wires(20, 121)
        self.assertEqual(self.judge()[1], 0)

    def test_wires_of_an_hour_are_too_few(self):
        self.wires(20, 60)
        self.assertEqual(self.judge()[1], 1)

    def test_one_slow_wire_is_missed(self):
        self.wires(21, 130, least=0.92)
        text, status = self.judge()
        self.assertEqual(status, 1)
        self.assertIn("20 of 21 over 130 min, least 0.920", text)


if __name__ == "__main__":
    unittest.main()
