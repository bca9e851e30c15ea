"""Cuts Debian's packages from a build and looks into them: python3 deb_holds.py BUILD [FOLDER_OF_DEBS].

Exit 77 where a tool of Debian's is missing. tests/system/packages/deb installs them in a fresh Debian, which takes minutes.
"""

from __future__ import annotations

import fnmatch
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

SOURCES = pathlib.Path(__file__).resolve().parents[3]
# What each package holds beside its two files of documentation, as patterns; LIB is the folder of libraries.
HOLDS = {
    "libsprat0": ["LIB/libsprat.so.0", "LIB/libsprat.so.0.*"],
    "libsprat-dev": ["LIB/libsprat.so", "LIB/libsprat.a", "LIB/pkgconfig/sprat.pc", "LIB/cmake/sprat/spratConfig.cmake",
                     "LIB/cmake/sprat/spratConfigVersion.cmake", "LIB/cmake/sprat/sprat_shared_targets*.cmake",
                     "LIB/cmake/sprat/sprat_static_targets*.cmake", "/usr/share/doc/libsprat-dev/examples/all_gather.c",
                     "/usr/share/doc/libsprat-dev/examples/all_gather.cpp", "/usr/share/doc/libsprat-dev/examples/data.c",
                     "/usr/share/doc/libsprat-dev/examples/sharded_training.cpp"],
    "sprat": ["/usr/bin/sprat", "/usr/share/doc/sprat/examples/gpt-jargon.json", "/usr/share/man/man1/sprat.1.gz",
              "/usr/share/man/man1/sprat-train.1.gz", "/usr/share/man/man1/sprat-*.1.gz",
              "/usr/share/bash-completion/completions/sprat", "/usr/share/zsh/vendor-completions/_sprat",
              "/usr/share/fish/vendor_completions.d/sprat.fish"],
    "libsprat-nccl2": ["LIB/libsprat_nccl.so.2", "LIB/libnccl-net-sprat.so"],
}
# By these names programs and NCCL itself look for NVIDIA's files.
NVIDIAS = ("libnccl.so*", "libnccl-net.so", "libnccl-tuner.so", "libnccl-profiler.so")


def out(*command: object) -> str:
    """What a command prints; its complaint ends the test."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def cut(build: pathlib.Path, work: pathlib.Path) -> list[pathlib.Path]:
    """The packages of what `build` has compiled, in a folder of the test's own."""
    out("cpack", "--config", build / "CPackConfig.cmake", "-B", work, "-D", f"CPACK_OUTPUT_FILE_PREFIX={work}/packages")
    return sorted((work / "packages").glob("*.deb"))


def files_of(deb: pathlib.Path, work: pathlib.Path) -> dict[str, pathlib.Path]:
    """Path when installed -> where it is unpacked."""
    folder = work / deb.stem
    out("dpkg-deb", "-x", deb, folder)
    return {"/" + str(path.relative_to(folder)): path for path in sorted(folder.rglob("*")) if path.is_symlink() or path.is_file()}


def check_files(name: str, files: dict[str, pathlib.Path], library_folder: str) -> list[str]:
    """What is missing, and what nobody asked for."""
    wanted = [pattern.replace("LIB", library_folder) for pattern in HOLDS[name]]
    wanted += [f"/usr/share/doc/{name}/{file}" for file in ("copyright", "changelog.Debian.gz")]
    if name == "libsprat-dev":
        wanted += [f"/usr/include/sprat/{header.name}" for header in (SOURCES / "include/sprat").iterdir()]
    faults = [f"{name} lacks {pattern}" for pattern in wanted if not fnmatch.filter(files, pattern)]
    faults += [f"{name} has {file}, which no pattern names" for file in files
               if not any(fnmatch.fnmatch(file, pattern) for pattern in wanted)]
    return faults + [f"{name} has {file}, a name of NVIDIA's" for file in files
                     if any(fnmatch.fnmatch(pathlib.Path(file).name, pattern) for pattern in NVIDIAS)]


def check_programs(name: str, files: dict[str, pathlib.Path], depends: str) -> list[str]:
    """Nothing is looked for outside the linker's own folders, and each library that is needed comes with a dependency."""
    faults = []
    for installed, path in files.items():
        if path.is_symlink() or not (".so" in path.name or installed.startswith("/usr/bin/")):
            continue
        section = out("readelf", "-dW", path)
        if re.search("R(UN)?PATH", section):
            faults.append(f"{name}: {installed} has a search path: {re.search('R(UN)?PATH.*', section)[0]}")
        for needed in re.findall(r"NEEDED.*\[(libpmix|libssl|libhwy|libspdlog)\.so", section):
            if needed not in depends:
                faults.append(f"{name} depends on no {needed}, which {installed} needs")
    return faults


def check_development(depends: str, files: dict[str, pathlib.Path], library_folder: str) -> list[str]:
    """pkg-config knows Sprat's flags only where it finds each file that sprat.pc requires."""
    text = files[f"{library_folder}/pkgconfig/sprat.pc"].read_text()
    faults = []
    for module in re.search(r"^Requires.private: (.*)$", text, re.MULTILINE)[1].split():
        folder = pathlib.Path(out("pkg-config", "--variable=pcfiledir", module).strip())
        owner = out("dpkg-query", "-S", (folder / f"{module}.pc").resolve()).split(":")[0]
        if not re.search(rf"(^|, ){re.escape(owner)}( |,|$)", depends):
            faults.append(f"libsprat-dev does not depend on {owner}, which has {module}.pc")
    return faults


def main(build: pathlib.Path, debs: pathlib.Path | None, work: pathlib.Path) -> int:
    faults: list[str] = []
    owners: dict[str, str] = {}
    versions = set()
    packages = {}
    for deb in sorted(debs.glob("*.deb")) if debs else cut(build, work):
        packages[out("dpkg-deb", "-f", deb, "Package").strip()] = deb
    if sorted(packages) != sorted(HOLDS):
        return print(f"the packages are {sorted(packages)}, not {sorted(HOLDS)}") or 1
    for name, deb in packages.items():
        files = files_of(deb, work)
        depends = out("dpkg-deb", "-f", deb, "Depends")
        versions.add(out("dpkg-deb", "-f", deb, "Version").strip())
        multiarch = [path for path in files if re.match(r"/usr/lib/[^/]+-linux-gnu/", path)]
        library_folder = "/".join(multiarch[0].split("/")[:4]) if multiarch else "/usr/lib"
        faults += check_files(name, files, library_folder) + check_programs(name, files, depends)
        if name == "libsprat-dev":
            faults += check_development(depends, files, library_folder)
        for file in files:
            if file in owners:
                faults.append(f"{file} is in {owners[file]} and {name}")
            owners[file] = name
    version = re.search(r"VERSION ([0-9.]+)", (SOURCES / "CMakeLists.txt").read_text().split("project(")[1])[1]
    if versions != {f"{version}-1"}:
        faults.append(f"versions are {versions}, not {version}-1")
    print("\n".join(faults) if faults else f"{len(packages)} packages hold {len(owners)} files")
    return 1 if faults else 0


if __name__ == "__main__":
    missing = [tool for tool in ("cpack", "dpkg-deb", "dpkg-shlibdeps", "readelf") if shutil.which(tool) is None]
    if missing:
        print(f"skipped: there is no {missing[0]}")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as folder:
        sys.exit(main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else None, pathlib.Path(folder)))
