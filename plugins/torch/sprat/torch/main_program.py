"""Runs a script or a module as Python's own command does, in this process.

Unlike runpy's functions it leaves the program's module as `__main__`: threads and handlers that
outlive the program's last line pickle what it has defined, and look for it there.
"""

from __future__ import annotations

import builtins
import importlib.machinery
import importlib.util
import io
import os
import pkgutil
import runpy
import sys
import types
from typing import Any


def run_script(path: str, arguments: list[str]) -> None:
    """A file of Python, a .pyc, or a folder or archive with a __main__.py."""
    sys.argv[:] = [path, *arguments]
    if pkgutil.get_importer(path) is not None:  # of a folder or an archive
        runpy.run_path(path, run_name="__main__")
        return
    if not getattr(sys.flags, "safe_path", False):
        # `python -m` has put the working folder there; links are followed, as python does.
        sys.path[0] = os.path.dirname(os.path.realpath(path))
    path = os.path.abspath(path)  # also for who changes the folder later
    loader = importlib.machinery.SourceFileLoader("__main__", path)
    _run(_code_of(path), __file__=path, __loader__=loader, __package__=None, __spec__=None)


def run_module(name: str, arguments: list[str]) -> None:
    """A module, or a package's __main__. ImportError if there is none."""
    spec = importlib.util.find_spec(name)
    if spec is not None and spec.submodule_search_locations is not None:
        spec = importlib.util.find_spec(f"{name}.__main__")
    code = spec.loader.get_code(spec.name) if spec and hasattr(spec.loader, "get_code") else None
    if code is None:
        raise ImportError(f"no module {name} that can be run: it is none of Python's, or a package "
                          "without __main__", name=name)
    sys.argv[:] = [spec.origin or name, *arguments]
    _run(code, __file__=spec.origin, __loader__=spec.loader, __package__=spec.parent, __spec__=spec)


def _run(code: types.CodeType, **attributes: Any) -> None:
    main = types.ModuleType("__main__")
    main.__dict__.update(attributes, __builtins__=builtins, __cached__=None)
    sys.modules["__main__"] = main
    exec(code, main.__dict__)


def _code_of(path: str) -> types.CodeType:
    with io.open_code(path) as file:
        compiled = pkgutil.read_code(file)
    if compiled is not None:
        return compiled
    with io.open_code(path) as file:
        # The future of this file is not the program's.
        return compile(file.read(), path, "exec", dont_inherit=True)

