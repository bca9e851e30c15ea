"""Tests of groups over a store, which programs make and replace by themselves.

Use: python tests/system/torch/frameworks/store_group_test.py, with a Python that has torch and, by pip, sprat-torch.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import unittest
from datetime import timedelta

import torch
import torch.distributed as dist

from sprat.torch.store_group import store_group


class StoreGroup(unittest.TestCase):
    def test_a_rank_that_the_group_cannot_have_is_refused(self) -> None:
        for rank, size in ((-1, 2), (2, 2), (0, 0)):
            with self.assertRaisesRegex(ValueError, f"rank {rank} of {size}"):
                store_group(dist.HashStore(), rank, size)

    def test_one_that_does_not_come_is_named_in_time(self) -> None:
        with self.assertRaisesRegex(RuntimeError, "1"):
            store_group(dist.HashStore(), 0, 2, timedelta(seconds=2))

    def test_default_groups_come_and_go_beside_it(self) -> None:
        group, tensor = store_group(dist.HashStore(), 0, 1), torch.ones(2)
        for _ in range(2):
            dist.init_process_group("sprat", store=dist.HashStore(), rank=0, world_size=1)
            group.allreduce([tensor]).wait()
            dist.destroy_process_group()
            group.allreduce([tensor]).wait()
        self.assertEqual(tensor.tolist(), [1, 1])

    def test_after_a_killed_rank_another_group_works_and_so_does_one_from_before(self) -> None:
        store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        other = subprocess.Popen([sys.executable, "-c", textwrap.dedent("""
            import os, signal, sys, torch, torch.distributed as dist
            from sprat.torch.store_group import store_group
            store = dist.TCPStore("127.0.0.1", int(sys.argv[1]), is_master=False)
            group = store_group(dist.PrefixStore("first", store), 1, 2)
            group.allreduce([torch.ones(2)]).wait()
            os.kill(os.getpid(), signal.SIGKILL)
        """), str(store.port)], env=os.environ | {"OMP_NUM_THREADS": "1"})
        before = store_group(dist.PrefixStore("before", store), 0, 1)
        group = store_group(dist.PrefixStore("first", store), 0, 2)
        tensor = torch.ones(2)
        group.allreduce([tensor]).wait()
        self.assertEqual(tensor.tolist(), [2, 2])
        other.wait()
        with self.assertRaisesRegex(RuntimeError, "lost rank 1"):
            group.allreduce([tensor]).wait()
        for alone in (before, store_group(dist.PrefixStore("second", store), 0, 1)):
            tensor = torch.ones(2)
            alone.allreduce([tensor]).wait()
            self.assertEqual(tensor.tolist(), [1, 1])


if __name__ == "__main__":
    unittest.main()
