"""What docs/mission.md names: tests that were built, scripts, rules of `sprat plan`, rows of tables."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from pages import ROOT, tables


class Known:
    """All that may be named. `binaries` is the folder of the programs, `build` that of CMake."""

    def __init__(self, binaries: Path, build: Path) -> None:
        self.unit = set[str]()
        # Files that GoogleTest's discovery leaves: other programs would begin to work.
        for left in (build / "tests").glob("test_*_include.cmake"):
            program = binaries / left.name.partition("[")[0]
            if program.exists():
                self.unit |= _tests_of(program)
        listed = subprocess.run(["ctest", "-N"], cwd=build, capture_output=True, text=True, check=True, timeout=60).stdout
        self.ctest = set(re.findall(r"^ *Test +#\d+: (\S+)$", listed, re.MULTILINE))
        self.cells = {cells[0] for _, cells in tables("docs/pytorch_features.md") if cells[-1].startswith("yes")}
        self.rules = set(re.findall(r'AdviceRule\{"(\w+)"', (ROOT / "planning/advice.cpp").read_text()))

    def missing(self, name: str) -> str:
        """Why nobody can find what is named so; empty if it is there."""
        if name.startswith("cell: "):
            return "" if name[6:] in self.cells else "docs/pytorch_features.md has no such row that sprat passes"
        if name.startswith("plan: "):
            return "" if name[6:] in self.rules else "planning/advice.cpp has no such rule"
        if name.startswith("torch/"):
            return _missing_python(name)
        if "/" in name:
            return missing_script(name.split()[0])
        if re.fullmatch(r"[a-z_]+\.[\w.,]+", name):
            return "" if name in self.ctest else "ctest lists no such test"
        return "" if name in self.unit else "no test program lists it"


def missing_script(path: str) -> str:
    """Why this file of the repository cannot be started; empty if it can."""
    file = ROOT / path
    if not file.is_file():
        return "there is no such file"
    if os.access(file, os.X_OK) or file.suffix == ".py":
        return ""
    return "it is no program: nobody may execute it"


def _missing_python(name: str) -> str:
    path, _, test = name.partition("::")
    file = ROOT / "tests/system" / path
    if not file.is_file():
        return "there is no such file"
    return "" if re.search(rf"def test_{test}\(", file.read_text()) else "the file has no such test"


def _tests_of(program: Path) -> set[str]:
    """Suite.name of each test, without prefixes and parameters; none if it is no program of GoogleTest's."""
    listed = subprocess.run([program, "--gtest_list_tests"], capture_output=True, text=True, timeout=60).stdout
    found, suite = set(), ""
    for line in listed.splitlines():
        name = line.split("#")[0].rstrip()
        if re.fullmatch(r"[\w/]+\.", name):
            suite = name.rstrip(".").split("/")
            suite = suite[1] if len(suite) > 1 and not suite[1].isdigit() else suite[0]
        elif suite and re.fullmatch(r"  \S+", name):
            found.add(f"{suite}.{name.strip().split('/')[0]}")
    return found
