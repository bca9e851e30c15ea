"""Environments that have a framework, and jobs in them: what `run` and `aws` share."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sysconfig
import tempfile
import time
import venv
from typing import Any, NamedTuple

HERE = pathlib.Path(__file__).resolve().parent
ENVIRONMENTS = HERE.parents[3] / "build/frameworks"
LIMIT_SECONDS = 300
EPSILON = 2.0**-23  # Of f32.
OF_LAUNCHERS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "TORCH_RUN_ON_SPRAT", "VICTIM")


class Ended(NamedTuple):
    status: int
    output: str
    at: float  # As time.time() has it.
    reports: list[dict[str, Any]]  # By rank.


def environment(name: str, packages: tuple[str, ...]) -> str:
    """The Python of an environment that has the packages, made where there is none."""
    folder = ENVIRONMENTS / name
    python = str(folder / "bin/python")
    if not (folder / "complete").exists():
        venv.create(folder, clear=True, symlinks=True)
        below = subprocess.run([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], check=True,
                               text=True, stdout=subprocess.PIPE).stdout.strip()
        pathlib.Path(below, "below.pth").write_text(sysconfig.get_path("purelib") + "\n")
        if packages:
            # Without isolation a package that is built sees the PyTorch below, and brings none of its own; nor what it is built with.
            install = [python, "-m", "pip", "install", "--quiet"]
            subprocess.run([*install, "wheel"], check=True)
            subprocess.run([*install, "--no-build-isolation", *packages], check=True, env=os.environ | {"DS_BUILD_OPS": "0"})
        (folder / "complete").touch()
    return python


def version(python: str, package: str) -> str:
    code = f"import importlib.metadata as m; print(m.version({package!r}))"
    return subprocess.run([python, "-c", code], text=True, stdout=subprocess.PIPE, check=True).stdout.strip()


def execute(command: list[str], folder: pathlib.Path = HERE, **variables: str) -> Ended:
    kept = {name: value for name, value in os.environ.items() if name not in OF_LAUNCHERS}
    with tempfile.NamedTemporaryFile("r", prefix="reports.") as reports:
        ours = {"OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu", "REPORT_FILE": reports.name}
        ended = subprocess.run(command, env=kept | ours | variables, text=True, cwd=folder, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, timeout=LIMIT_SECONDS)
        told = sorted((json.loads(line) for line in reports), key=lambda one: one["rank"])
        return Ended(ended.returncode, ended.stdout, time.time(), told)


def require(holds: bool, what: str, ended: Ended) -> None:
    if not holds:
        raise AssertionError(f"{what}; status {ended.status}, and it wrote\n{ended.output[-6000:]}")
