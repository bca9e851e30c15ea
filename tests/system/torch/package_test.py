"""Tests of the package: which native module is loaded, its types, and that its sources build without this tree.

Use: python tests/system/torch/package_test.py, with a Python that has torch and, by pip, sprat-torch.
"""

from __future__ import annotations

import ast
import contextlib
import importlib.machinery
import inspect
import io
import os
import pathlib
import pickle
import re
import subprocess
import sys
import tarfile
import tempfile
import unittest
import unittest.mock

import torch

TREE = pathlib.Path(__file__).resolve().parents[3]
PLUGIN = TREE / "plugins/torch"
sys.path.insert(0, str(PLUGIN / "packaging"))


class Folder(unittest.TestCase):
    def setUp(self) -> None:
        held = tempfile.TemporaryDirectory()
        self.addCleanup(held.cleanup)
        self.folder = pathlib.Path(held.name)


class Extension(Folder):
    """Which of several modules is taken, in a folder with modules that hold nothing."""

    def add(self, version: str, suffix: str = importlib.machinery.EXTENSION_SUFFIXES[0]) -> pathlib.Path:
        place = self.folder / f"torch_{'_'.join(version.split('.')[:2])}"
        place.mkdir()
        (place / "built_for.txt").write_text(f"{version}\n")
        (place / f"_native{suffix}").touch()
        return place / f"_native{suffix}"

    def refused(self, installed: str) -> str:
        from sprat.torch._extension import module_file

        with self.assertRaises(ImportError) as caught:
            module_file(installed, self.folder)
        return str(caught.exception)

    def test_is_chosen_by_pytorchs_minor_version(self) -> None:
        from sprat.torch._extension import built_for, module_file

        files = {version: self.add(version) for version in ("2.9.1", "2.11.0+cu130", "2.14.1")}
        for installed, version in (("2.11.2", "2.11.0+cu130"), ("2.14.0+cpu", "2.14.1"), ("2.9.0a0+git1", "2.9.1")):
            self.assertEqual(module_file(installed, self.folder), files[version])
        self.assertEqual(list(built_for(self.folder)), ["2.9", "2.11", "2.14"])

    def test_an_unknown_minor_is_refused_by_what_to_type(self) -> None:
        self.add("2.11.0+cu130")
        self.add("2.12.1")
        said = self.refused("2.16.0")
        self.assertIn("built for PyTorch 2.11.0+cu130, 2.12.1, and this is 2.16.0", said)
        self.assertIn("pip install --force-reinstall --no-deps ./plugins/torch", said)
        self.assertIn('pip install "torch==2.12.*"', said)

    def test_no_module_and_one_of_another_python_are_told_apart(self) -> None:
        self.assertIn("has no native module; pip install", self.refused("2.11.0"))
        self.add("2.11.0", ".cpython-39-x86_64-linux-gnu.so")
        said = self.refused("2.11.0")
        self.assertIn("built for another Python", said)
        self.assertIn("_native.cpython-39-x86_64-linux-gnu.so", said)
        self.assertIn(f"Python {sys.version_info.major}.{sys.version_info.minor}", said)

    def test_the_installed_one_fits_and_has_one_name(self) -> None:
        import sprat.torch
        from sprat.torch import _native
        from sprat.torch._extension import FOLDER, minor

        self.assertIs(_native, sprat.torch._native)
        self.assertIs(_native, sys.modules["sprat.torch._native"])
        self.assertEqual(pathlib.Path(_native.__file__).parent,
                         FOLDER / f"torch_{minor(torch.__version__).replace('.', '_')}")


class Import(unittest.TestCase):
    def in_a_process(self, program: str) -> str:
        ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
        self.assertEqual(ended.returncode, 0, ended.stderr)
        return ended.stdout.strip()

    def test_takes_no_more_of_pytorch_than_a_group_needs(self) -> None:
        self.assertEqual("[]", self.in_a_process(
            "import sys, torch; before = set(sys.modules); import sprat.torch; print([name for name in ('sympy',"
            "'torch.distributed.fsdp', 'torch.distributed.checkpoint', 'sprat.torch.smp') if name in {*sys.modules} - before])"))

    def test_gives_what_comes_on_its_first_use_by_its_names(self) -> None:
        self.assertEqual("True True True", self.in_a_process(
            "import sprat.torch; first = sprat.torch.overlap, sprat.torch.state, sprat.torch.init; import sprat.torch.smp as smp;"
            "import sprat.torch.fsdp2; print(sprat.torch.overlap is first[0] is sprat.torch.fsdp2.overlap,"
            "sprat.torch.smp is smp, (smp.state, smp.init) == first[1:])"))

    def test_has_no_other_names(self) -> None:
        import sprat.torch

        with self.assertRaisesRegex(AttributeError, "module 'sprat.torch' has no attribute 'overlapp'"):
            sprat.torch.overlapp
        self.assertLessEqual(set(sprat.torch.__all__), set(dir(sprat.torch)))


class Types(unittest.TestCase):
    def test_the_stub_has_every_name_of_the_native_module(self) -> None:
        from sprat.torch import _native

        stub = ast.parse((PLUGIN / "sprat/torch/_native.pyi").read_text())
        known = {node.name: node for node in stub.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
        public = {name for name in vars(_native) if not name.startswith("_")}
        self.assertEqual(public, set(known))
        for name, node in known.items():
            if isinstance(node, ast.ClassDef):
                there = {member for member in vars(getattr(_native, name)) if not member.startswith("__")
                         and not member.startswith("_pybind")}
                written = {member.name for member in node.body if isinstance(member, ast.FunctionDef)
                           and not member.name.startswith("__")}
                self.assertEqual(there, written, name)

    def test_what_the_package_exports_is_annotated(self) -> None:
        import sprat.torch

        for name in sprat.torch.__all__:
            value = getattr(sprat.torch, name)
            function = value.__init__ if inspect.isclass(value) else value
            if inspect.isfunction(function):
                with self.subTest(name):
                    parameters = list(inspect.signature(function).parameters.values())[inspect.isclass(value):]
                    bare = [one.name for one in parameters if one.annotation is inspect.Parameter.empty]
                    self.assertFalse(bare, "parameters without a type")
                    self.assertIn("return", function.__annotations__)

    def test_the_markers_of_types_are_installed(self) -> None:
        import sprat.sagemaker
        import sprat.torch

        for package in (sprat.torch, sprat.sagemaker):
            self.assertTrue((pathlib.Path(package.__file__).parent / "py.typed").exists(), package.__name__)


class Requirement(unittest.TestCase):
    def test_says_which_minors_there_are_modules_for(self) -> None:
        from torch_dependency import requirement

        for minors, text in ((["2.11"], "torch==2.11.*"), (["2.12", "2.11"], "torch>=2.11,<2.13"),
                             (["2.11", "2.14"], "torch>=2.11,<2.15,!=2.12.*,!=2.13.*")):
            self.assertEqual(requirement(minors), text)

    def test_a_pytorch_that_this_is_not_written_for_ends_the_build(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "version.py").write_text("__version__ = '3.0.0'\n")
            ended = subprocess.run([sys.executable, PLUGIN / "packaging/find_torch.py"], text=True,
                                   env=os.environ | {"SPRAT_TORCHES": folder}, stderr=subprocess.PIPE)
            self.assertEqual(ended.returncode, 1)
            self.assertIn("written for PyTorch 2.11 to 2.15", ended.stderr)
            self.assertIn('pip install "torch==2.11.0"', ended.stderr)

    def test_cuda_is_not_left_out_without_a_word_where_it_is_asked_for(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "version.py").write_text("__version__ = '2.11.0+cpu'\n")

            def configured(cuda: str) -> tuple[int, str]:
                command = ["cmake", "-S", PLUGIN, "-B", f"{folder}/{cuda}", f"-DSPRAT_TORCH_CUDA={cuda}", f"-DPython_EXECUTABLE={sys.executable}"]
                ended = subprocess.run(command, text=True, env=os.environ | {"SPRAT_TORCHES": folder}, stdout=subprocess.PIPE,
                                       stderr=subprocess.STDOUT)
                return ended.returncode, " ".join(ended.stdout.split())

            status, said = configured("ON")
            self.assertEqual(status, 1, said)
            self.assertIn(f"SPRAT_TORCH_CUDA is ON, and PyTorch 2.11.0+cpu in {folder} was built without CUDA: install one that has it", said)
            status, said = configured("AUTO")
            self.assertEqual(status, 0, said)
            self.assertIn("without CUDA tensors: it was built without CUDA", said)


class SourcePackage(unittest.TestCase):
    """The archive, unpacked where there is nothing else of Sprat."""

    @classmethod
    def setUpClass(cls) -> None:
        import source_package

        held = tempfile.TemporaryDirectory()
        cls.addClassCleanup(held.cleanup)
        cls.folder = pathlib.Path(held.name)
        name = source_package.write(PLUGIN, cls.folder)
        with tarfile.open(cls.folder / name) as archive:
            archive.extractall(cls.folder)
        cls.root = cls.folder / name.removesuffix(".tar.gz")

    def test_has_whatever_its_sources_include(self) -> None:
        missing = []
        for file in self.root.rglob("*"):
            if file.suffix in (".cpp", ".hpp", ".h"):
                for name in re.findall(r'^#include "([^"]+)"', file.read_text(), re.MULTILINE):
                    places = (self.root, self.root / "include", file.parent)
                    if not any((place / name).exists() for place in places) and not self.from_outside(name):
                        missing.append(f"{file.relative_to(self.root)}: {name}")
        self.assertFalse(missing)

    def from_outside(self, name: str) -> bool:
        """Of no folder of ours."""
        return not (TREE / name).exists() and not (TREE / "include" / name).exists()

    def test_has_every_folder_and_file_that_its_cmake_names(self) -> None:
        for file in (self.root / "CMakeLists.txt", self.root / "plugins/torch/CMakeLists.txt"):
            for kind, name in re.findall(r"^(add_subdirectory|include)\(([\w./]+)\)?", file.read_text(), re.MULTILINE):
                if name not in ("bench", "tests"):  # Which stand behind an option that is off here.
                    place = file.parent / name
                    self.assertTrue((place / "CMakeLists.txt" if kind == "add_subdirectory" else place).exists(), name)

    def test_its_project_file_lies_above_and_points_into_it(self) -> None:
        project = (self.root / "pyproject.toml").read_text()
        for line in ('backend-path = ["plugins/torch/packaging"]', 'wheel.packages = ["plugins/torch/sprat"]',
                     'cmake.source-dir = "plugins/torch"', 'build-dir = "build/{wheel_tag}"'):
            self.assertIn(line, project)
        self.assertNotIn("..", project)
        information = (self.root / "PKG-INFO").read_text()
        self.assertIn("Name: sprat-torch\n", information)
        self.assertIn("Requires-Python: >=3.10\n", information)

    def test_makes_the_same_package_again(self) -> None:
        import source_package

        again = self.folder / "again"
        again.mkdir()
        name = source_package.write(self.root, again)
        with tarfile.open(self.folder / name) as first, tarfile.open(again / name) as second:
            self.assertEqual([one.name for one in first], [one.name for one in second])

    def test_a_folder_that_is_not_the_project_is_refused(self) -> None:
        import source_package

        with self.assertRaises(SystemExit) as caught, contextlib.redirect_stderr(io.StringIO()):
            source_package.write(self.folder, self.folder)
        self.assertIn("the library's sources are not there", str(caught.exception))


class Merged(unittest.TestCase):
    """Records of PyTorch's own backends and ours in one dump."""

    def test_numbers_go_on_where_pytorchs_end(self) -> None:
        from sprat.torch.flight_trace import merged

        others = {"version": "2.10", "pg_config": {"0": "gloo's"}, "pg_status": {"0": 1, "3": 2}, "comm_lib_version": "",
                  "entries": [{"record_id": 4, "pg_id": 3}]}
        ours = {"version": "2.10", "pg_config": {"7": "ours"}, "pg_status": {"0": 5}, "comm_lib_version": "sprat 0.1.0",
                "entries": [{"record_id": 0, "pg_id": 0}, {"record_id": 1, "pg_id": 0}]}
        both = merged(others, ours)
        self.assertEqual(both["pg_config"], {"0": "gloo's", "7": "ours"})
        self.assertEqual(both["pg_status"], {"0": 1, "3": 2, "4": 5})
        self.assertEqual(both["comm_lib_version"], "sprat 0.1.0")
        self.assertEqual(both["entries"], [{"record_id": 4, "pg_id": 3}, {"record_id": 5, "pg_id": 4},
                                           {"record_id": 6, "pg_id": 4}])

    def test_a_process_without_our_groups_has_pytorchs_dump_as_it_is(self) -> None:
        from sprat.torch import flight_trace

        if flight_trace.WATCHED:
            self.skipTest("this PyTorch records every backend's calls by itself")
        dump = pickle.loads(torch._C._distributed_c10d._dump_fr_trace(True, False, False))
        self.assertEqual(dump, pickle.loads(flight_trace._dump_fr_trace.others(True, False, False)))


if __name__ == "__main__":
    unittest.main()
