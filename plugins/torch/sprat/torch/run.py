"""Runs a program whose framework chooses gloo by itself, with Sprat in gloo's place.

    python -m sprat.torch.run SCRIPT [ARGUMENT...]
    python -m sprat.torch.run -m MODULE [ARGUMENT...]

Under torchrun, mpirun and srun too: torchrun --nproc-per-node 4 -m sprat.torch.run SCRIPT. Where
the program asks torch.distributed for gloo, or names no backend on a machine without an
accelerator, it gets sprat; other backends stay. Programs that it starts by themselves are not
changed.
"""

from __future__ import annotations

import functools
import inspect
import os
import runpy
import sys
from typing import Any, Callable

import torch
import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d

import sprat.torch
from sprat.torch.launch import launched


def without_gloo(backend: str) -> str:
    """"sprat" for "gloo", and "cpu:sprat,cuda:nccl" for "cpu:gloo,cuda:nccl"."""
    parts = [part.split(":") for part in backend.lower().split(",")]
    if not any(part[-1] == "gloo" for part in parts):
        return backend
    return ",".join(":".join([*part[:-1], "sprat"] if part[-1] == "gloo" else part) for part in parts)


def _chosen_by_pytorch() -> str | None:
    """For a default group without a name: None where that is an accelerator's."""
    device = torch._C._get_accelerator().type
    return "sprat" if dist.Backend.default_device_backend_map.get(device) == "gloo" else None


def take_the_place_of_gloo() -> None:
    """From here on, wherever these functions have been imported to."""
    _change("init_process_group", _chosen_by_pytorch)
    _change("new_group", lambda: None)  # the default group's


def _change(name: str, unnamed: Callable[[], str | None]) -> None:
    function = getattr(c10d, name)
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        bound = signature.bind(*arguments, **named)
        backend = bound.arguments.get("backend")
        bound.arguments["backend"] = without_gloo(backend) if backend else unnamed()
        return function(*bound.args, **bound.kwargs)

    for module in list(sys.modules.values()):
        if getattr(module, "__dict__", {}).get(name) is function:
            setattr(module, name, call)


def main(arguments: list[str]) -> int:
    """Returns only if there is nothing to run; else the program ends as it does alone."""
    if arguments[:1] in (["-h"], ["--help"]):
        print(__doc__)
        return 0
    as_module = arguments[:1] == ["-m"]
    program = arguments[as_module:]
    if not program or program[0].startswith("-"):
        print(f"sprat.torch.run: nothing to run\n\n{__doc__}", file=sys.stderr)
        return 2
    if launched(os.environ):
        sprat.torch.launch_environment()
    take_the_place_of_gloo()
    sys.argv[:] = program
    if as_module:
        runpy.run_module(program[0], run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = os.path.dirname(os.path.abspath(program[0]))
        runpy.run_path(program[0], run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
