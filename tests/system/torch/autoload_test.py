"""Tests of what `import torch` makes of the installed package, and of python -m sprat.torch.run.

Use: python tests/system/torch/autoload_test.py, with a Python that has torch and, by pip, sprat-torch.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import textwrap
import unittest
import unittest.mock
import warnings
from collections.abc import Iterable

import torch
import torch.distributed as dist

from ports import reserved_port

SOURCES = pathlib.Path(__file__).resolve().parents[3] / "plugins/torch/sprat"
ENTRY_POINT = "[torch.backends]\nsprat = sprat.autoload:autoload\n"
# Launchers' variables, which would make a single process one of a job.
OF_LAUNCHERS = ("RANK", "WORLD_SIZE", "PMI_RANK", "PMIX_RANK", "TORCH_RUN_ON_SPRAT")
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


def under_run(folder: str, program: str, options: Iterable[str],
              variables: dict[str, str]) -> subprocess.CompletedProcess:
    """The program, as a script in the folder, under python -m sprat.torch.run OPTIONS."""
    script = pathlib.Path(folder) / "program.py"
    script.write_text(textwrap.dedent(program))
    return subprocess.run([sys.executable, "-m", "sprat.torch.run", *options, str(script)],
                          env=clean(**variables), text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=120)


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


class Ports(unittest.TestCase):
    def test_one_that_is_reserved_goes_to_who_asks_for_it_alone(self) -> None:
        port = reserved_port()
        with socket.socket() as other, socket.socket() as store:
            with self.assertRaisesRegex(OSError, "in use"):
                other.bind(("", port))
            store.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            store.bind(("", port))
            store.listen()


class Run(unittest.TestCase):
    def test_takes_the_place_of_gloo_alone(self) -> None:
        from sprat.replacement import with_sprat

        for given, expected in (("gloo", "sprat"), ("GLOO", "sprat"), ("cpu:gloo,cuda:nccl", "cpu:sprat,cuda:nccl"),
                                ("nccl", "nccl"), ("sprat", "sprat"), ("cpu:mpi", "cpu:mpi")):
            self.assertEqual(with_sprat(given), expected)

    def ranks(self, program: str, arguments: list[str]) -> list[str]:
        """Two ranks of mpirun, as far as its variables go, run the program; what they write."""
        port = str(reserved_port())
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "beside.py").write_text("here = True\n")
            script = pathlib.Path(folder) / "program.py"
            script.write_text(textwrap.dedent(program))
            processes = []
            for rank in ("0", "1"):
                environment = clean(OMPI_COMM_WORLD_RANK=rank, OMPI_COMM_WORLD_SIZE="2", MASTER_PORT=port,
                                    OMPI_COMM_WORLD_LOCAL_RANK=rank, OMPI_COMM_WORLD_LOCAL_SIZE="2")
                processes.append(subprocess.Popen([sys.executable, "-m", "sprat.torch.run", str(script), *arguments],
                                                  env=environment, text=True, stdout=subprocess.PIPE,
                                                  stderr=subprocess.STDOUT))
            outputs = []
            for process in processes:
                try:
                    outputs.append(process.communicate(timeout=120)[0])
                except subprocess.TimeoutExpired:
                    for other in processes:
                        other.kill()
                    raise
                self.assertEqual(process.returncode, 0, outputs[-1])
        return outputs

    def test_a_program_that_asks_for_gloo_or_for_nothing_gets_sprat(self) -> None:
        outputs = self.ranks("""
            import sys, beside, torch, torch.distributed as dist
            from torch.distributed import device_mesh, init_process_group, new_group
            for make in (lambda: init_process_group("gloo"), init_process_group,
                         lambda: device_mesh.init_device_mesh("cpu", (2,))):
                make()
                side = new_group(backend="gloo")
                total = torch.ones(1)
                dist.all_reduce(total)
                dist.all_reduce(total, group=side)
                groups = (dist.group.WORLD, side)
                kinds = {type(g._get_backend(torch.device("cpu"))).__module__ for g in groups}
                names = {dist.get_backend(g) for g in groups}
                print(__name__, sys.argv[1:], names, kinds, total.item())
                dist.destroy_process_group()
        """, ["--steps", "3"])
        line = "__main__ ['--steps', '3'] {'sprat'} {'sprat.torch._native'} 4.0\n"
        self.assertEqual(outputs, [3 * line] * 2)

    def script(self, program: str, *options: str, status: int = 0, **variables: str) -> str:
        """What the program writes under sprat.torch.run; it has to end with this status."""
        with tempfile.TemporaryDirectory() as folder:
            ended = under_run(folder, program, options, variables)
        self.assertEqual(ended.returncode, status, ended.stdout)
        return ended.stdout

    def test_a_program_without_a_launcher_is_one_rank(self) -> None:
        said = self.script("""
            import os, torch.distributed as dist
            dist.init_process_group("gloo")
            print(dist.get_backend(), dist.get_rank(), dist.get_world_size(), os.environ["LOCAL_RANK"])
            dist.destroy_process_group()
        """)
        self.assertEqual(said, "sprat 0 1 0\n")

    def test_n_ranks_on_this_host_meet_and_meet_again(self) -> None:
        said = self.script("""
            import sys, torch, torch.distributed as dist
            for _ in range(3):
                dist.init_process_group()
                total = torch.full((1,), dist.get_rank() + 1.)
                dist.all_reduce(total)
                sys.stdout.write(f"{dist.get_backend()} {dist.get_rank()} of {dist.get_world_size()}: {total.item()}\\n")
                sys.stdout.flush()
                dist.destroy_process_group()
        """, "-n", "3")
        self.assertEqual(sorted(said.splitlines()), [f"sprat {rank} of 3: 6.0" for rank in (0, 1, 2) for _ in range(3)])

    def test_the_status_is_that_of_the_rank_that_failed_first(self) -> None:
        said = self.script("""
            import os, sys, torch, torch.distributed as dist
            dist.init_process_group("gloo")
            if dist.get_rank() == 1:
                os._exit(7)
            dist.all_reduce(torch.ones(1))
        """, "--nproc", "2", status=7)
        self.assertIn("sprat.torch.run: rank 1 ended with status 7", said)

    def test_the_others_name_a_rank_that_is_killed_and_the_status_says_the_signal(self) -> None:
        said = self.script("""
            import os, signal, torch, torch.distributed as dist
            dist.init_process_group("gloo")
            dist.barrier()
            if dist.get_rank() == 2:
                os.kill(os.getpid(), signal.SIGKILL)
            dist.all_reduce(torch.ones(1))
        """, "-n", "3", status=128 + 9)
        self.assertIn("sprat.torch.run: rank 2 was killed by SIGKILL", said)
        lines = [line for line in said.splitlines() if "Error" in line and "rank 2" in line]
        self.assertGreaterEqual(len(lines), 2, said)

    def test_ranks_that_wait_for_a_rank_which_has_failed_are_ended(self) -> None:
        said = self.script("""
            import os, signal, sys
            if os.environ["RANK"] == "0":
                sys.exit(3)
            signal.signal(signal.SIGTERM, lambda *_: (print("asked to end", flush=True), os._exit(0)))
            signal.pause()
        """, "-n", "2", status=3)
        self.assertIn("asked to end", said)

    def test_programs_that_the_program_starts_get_sprat_too(self) -> None:
        """By torchrun, by multiprocessing, and by fork."""
        said = self.script("""
            import os, subprocess, sys, torch, torch.distributed as dist, torch.multiprocessing as mp
            from torch.distributed import init_process_group

            def join(rank, folder, name):
                init_process_group("gloo", init_method=f"file://{folder}/{name}", rank=rank, world_size=2)
                total = torch.ones(1)
                dist.all_reduce(total)
                sys.stdout.write(f"{name} {dist.get_backend()} {total.item()}\\n")
                sys.stdout.flush()
                dist.destroy_process_group()

            if __name__ == "__main__":
                folder = os.path.dirname(os.path.abspath(__file__))
                mp.spawn(join, (folder, "spawn"), nprocs=2)
                mp.start_processes(join, (folder, "fork"), nprocs=2, start_method="fork")
                worker = folder + "/worker.py"
                with open(worker, "w") as file:
                    file.write("import os, torch.distributed as dist; dist.init_process_group();"
                               "os.write(1, ('torchrun ' + dist.get_backend() + chr(10)).encode()); dist.destroy_process_group()")
                subprocess.run([sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone", worker],
                               check=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
        """)
        self.assertEqual(sorted(said.splitlines()),
                         ["fork sprat 2.0"] * 2 + ["spawn sprat 2.0"] * 2 + ["torchrun sprat"] * 2)

    def test_a_module_takes_options_of_its_own(self) -> None:
        ended = subprocess.run([sys.executable, "-m", "sprat.torch.run", "-n", "2", "-m", "timeit", "-n", "1", "-r", "1",
                                "import torch.distributed as d; d.init_process_group('gloo'); print(d.get_backend())"],
                               env=clean(), text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120)
        self.assertEqual(ended.returncode, 0, ended.stdout)
        self.assertEqual(ended.stdout.count("sprat"), 2, ended.stdout)

    def test_says_what_it_wants_when_there_is_nothing_to_run(self) -> None:
        for arguments, status in (([], 2), (["--help"], 0), (["-m"], 2), (["-n", "2"], 2)):
            ended = subprocess.run([sys.executable, "-m", "sprat.torch.run", *arguments], env=clean(), text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120)
            self.assertEqual(ended.returncode, status, ended.stdout)
            self.assertIn("python -m sprat.torch.run SCRIPT", ended.stdout)

    def test_refuses_to_start_ranks_inside_of_a_job(self) -> None:
        said = self.script("", "-n", "2", status=2, RANK="0", WORLD_SIZE="1")
        self.assertIn("-n 2 inside of a job", said)


class Sagemaker(unittest.TestCase):
    """python -m sprat.torch.run --sagemaker, in one process."""

    def script(self, program: str, distribution: object = None, status: int = 0, **variables: str) -> str:
        with tempfile.TemporaryDirectory() as folder:
            options = ["--sagemaker"]
            if distribution is not None:
                options.append(str(pathlib.Path(folder) / "distribution.json"))
                pathlib.Path(options[-1]).write_text(json.dumps(distribution))
            ended = under_run(folder, program, options, variables)
        self.assertEqual(ended.returncode, status, ended.stdout)
        return ended.stdout

    def test_init_takes_the_estimators_parameters_from_the_file(self) -> None:
        parameters = {"hybrid_shard_degree": 1, "random_seed": 5}
        section = {"modelparallel": {"enabled": True, "parameters": parameters}}
        for distribution in ({"torch_distributed": {"enabled": True}, "smdistributed": section}, section, parameters):
            said = self.script("""
                import torch.sagemaker as tsm
                from torch.sagemaker import state
                tsm.init()
                print(state.config["random_seed"], tsm.state is state)
            """, distribution)
            self.assertEqual(said, "5 True\n")

    def test_init_without_a_file_has_the_defaults_of_its_version(self) -> None:
        said = self.script("""
            import smdistributed.modelparallel.torch as smp
            print(smp.init().generation, smp.pp_size(), smp.PP_GROUP is smp.CommGroup.PP_GROUP)
            import torch.sagemaker as tsm
            print(tsm.init().generation, tsm.init({"random_seed": 9}).config["random_seed"])
        """)
        self.assertEqual(said, "v1 1 True\nv2 9\n")
        said = self.script("import torch.sagemaker as tsm; print(tsm.init().config['random_seed'])",
                           SM_HP_MP_PARAMETERS='{"random_seed": 4}')
        self.assertEqual(said, "4\n")

    def test_its_backends_are_sprat_also_in_a_device_map_and_in_children(self) -> None:
        said = self.script("""
            import subprocess, sys, torch, torch.distributed as dist
            import smdistributed.dataparallel.torch.torch_smddp
            for name in ("smddp", "nccl", "gloo", "cpu:gloo,cuda:nccl"):
                dist.init_process_group(name)
                dist.all_reduce(torch.ones(1))
                print(name, type(dist.group.WORLD._get_backend(torch.device("cpu"))).__module__, flush=True)
                dist.destroy_process_group()
            if torch.cuda.device_count() == 0:
                subprocess.run([sys.executable, "-c", "import torch.sagemaker, torch.distributed as d;"
                                "d.init_process_group('nccl'); print('child', d.get_backend())"], check=True)
            else:
                print("child sprat")
        """)
        native = "sprat.torch._native"
        names = ("smddp", "gloo", "cpu:gloo,cuda:nccl") if torch.cuda.is_available() else (
            "smddp", "nccl", "gloo", "cpu:gloo,cuda:nccl")
        for name in names:
            self.assertIn(f"{name} {native}\n", said)
        self.assertIn("child sprat\n", said)

    def test_a_name_that_is_not_served_says_what_to_use_instead(self) -> None:
        for statement, kind, remedy in (
                ("import torch.sagemaker as tsm; tsm.MoEConfig", "AttributeError", "experts over ranks are not served"),
                ("from torch.sagemaker import MoEConfig", "ImportError", "experts over ranks are not served"),
                ("from torch.sagemaker.moe.moe_config import MoEConfig", "ImportError", "experts over ranks are not served"),
                ("from torch.sagemaker.nn.attn import FlashSelfAttention", "ImportError", "scaled_dot_product_attention"),
                ("import torch.sagemaker as tsm; tsm.no_such", "AttributeError", "docs/frameworks/sagemaker.md"),
                ("import torch.sagemaker.no_such", "ImportError", "docs/frameworks/sagemaker.md"),
                ("import smdistributed.modelparallel.torch as smp; smp.no_such", "AttributeError", "docs/smp/names.md"),
                ("from smdistributed.modelparallel.torch import no_such", "ImportError", "docs/smp/names.md")):
            with self.subTest(statement):
                said = self.script(statement, status=1)
                self.assertIn(kind + ": ", said.splitlines()[-1])
                self.assertIn(remedy, said.splitlines()[-1])

    def test_smddps_calls_before_it_was_a_backend(self) -> None:
        said = self.script("""
            import torch
            import smdistributed.dataparallel.torch.distributed as dist
            from smdistributed.dataparallel.torch.parallel.distributed import DistributedDataParallel as DDP
            dist.init_process_group()
            tensor = torch.ones(2)
            dist.all_reduce(tensor, op=dist.ReduceOp.AVERAGE)
            dist.broadcast(tensor, src=0)
            dist.barrier()
            DDP(torch.nn.Linear(2, 1), device_ids=[dist.get_local_rank()])(tensor).sum().backward()
            print(dist.get_world_size(), dist.get_rank(), tensor.tolist())
            try:
                DDP(torch.nn.Linear(2, 1), broadcast_buffers=True)
            except ValueError as error:
                print(error)
            dist.destroy_process_group()
        """)
        self.assertTrue(said.startswith("1 0 [1.0, 1.0]\nbroadcast_buffers=True: SMDDP never"), said)

    def test_every_name_of_the_table_is_there(self) -> None:
        import importlib

        from sprat.sagemaker.names import MODULES

        for module, served in MODULES.items():
            for source in (*served.names.values(), *filter(None, [served.forward])):
                with self.subTest(f"{module}: {source}"):
                    name, _, path = source.partition(":")
                    found = importlib.import_module(name)
                    for part in filter(None, path.split(".")):
                        found = getattr(found, part)
            if "." in module:
                self.assertTrue(module.rpartition(".")[0] in MODULES or module == "torch.sagemaker", module)

    def test_a_file_that_is_not_there_is_named(self) -> None:
        ended = subprocess.run([sys.executable, "-m", "sprat.torch.run", "--sagemaker", "absent.json", "script.py"],
                               env=clean(), text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60)
        self.assertEqual(ended.returncode, 2)
        self.assertIn("absent.json: there is no such file", ended.stdout)


class Wheel(unittest.TestCase):
    def test_brings_the_command_that_errors_name(self) -> None:
        files = importlib.metadata.files("sprat-torch")
        if files is None:
            self.skipTest("needs pip install ./plugins/torch")
        commands = [file.locate() for file in files if file.name == "sprat" and file.parent.name == "bin"]
        self.assertEqual(len(commands), 1, "pip installed no sprat")
        ended = subprocess.run([commands[0], "status", "--help"], text=True, stdout=subprocess.PIPE, timeout=60)
        self.assertEqual(ended.returncode, 0)


if __name__ == "__main__":
    unittest.main()
