"""Whether the native module fits the PyTorch that is installed: c10d has no stable ABI."""

from __future__ import annotations

import importlib.util
import pathlib


def built_for() -> str:
    """The version of PyTorch that the native module was built with, as "2.11.0+cu130"."""
    return (pathlib.Path(__file__).parent / "_built_for.txt").read_text().strip()


def minor(version: str) -> str:
    """ "2.11" of "2.11.0+cu130"."""
    return ".".join(version.split("+")[0].split(".")[:2])


def check_torch(installed: str) -> None:
    """Raises ImportError if PyTorch has changed since the build."""
    if importlib.util.find_spec("sprat.torch._native") is None:
        raise ImportError("sprat.torch has no native module; pip install ./plugins/torch")
    if minor(installed) != minor(built_for()):
        raise ImportError(
            f"sprat.torch was built for PyTorch {built_for()}, and this is {installed}; "
            "build it again: pip install --force-reinstall --no-deps ./plugins/torch"
        )
