"""Prints the folder and version of the PyTorch that Python has, or will have: "folder;version"."""

import importlib.util
import pathlib
import sys
import sysconfig


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


def version_of(folder: pathlib.Path) -> str:
    """Without importing PyTorch, which takes seconds."""
    values: dict[str, object] = {}
    exec((folder / "version.py").read_text(), values)
    return str(values["__version__"])


if __name__ == "__main__":
    found = torch_folder()
    if found is None:
        sys.exit("PyTorch is not installed; pip install torch==2.11.0")
    print(f"{found};{version_of(found)}")
