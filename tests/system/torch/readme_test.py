"""Runs the script that README.md shows, as README.md says to start it.

Use: python tests/system/torch/readme_test.py, with a Python that has torch and, by pip, sprat-torch.
"""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
# Fifty steps of a small model take two seconds.
LIMIT_S = 120


def script() -> str:
    """The block of Python that shards by FSDP2."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    return next(block for block in blocks if "fully_shard" in block)


class Readme(unittest.TestCase):
    def losses(self, *launcher: str) -> list[float]:
        """What rank 0 prints, of two ranks on the CPU."""
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "train.py"
            path.write_text(script(), encoding="utf-8")
            done = subprocess.run([sys.executable, *launcher, str(path)], cwd=folder, capture_output=True, text=True, timeout=LIMIT_S,
                                  env={**os.environ, "OMP_NUM_THREADS": "1"})
        self.assertEqual(done.returncode, 0, done.stderr[-2000:])
        return [float(loss) for loss in re.findall(r"^loss (\S+)$", done.stdout, re.MULTILINE)]

    def test_its_script_learns_and_has_one_loss_however_it_is_started(self) -> None:
        torchrun = self.losses("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
        ours = self.losses("-m", "sprat.torch.run", "-n", "2")
        self.assertEqual(len(torchrun), 1)
        self.assertEqual(torchrun, ours)
        # To give back what it takes, shifted: the mean square of zeros would be 1.
        self.assertLess(ours[0], 0.95)


if __name__ == "__main__":
    unittest.main()
