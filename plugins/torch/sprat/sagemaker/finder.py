"""Gives Python's import the modules of the table: each answers a name when a script asks for it."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from sprat.sagemaker.names import ABSENT, MODULES, PAGE, ROOTS, Served


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Answers for the modules of a table, and for nothing else below its roots."""

    def __init__(self, roots: tuple[str, ...], modules: dict[str, Served]) -> None:
        self._roots, self._modules = roots, modules

    def find_spec(self, name: str, path: Any = None, target: Any = None
                  ) -> importlib.machinery.ModuleSpec | None:
        if not any(name == root or name.startswith(root + ".") for root in self._roots):
            return None
        if name in self._modules:
            return importlib.util.spec_from_loader(name, self, is_package=True)
        parent, _, last = name.rpartition(".")
        if parent not in self._modules:
            raise ModuleNotFoundError(f"no module {name}: {PAGE}", name=name)
        try:
            _found(parent, self._modules[parent], last)
        except AttributeError as error:
            # `from PARENT import LAST` would hide it, but for an ImportError that is raised here.
            raise ImportError(str(error), name=name) from None
        return None

    def exec_module(self, module: ModuleType) -> None:
        served = self._modules[module.__name__]
        module.__doc__ = f"{module.__name__} as Sprat serves it."
        module.__getattr__ = _answers(module.__name__, served)
        module.__dir__ = lambda: sorted(served.names)
        if served.version:
            module.__version__ = served.version
        if served.first:
            source, _, name = served.first.partition(":")
            getattr(importlib.import_module(source), name)()


def install() -> None:
    """Again does nothing."""
    if any(isinstance(finder, Finder) for finder in sys.meta_path):
        return
    # Before all others, so that it does not matter whether SageMaker's libraries are installed;
    # of the libraries for CUDA, behind them, those that are.
    sys.meta_path.insert(0, Finder(ROOTS, MODULES))
    sys.meta_path.append(Finder(tuple(name for name in ABSENT if "." not in name), ABSENT))


def _answers(name: str, served: Served) -> Callable[[str], Any]:
    return lambda attribute: _found(name, served, attribute)


def _found(module: str, served: Served, name: str) -> Any:
    """The object of that name; AttributeError says what to use instead."""
    if name == "__all__":
        return _public(served)
    if name.startswith("__"):
        raise AttributeError(f"module {module} has no {name}")
    if name in served.names:
        source, _, path = served.names[name].partition(":")
        found = importlib.import_module(source)
        for part in path.split(".") if path else ():
            found = getattr(found, part)
        return found
    if name in served.refused:
        raise AttributeError(f"{module}.{name} is not served: {served.refused[name]}")
    if served.forward:
        return getattr(importlib.import_module(served.forward), name)
    raise AttributeError(f"{module}.{name} is not served: {served.otherwise or PAGE}")


def _public(served: Served) -> list[str]:
    """For `from MODULE import *`."""
    if not served.forward:
        return sorted(served.names)
    forward = importlib.import_module(served.forward)
    public = getattr(forward, "__all__", [name for name in vars(forward) if name[0] != "_"])
    return sorted({*served.names, *public})
