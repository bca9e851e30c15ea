"""Tests of what `import torch` makes of the installed package.

Use: python tests/torch/autoload_test.py, with a Python that has torch and, by pip, sprat-torch.
"""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import tempfile
import textwrap
import unittest
import unittest.mock
import warnings

import torch
import torch.distributed as dist

SOURCES = pathlib.Path(__file__).resolve().parents[2] / "plugins/torch/sprat"
ENTRY_POINT = "[torch.backends]\nsprat = sprat.autoload:autoload\n"
# Launchers' variables, which would make a single process one of a job.
OF_LAUNCHERS = ("RANK", "WORLD_SIZE", "PMI_RANK", "PMIX_RANK")
JOIN_ALONE = 'dist.init_process_group("sprat", store=dist.HashStore(), rank=0, world_size=1)'


def clean(**variables: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in OF_LAUNCHERS}
    return kept | {"OMP_NUM_THREADS": "1"} | variables


def python(program: str, **variables: str) -> str:
    """What a process of its own writes; raises if it fails."""
    ended = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], env=clean(**variables), text=True,
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120)
    if ended.returncode:
        raise AssertionError(f"status {ended.returncode}: {ended.stdout}")
    return ended.stdout


class Autoload(unittest.TestCase):
    def test_import_torch_loads_nothing_of_sprat_but_knows_its_name(self) -> None:
        loaded = python("""
            import sys, torch
            assert "sprat" in torch.distributed.Backend.backend_list
            print(sorted(name for name in sys.modules if name.startswith("sprat")))
        """)
        self.assertEqual(loaded.strip(), "['sprat', 'sprat.autoload']")

    def test_a_group_needs_no_import_and_has_the_devices_of_this_machine(self) -> None:
        devices = python(f"""
            import torch, torch.distributed as dist
            {JOIN_ALONE}
            dist.all_reduce(torch.ones(3))
            print(sorted(device.type for device in dist.group.WORLD._device_types))
            dist.destroy_process_group()
        """)
        expected = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]
        self.assertEqual(devices.strip(), str(expected))

    def test_a_module_that_cannot_be_loaded_breaks_no_program_but_those_that_want_it(self) -> None:
        """As after an update of PyTorch to another minor version."""
        with tempfile.TemporaryDirectory() as folder:
            package = pathlib.Path(folder) / "sprat"
            info = pathlib.Path(folder) / "sprat_torch-0.dist-info"
            (package / "torch").mkdir(parents=True)
            info.mkdir()
            (package / "autoload.py").write_text((SOURCES / "autoload.py").read_text())
            (package / "torch/__init__.py").write_text("raise ImportError('built for another PyTorch')")
            (info / "METADATA").write_text("Metadata-Version: 2.1\nName: sprat-torch\nVersion: 0\n")
            (info / "entry_points.txt").write_text(ENTRY_POINT)
            said = python(f"""
                import torch, torch.distributed as dist
                print(torch.ones(2).sum().item())
                try:
                    {JOIN_ALONE}
                except ImportError as error:
                    print(error)
            """, PYTHONPATH=folder)
        self.assertEqual(said, "2.0\nbuilt for another PyTorch\n")

    def test_a_pytorch_that_registers_otherwise_is_warned_of_and_no_more(self) -> None:
        from sprat import autoload

        with unittest.mock.patch.object(autoload, "register", side_effect=AttributeError("no such thing")):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                autoload.autoload()
        self.assertEqual(len(caught), 1)
        self.assertIn("no such thing", str(caught[0].message))


if __name__ == "__main__":
    unittest.main()
