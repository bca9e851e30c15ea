"""Prints the folder and version of each PyTorch to build for, one a line: "FOLDER VERSION".

That is the one that Python has, or will have; SPRAT_TORCHES=FOLDER:FOLDER names others in its place.
"""

from __future__ import annotations

import importlib.util
import os
import pathlib
import sys
import sysconfig

# The minor versions whose headers this is written against. c10d changes with each.
SERVED = ("2.11", "2.12", "2.13", "2.14", "2.15")
# Where there is none yet, pip will install this one with the package.
DEFAULT = "torch==2.11.0"


def torch_folder() -> pathlib.Path | None:
    """In a build that pip isolates, the environment's own packages are not on the path."""
    spec = importlib.util.find_spec("torch")
    if spec is not None and spec.origin is not None:
        return pathlib.Path(spec.origin).parent
    for place in ("platlib", "purelib"):
        folder = pathlib.Path(sysconfig.get_path(place)) / "torch"
        if (folder / "version.py").exists():
            return folder
    return None


def torch_folders() -> list[pathlib.Path]:
    """All that are to be built for; empty if there is none."""
    named = [pathlib.Path(name) for name in os.environ.get("SPRAT_TORCHES", "").split(":") if name]
    if named:
        for folder in named:
            if not (folder / "version.py").exists():
                sys.exit(f"SPRAT_TORCHES names {folder}, which is no folder of PyTorch's package (.../site-packages/torch)")
        return named
    found = torch_folder()
    return [] if found is None else [found]


def version_of(folder: pathlib.Path) -> str:
    """Without importing PyTorch, which takes seconds."""
    values: dict[str, object] = {}
    exec((folder / "version.py").read_text(), values)
    return str(values["__version__"])


def minor_of(version: str) -> str:
    """"2.11" of "2.11.0+cu130"."""
    return ".".join(version.split("+")[0].split(".")[:2])


def checked(folder: pathlib.Path) -> str:
    """The version in `folder`, if this can be built for it; ends the program otherwise."""
    version = version_of(folder)
    if minor_of(version) not in SERVED:
        sys.exit(f"sprat.torch is written for PyTorch {SERVED[0]} to {SERVED[-1]}, and {folder} has {version}; "
                 f'pip install "{DEFAULT}"')
    return version


if __name__ == "__main__":
    folders = torch_folders()
    if not folders:
        sys.exit(f"PyTorch is not installed; pip install {DEFAULT}")
    minors: list[str] = []
    for folder in folders:
        version = checked(folder)
        if minor_of(version) in minors:
            sys.exit(f"SPRAT_TORCHES names PyTorch {minor_of(version)} twice; one build serves all of its versions")
        minors.append(minor_of(version))
        print(f"{folder} {version}")
