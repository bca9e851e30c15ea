"""Writes the source package: the library's tree as far as it is needed, and a pyproject.toml above it."""

from __future__ import annotations

import io
import pathlib
import re
import tarfile

# The library's folders, as its CMakeLists.txt names them, and what they need.
FOLDERS = ("cmake", "comm", "io", "collectives", "memory", "gemm", "device", "layers", "fsdp", "mp", "checkpoint", "plugins", "train",
           "planning", "cli", "examples", "include")
FILES = ("CMakeLists.txt", "LICENSE", "README.md")
LEFT_OUT = re.compile(r"(^|/)(__pycache__|build|\.git)(/|$)|\.(pyc|so|btr)$")
HERE = "plugins/torch"  # Where this package lies in the library's tree.


def tree_around(project: pathlib.Path) -> pathlib.Path:
    """The library's tree: around the package in a clone, the same folder in an unpacked source package."""
    for tree in (project.parent.parent, project):
        if (tree / HERE / "packaging" / "source_package.py").exists() and (tree / "comm").is_dir():
            return tree
    raise SystemExit(f"{project} is not {HERE} of a clone of Sprat, nor its source package: the library's sources are not there")


def members(tree: pathlib.Path) -> list[pathlib.Path]:
    """What goes in, as paths in the tree, sorted."""
    files = [pathlib.Path(name) for name in FILES]
    for folder in FOLDERS:
        files += [path.relative_to(tree) for path in (tree / folder).rglob("*") if path.is_file()]
    return sorted(path for path in files if not LEFT_OUT.search(str(path)))


def moved_up(pyproject: str) -> str:
    """The package's pyproject.toml, for the folder two above its own."""
    changes = (('backend-path = ["packaging"]', f'backend-path = ["{HERE}/packaging"]'),
               ('provider-path = "packaging"', f'provider-path = "{HERE}/packaging"'),
               ('build-dir = "../../build/torch/{wheel_tag}"', 'build-dir = "build/{wheel_tag}"'),
               ('wheel.packages = ["sprat"]', f'wheel.packages = ["{HERE}/sprat"]\ncmake.source-dir = "{HERE}"'))
    for old, new in changes:
        if pyproject.count(old) != 1:
            raise SystemExit(f"pyproject.toml has {old!r} {pyproject.count(old)} times, not once: source_package.py needs a look")
        pyproject = pyproject.replace(old, new)
    return pyproject


def value_of(pyproject: str, key: str) -> str:
    """Of a line `key = "value"`; a parser of TOML came with Python 3.11 only."""
    found = re.search(rf'^{key} = "(.*)"$', pyproject, re.MULTILINE)
    if found is None:
        raise SystemExit(f"pyproject.toml has no {key}")
    return found.group(1).replace('\\"', '"')


def write(project: pathlib.Path, into: pathlib.Path) -> str:
    """The file's name. The same tree gives the same bytes but for gzip's time."""
    tree = tree_around(project)
    pyproject = (project / "pyproject.toml").read_text()
    name, version = value_of(pyproject, "name").replace("-", "_"), value_of(pyproject, "version")
    top = pyproject if tree == project else moved_up(pyproject)
    information = (f"Metadata-Version: 2.2\nName: {value_of(pyproject, 'name')}\nVersion: {version}\n"
                   f"Summary: {value_of(pyproject, 'description')}\nRequires-Python: {value_of(pyproject, 'requires-python')}\n"
                   "Dynamic: Requires-Dist\n")
    file = f"{name}-{version}.tar.gz"
    with tarfile.open(into / file, "w:gz", format=tarfile.PAX_FORMAT) as archive:
        for path in members(tree):
            archive.add(tree / path, f"{name}-{version}/{path.as_posix()}", recursive=False, filter=_plain)
        for path, text in (("pyproject.toml", top), ("PKG-INFO", information)):
            entry = tarfile.TarInfo(f"{name}-{version}/{path}")
            entry.size = len(text.encode())
            archive.addfile(entry, io.BytesIO(text.encode()))
    return file


def _plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = entry.mtime = 0
    entry.uname = entry.gname = ""
    entry.mode = 0o755 if entry.mode & 0o100 else 0o644
    return entry
