"""Tests of python -m sprat.torch.run with programs that do odd things, and with options that are wrong.

Use: python tests/system/torch/run_test.py, with a Python that has torch and, by pip, sprat-torch.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import textwrap
import unittest
import unittest.mock
import zipfile

from autoload_test import clean

RUN = (sys.executable, "-m", "sprat.torch.run")


class Case(unittest.TestCase):
    def setUp(self) -> None:
        held = tempfile.TemporaryDirectory(prefix="a folder ")  # With spaces, as people have.
        self.addCleanup(held.cleanup)
        self.folder = pathlib.Path(held.name)

    def write(self, name: str, program: str) -> str:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(program))
        return str(path)

    def run_it(self, *arguments: str, status: int = 0, **variables: str) -> str:
        ended = subprocess.run([*RUN, *arguments], env=clean(**variables), text=True, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, timeout=120, cwd=self.folder)
        self.assertEqual(ended.returncode, status, ended.stdout)
        return ended.stdout


class Options(Case):
    def refused(self, *arguments: str) -> str:
        """What is said where the command ends before it starts anything."""
        from sprat.torch import run

        said = io.StringIO()
        with contextlib.chdir(self.folder), contextlib.redirect_stderr(said), self.assertRaises(SystemExit) as ended:
            run.parse(list(arguments))
        self.assertEqual(ended.exception.code, 2)
        return said.getvalue()

    def test_a_program_that_is_not_there_is_named_before_ranks_start(self) -> None:
        for options in ([], ["-n", "2"]):
            self.assertIn("absent.py: there is no such file", self.refused(*options, "absent.py"))

    def test_options_may_stand_behind_the_distribution(self) -> None:
        self.write("given.json", '{"random_seed": 3}')
        self.write("beside.py", "import os, sys, torch.sagemaker as tsm\n"
                                "line = f\"{tsm.init().config['random_seed']} {sys.argv[1:]}\\n\"\n"
                                "os.write(1, line.encode())")
        for options, ranks in ((["-m", "beside"], 1), (["-n", "2", "-m", "beside"], 2)):
            said = self.run_it("--sagemaker", "given.json", *options, "-n", "7")
            self.assertEqual(said, "3 ['-n', '7']\n" * ranks)

    def test_two_dashes_end_the_options(self) -> None:
        self.write("program.py", "import sys; print(sys.argv)")
        self.assertEqual(self.run_it("--", "program.py", "--", "-n"), "['program.py', '--', '-n']\n")

    def test_a_distribution_that_is_wrong_is_said_before_ranks_start(self) -> None:
        self.write("program.py", "")
        nested = {"modelparallel": {"enabled": True, "parameters": 7}}
        for text, words in (("{", "is not JSON"), ("[]", "no object"), ('"\xff"', "no object"),
                            ('{"smdistributed": null}', '"smdistributed" is null'),
                            ('{"smdistributed": {"modelparallel": true}}', '"modelparallel" is true'),
                            ('{"modelparallel": {"enabled": "no"}}', '"enabled" is "no"'),
                            (json.dumps({"smdistributed": nested}), '"parameters" is 7')):
            with self.subTest(text):
                self.write("given.json", text)
                said = self.refused("-n", "2", "--sagemaker", "given.json", "program.py")
                self.assertIn("given.json", said)
                self.assertIn(words, said)
        (self.folder / "given.json").write_bytes(b'{"a": "\xff"}')
        self.assertIn("is not JSON", self.refused("--sagemaker", "given.json", "program.py"))

    def test_half_a_launcher_is_named_in_one_line(self) -> None:
        self.write("program.py", "")
        said = self.run_it("program.py", status=2, WORLD_SIZE="2")
        self.assertRegex(said, "^sprat.torch.run: WORLD_SIZE is 2 .* set both")
        self.assertEqual(len(said.splitlines()), 1, said)

    def test_0_in_the_variable_leaves_gloo_and_the_command_does_not(self) -> None:
        program = self.write("program.py", """
            import torch.distributed as dist
            dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
            print(dist.get_backend())
        """)
        plain = subprocess.run([sys.executable, program], env=clean(TORCH_RUN_ON_SPRAT="0"), text=True,
                               stdout=subprocess.PIPE, timeout=60)
        self.assertEqual(plain.stdout, "gloo\n")
        self.assertEqual(self.run_it(program, TORCH_RUN_ON_SPRAT="0"), "sprat\n")


class Programs(Case):
    def test_what_outlives_the_last_line_still_finds_the_program(self) -> None:
        """A thread that saves, a handler at exit: both pickle what the program has defined."""
        body = """
            import atexit, os, pickle, threading, time

            class State:
                pass

            def save(who):
                print(who, type(pickle.loads(pickle.dumps(State()))).__module__, flush=True)

            go = threading.Event()
            threading.Thread(target=lambda: (go.wait(), time.sleep(0.2), save("thread"))).start()
            atexit.register(save, "exit")
            atexit.register(go.set)
            go.set()
        """
        self.write("state.py", body)
        for options in (["state.py"], ["-m", "state"]):
            self.assertEqual(self.run_it(*options), "thread __main__\nexit __main__\n")

    def test_a_script_sees_what_python_shows_it(self) -> None:
        """Its name, arguments and folder, through a link too; no future of the launcher's."""
        self.write("real/beside.py", "here = True")
        self.write("real/program.py", """
            import beside, inspect, sys
            def f(x: int): return x
            print(__name__, __file__, __spec__, sys.argv, sys.path[0].endswith("real"), f.__annotations__["x"])
            print(inspect.getsource(f).strip(), sys.modules["__main__"].beside.here)
        """)
        (self.folder / "link.py").symlink_to(self.folder / "real/program.py")
        for path in ("real/program.py", "link.py"):
            plain = subprocess.run([sys.executable, path, "-n", "a b"], env=clean(), text=True, cwd=self.folder,
                                   stdout=subprocess.PIPE, timeout=60)
            self.assertIn("<class 'int'>", plain.stdout)
            self.assertEqual(self.run_it(path, "-n", "a b"), plain.stdout)

    def test_a_module_sees_what_python_shows_it(self) -> None:
        program = """
            import sys
            from . import beside
            print(__name__, __package__, __spec__.name, __file__ == sys.argv[0], sys.argv[1:])
        """
        self.write("package/__init__.py", "")
        self.write("package/beside.py", "")
        self.write("package/tool.py", program)
        self.write("package/__main__.py", program)
        for name in ("package", "package.tool"):
            plain = subprocess.run([sys.executable, "-m", name, "-m", "x"], env=clean(), text=True, cwd=self.folder,
                                   stdout=subprocess.PIPE, timeout=60)
            self.assertIn("__main__ package", plain.stdout)
            self.assertEqual(self.run_it("-m", name, "-m", "x"), plain.stdout)
        self.assertIn("no module absent that can be run", self.run_it("-m", "absent", status=1))

    def test_folders_archives_and_compiled_files_run(self) -> None:
        self.write("folder/__main__.py", "import beside; print('ran', __name__)")
        self.write("folder/beside.py", "")
        with zipfile.ZipFile(self.folder / "program.pyz", "w") as archive:
            archive.write(self.folder / "folder/__main__.py", "__main__.py")
            archive.write(self.folder / "folder/beside.py", "beside.py")
        compiled = "import py_compile; py_compile.compile('folder/__main__.py', 'folder/program.pyc')"
        subprocess.run([sys.executable, "-c", compiled], cwd=self.folder, check=True)
        for path in ("folder", "program.pyz", "folder/program.pyc"):
            self.assertEqual(self.run_it(path), "ran __main__\n")

    def test_the_tutorials_program_that_spawns_its_ranks(self) -> None:
        """It sets its own address and port, and hands ranks over."""
        self.write("program.py", """
            import os, socket, sys, torch, torch.distributed as dist, torch.multiprocessing as mp

            def main(rank, port):
                os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "localhost", port
                dist.init_process_group("gloo", rank=rank, world_size=2)
                total = torch.ones(1)
                dist.all_reduce(total)
                os.write(1, f"{dist.get_backend()} {total.item()}\\n".encode())
                dist.destroy_process_group()

            if __name__ == "__main__":
                with socket.socket() as held:
                    held.bind(("", 0))
                    port = str(held.getsockname()[1])
                mp.spawn(main, (port,), nprocs=2)
        """)
        self.assertEqual(self.run_it("program.py"), "sprat 2.0\n" * 2)

    def test_torchrun_in_each_rank_of_a_job(self) -> None:
        self.write("worker.py", "import os, torch.distributed as d; d.init_process_group('gloo');"
                                "os.write(1, f'{d.get_backend()} {d.get_world_size()}\\n'.encode()); d.destroy_process_group()")
        self.write("program.py", """
            import os, subprocess, sys
            subprocess.run([sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone", "worker.py"],
                           check=True)
        """)
        self.assertEqual(self.run_it("-n", "2", "program.py"), "sprat 2\n" * 4)

    def test_torchrun_as_the_program(self) -> None:
        self.write("worker.py", "import os, torch.distributed as d; d.init_process_group('gloo');"
                                "os.write(1, f'{d.get_backend()} {d.get_world_size()}\\n'.encode()); d.destroy_process_group()")
        said = self.run_it("-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone", "worker.py")
        self.assertEqual(said, "sprat 2\n" * 2)

    def test_what_pytorch_refuses_is_refused_as_ever(self) -> None:
        self.write("program.py", """
            import torch, torch.distributed as dist
            dist.init_process_group("gloo")
            for call in (lambda: dist.init_process_group("gloo"), lambda: dist.new_group(backend="no_such"),
                         lambda: dist.init_process_group(7), lambda: dist.init_process_group(no_such=1)):
                try:
                    call()
                except (AssertionError, ValueError, TypeError, AttributeError) as error:
                    print(type(error).__name__)
            dist.destroy_process_group()
            dist.init_process_group("cpu:gloo,cuda:gloo", pg_options=dist.ProcessGroupGloo._Options()
                                    if hasattr(dist.ProcessGroupGloo, "_Options") else None)
            print(dist.get_backend_config())
        """)
        said = self.run_it("program.py", PYTHONWARNINGS="ignore").splitlines()
        self.assertEqual(said[:4], ["ValueError", "AssertionError", "ValueError", "TypeError"])
        self.assertIn("cpu:sprat", said[4])

    def test_a_rank_that_never_comes_ends_the_wait_at_the_programs_timeout(self) -> None:
        self.write("program.py", """
            import os, sys, time, torch.distributed as dist
            from datetime import timedelta
            if os.environ["RANK"] == "1":
                time.sleep(60)
            begin = time.monotonic()
            try:
                dist.init_process_group("gloo", timeout=timedelta(seconds=3))
            except Exception as error:
                print(f"{type(error).__name__} after {time.monotonic() - begin:.0f} s: {error}", flush=True)
                os._exit(4)
        """)
        said = self.run_it("-n", "2", "program.py", status=4)
        self.assertRegex(said, r"Error after [2-9] s")


class Endings(Case):
    SLEEPS = """
        import os, signal, sys, time
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.write(1, f"{os.getpid()}\\n".encode())
        time.sleep(100)
    """

    def started(self) -> tuple[subprocess.Popen, list[int]]:
        """A job of two ranks that no signal but SIGKILL ends, and its ranks' process numbers."""
        self.write("program.py", self.SLEEPS)
        def hear_signals() -> None:
            # Who started the tests with nohup, or behind a shell's &, has them ignored.
            for number in (signal.SIGHUP, signal.SIGINT):
                signal.signal(number, signal.SIG_DFL)

        job = subprocess.Popen([*RUN, "-n", "2", "program.py"], env=clean(), text=True, cwd=self.folder, preexec_fn=hear_signals,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
        self.addCleanup(job.stdout.close)
        return job, [int(job.stdout.readline()) for _ in range(2)]

    def ends(self, job: subprocess.Popen, ranks: list[int], status: int) -> None:
        self.assertEqual(job.wait(60), status)
        for rank in ranks:
            with self.assertRaises(ProcessLookupError):
                os.kill(rank, 0)

    def test_a_terminal_that_closes_ends_the_ranks(self) -> None:
        job, ranks = self.started()
        job.send_signal(signal.SIGHUP)
        self.ends(job, ranks, 128 + signal.SIGHUP)

    def test_an_impatient_second_signal_leaves_no_rank_behind(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            with self.subTest(number):
                job, ranks = self.started()
                job.send_signal(number)
                with self.assertRaises(subprocess.TimeoutExpired):
                    job.wait(1)  # Ranks have five seconds.
                job.send_signal(number)
                self.ends(job, ranks, 128 + number)

    def test_a_signal_without_a_name_is_said_by_its_number(self) -> None:
        self.write("program.py", "import os, signal; os.kill(os.getpid(), signal.SIGRTMIN + 3)")
        number = signal.SIGRTMIN + 3
        said = self.run_it("-n", "1", "program.py", status=128 + number)
        self.assertIn(f"rank 0 was killed by signal {number}", said)


class Replacement(unittest.TestCase):
    def test_without_a_name_it_is_what_pytorch_takes_for_the_device(self) -> None:
        """On a machine with a GPU that is nccl, which stays, though a script for SageMaker names it."""
        import torch

        from sprat import replacement

        for device, gpus, replaced, expected in (("cpu", 0, {"gloo"}, "sprat"), ("cpu", 0, {"gloo", "nccl", "smddp"}, "sprat"),
                                                 ("cuda", 1, {"gloo"}, None), ("cuda", 1, {"gloo", "nccl", "smddp"}, None)):
            accelerator = unittest.mock.Mock(type=device)
            with (unittest.mock.patch.object(replacement, "_replaced", replaced),
                  unittest.mock.patch.object(torch._C, "_get_accelerator", return_value=accelerator),
                  unittest.mock.patch.object(torch.cuda, "device_count", return_value=gpus)):
                self.assertEqual(replacement._chosen("init_process_group", None), expected)
                cpu = torch.device("cpu", 0)
                self.assertEqual(replacement._chosen("init_process_group", None, cpu), "sprat")
                self.assertEqual(replacement._chosen("init_process_group", "cpu:gloo,cuda:nccl"),
                                 "cpu:sprat,cuda:nccl" if gpus or "nccl" not in replaced else "cpu:sprat,cuda:sprat")


if __name__ == "__main__":
    unittest.main()
