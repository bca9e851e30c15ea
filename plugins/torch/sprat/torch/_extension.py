"""The native module for the PyTorch that is installed: c10d has no stable ABI, so each minor version has its own."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import pathlib
import sys
from types import ModuleType

NAME = "sprat.torch._native"
FOLDER = pathlib.Path(__file__).parent / "extensions"


def minor(version: str) -> str:
    """ "2.11" of "2.11.0+cu130"."""
    return ".".join(version.split("+")[0].split(".")[:2])


def built_for(folder: pathlib.Path = FOLDER) -> dict[str, str]:
    """The versions of PyTorch that there is a module for, by minor: {"2.11": "2.11.0+cu130"}."""
    versions = [file.read_text().strip() for file in folder.glob("torch_*/built_for.txt")]
    return {minor(version): version for version in sorted(versions, key=_order)}


def module_file(installed: str, folder: pathlib.Path = FOLDER) -> pathlib.Path:
    """The module for this PyTorch; ImportError that says what to type where there is none."""
    known = built_for(folder)
    if not known:
        raise ImportError("sprat.torch has no native module; pip install ./plugins/torch")
    if minor(installed) not in known:
        raise ImportError(
            f"sprat.torch was built for PyTorch {', '.join(known.values())}, and this is {installed}; build it for this "
            "one, in a clone of Sprat: pip install --force-reinstall --no-deps ./plugins/torch; or install the other "
            f'PyTorch: pip install "torch=={list(known)[-1]}.*"')
    place = folder / f"torch_{minor(installed).replace('.', '_')}"
    for suffix in importlib.machinery.EXTENSION_SUFFIXES:
        if (place / f"_native{suffix}").exists():
            return place / f"_native{suffix}"
    there = ", ".join(sorted(file.name for file in place.glob("_native*"))) or "no module"
    raise ImportError(
        f"sprat.torch was built for another Python: {place} has {there}, and this is Python "
        f"{sys.version_info.major}.{sys.version_info.minor}; pip install --force-reinstall --no-deps ./plugins/torch")


def load(installed: str) -> ModuleType:
    """Imports it under one name, whichever it is; again gives the same."""
    if NAME not in sys.modules:
        spec = importlib.util.spec_from_file_location(NAME, module_file(installed))
        module = importlib.util.module_from_spec(spec)
        sys.modules[NAME] = module
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[NAME]
            raise
    return sys.modules[NAME]


def _order(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in minor(version).split("."))
