#!/usr/bin/env python3
"""A loader reads through a FUSE file system that serves lustre.lov and keeps released files back.

    loader_on_lustre.py WORKER [MOCK_LUSTRE]

Ends with 77 where FUSE is missing, and says why.
"""

import array
import json
import os
import struct
import subprocess
import sys
import tempfile
import time

from layouts_through_fuse import EOF, INIT, MIB, RELEASED, blob, composite, mounted, skip, write

TOKENS_UNTIL_0 = 65521
LENGTH = 2047
FILES = {  # OSTs of each; the tokens count up over all files in this order
    "a.bin": [3, 5],
    "b.bin": [7],
    "c.bin": [0, 1, 2],
    "d.bin": None,  # progressive: the first MiB on OST 9, the rest on 4 and 6
}
FILE_BYTES = 3 * MIB
WAIT = 60


def lov_of(osts):
    if osts is None:
        return composite([(1, INIT, 0, MIB, blob([9])), (2, INIT, MIB, EOF, blob([4, 6]))])
    return blob(osts, magic=0x0BD10BD0)


def hsm(states):
    return struct.pack("<IIIIQQ", states, 1, 0, 0, 0, 0)


class Run:
    """What a worker said."""

    def __init__(self, worker, mount, cache, order=None, reading=None, batches=0):
        options = {"sources": [{"paths": [f"{mount}/*.bin"], "format": "tokens", "token_type": "u16"}], "batch": 16,
                   "order": {"length": LENGTH, "seed": 7, "epochs": 1} | (order or {}),
                   "reading": {"memory_bytes": 4 * MIB} | (reading or {})}
        environment = os.environ | {"SPRAT_FAKE_LUSTRE": mount, "XDG_CACHE_HOME": cache}
        begin = time.monotonic()
        done = subprocess.run([worker, json.dumps(options), str(batches)], env=environment, timeout=WAIT, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.seconds = time.monotonic() - begin
        self.log = done.stderr
        self.code = done.returncode
        self.said = dict(line.split(" ", 1) for line in done.stdout.splitlines())
        if "report" not in self.said:
            sys.exit(f"the worker made no loader: {self.said} {self.log}")
        self.report = json.loads(self.said["report"])
        self.targets = sorted(target["target"] for target in self.report["targets"])


class Checks:
    def __init__(self):
        self.failures = []
        self.count = 0

    def expect(self, what, true, seen):
        self.count += 1
        if not true:
            self.failures.append(f"{what}: {str(seen)[:1500]}")


def release(backing, name, states):
    """As if it had been archived and released: its layout is gone until it is back, on other targets."""
    write(f"{backing}/.lov/{name}", blob([], count=2, pattern=RELEASED | 1, magic=0x0BD10BD0))
    write(f"{backing}/.lov/{name}.restored", blob([20, 21], magic=0x0BD10BD0))
    write(f"{backing}/.hsm/{name}", hsm(states))


def all_there(checks, run_of, backing, mount):
    run = run_of()
    checks.expect("all samples come", run.code == 0 and "error" not in run.said, (run.said, run.log))
    checks.expect("reads of all targets are reported", run.targets == [0, 1, 2, 3, 4, 5, 6, 7, 9], run.targets)
    checks.expect("no read waits for the archive", run.report["released"]["restored_bytes"] == 0, run.report)
    words = run.said["describe"]
    for part in ("Lustre (FSx assumed: no", f"mounted at {mount}", "9 targets", "of 4 files"):
        checks.expect(f"describe() says {part!r}", part in words, words)
    several = run_of(reading={"fsx": "PERSISTENT_2:250:12000"})
    checks.expect("what the user declares is said", "FSx assumed: by option" in several.said["describe"], several.said)
    # A layout that is damaged, and one that is not there.
    write(f"{backing}/.lov/b.bin", lov_of([7])[:-1])
    os.remove(f"{backing}/.lov/c.bin")
    run = run_of()
    checks.expect("unknown layouts share their source's target", run.targets == [-2, 3, 4, 5, 6, 9], run.targets)
    checks.expect("why a layout is unknown is said", "b.bin" in run.said["describe"], run.said["describe"])
    for name in ("b.bin", "c.bin"):
        write(f"{backing}/.lov/{name}", lov_of(FILES[name]))


def comes_back(checks, run_of, backing):
    release(backing, "c.bin", 0xD)
    run = run_of(order={"epochs": 3})
    checks.expect("a released file's samples come", run.code == 0 and "error" not in run.said, (run.said, run.log))
    checks.expect("its bytes are counted", run.report["released"]["restored_bytes"] == FILE_BYTES, run.report)
    checks.expect("nothing is left", run.report["released"]["left_bytes"] == 0, run.report)
    checks.expect("reads go where it lies now", {20, 21} <= set(run.targets), run.targets)
    checks.expect("the log says so", "c.bin is in the archive of Lustre alone" in run.log, run.log)
    os.remove(f"{backing}/.hsm/c.bin")
    write(f"{backing}/.lov/c.bin", lov_of(FILES["c.bin"]))
    # The first file decides how files are read: nobody is to wait for its bytes before there is a loader.
    release(backing, "a.bin", 0xD)
    run = run_of()
    checks.expect("the first file may be released", run.code == 0 and "error" not in run.said, (run.said, run.log))
    os.remove(f"{backing}/.hsm/a.bin")
    write(f"{backing}/.lov/a.bin", lov_of(FILES["a.bin"]))


def never_comes_back(checks, run_of, backing):
    first_files = 2 * FILE_BYTES // 2 // LENGTH // 16  # batches of the two files before it, about
    release(backing, "c.bin", 0xD | 0x40)
    run = run_of(order={"shuffle": "none"})
    error = run.said.get("error", "")
    checks.expect("a lost file is an error that names it", "c.bin was released" in error, run.said)
    checks.expect("with a remedy", "lfs hsm_restore" in error, error)
    checks.expect("what lies before it is given", int(run.said["batches"]) in range(first_files - 1, first_files + 2),
                  (run.said["batches"], first_files))
    checks.expect("the log says it, too", "c.bin was released" in run.log, run.log)

    write(f"{backing}/.hsm/c.bin", hsm(0xD))
    write(f"{backing}/.stuck/c.bin", b"")
    run = run_of(order={"shuffle": "none"}, reading={"timeout_ms": 3000})
    error = run.said.get("error", "")
    checks.expect("a file that hangs in the archive ends the wait by its name",
                  "c.bin" in error and "hsm_state" in error, run.said)
    checks.expect("in time", 3 <= run.seconds < 20, run.seconds)
    checks.expect("after what lies before it", int(run.said["batches"]) in range(first_files - 1, first_files + 2),
                  (run.said["batches"], first_files))
    os.remove(f"{backing}/.stuck/c.bin")
    os.remove(f"{backing}/.hsm/c.bin")


def main():
    if len(sys.argv) < 3:
        skip("mock_lustre was not built; it wants libfuse3-dev")
    worker, mock = sys.argv[1:3]
    checks = Checks()
    with tempfile.TemporaryDirectory(prefix="sprat-fuse-") as folder:
        token = 0
        for name, osts in FILES.items():
            tokens = array.array("H", ((token + i) % TOKENS_UNTIL_0 for i in range(FILE_BYTES // 2)))
            token += len(tokens)
            write(f"{folder}/backing/{name}", tokens.tobytes())
            write(f"{folder}/backing/.lov/{name}", lov_of(osts))
        with mounted(mock, folder) as (backing, mount):

            def run_of(**changes):
                return Run(worker, mount, f"{folder}/cache", **changes)

            all_there(checks, run_of, backing, mount)
            comes_back(checks, run_of, backing)
            never_comes_back(checks, run_of, backing)
    for failure in checks.failures:
        print(failure)
    print(f"{checks.count} checks, {len(checks.failures)} failures")
    sys.exit(1 if checks.failures else 0)


if __name__ == "__main__":
    main()
