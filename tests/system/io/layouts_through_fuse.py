#!/usr/bin/env python3
"""Layouts of Lustre read through the kernel: a FUSE file system serves lustre.lov and HSM states.

    layouts_through_fuse.py WORKER [MOCK_LUSTRE]

Ends with 77 where FUSE is missing, and says why.
"""

import contextlib
import json
import os
import struct
import subprocess
import sys
import tempfile
import time

MIB = 1 << 20
EOF = 2**64 - 1
INIT, STALE, PREFERRED = 0x10, 0x1, 0x2
RELEASED = 0x80000000


def skip(why):
    print("skipped:", why)
    sys.exit(77)


def blob(osts, stripe=MIB, count=None, pattern=1, magic=0x0BD30BD0, order="<"):
    head = struct.pack(order + "IIQQIHH", magic, pattern, 1, 0x200000401, stripe,
                       len(osts) if count is None else count, 0xFFFF)
    if magic != 0x0BD10BD0:
        head += b"pool".ljust(16, b"\0")
    return head + b"".join(struct.pack(order + "QQII", 100 + ost, 1 << 32, 0, ost) for ost in osts)


def composite(parts, mirrors=1, order="<"):
    """parts: (id, flags, begin, end, blob)"""
    at = 32 + 48 * len(parts)
    size = at + sum(len(part[4]) for part in parts)
    out = struct.pack(order + "IIIHHHBBHHQ", 0x0BD60BD0, size, 4, 0, len(parts), mirrors - 1, 0, 0, 0, 0, 0)
    for number, flags, begin, end, body in parts:
        out += struct.pack(order + "IIQQIIIQI", number, flags, begin, end, at, len(body), 4, 0, 0)
        at += len(body)
    return out + b"".join(part[4] for part in parts)


def one(begin, end, stripe, targets):
    return {"begin": begin, "end": end, "stripe_bytes": stripe, "targets": targets}


BYTES = 3 * MIB
CASES = {
    "plain": (blob([3, 5], magic=0x0BD10BD0), [one(0, BYTES, MIB, [3, 5])]),
    "progressive": (
        composite([(1, INIT, 0, MIB, blob([7])), (2, INIT, MIB, EOF, blob([0, 1, 2, 3])),
                   (3, 0, EOF, EOF, blob([], count=8))]),
        [one(0, MIB, 0, [7]), one(MIB, BYTES, MIB, [0, 1, 2, 3])]),
    "mirrored": (
        composite([(0x10001, INIT | STALE, 0, EOF, blob([1])), (0x20001, INIT | PREFERRED, 0, EOF, blob([2, 4]))],
                  mirrors=2),
        [one(0, BYTES, MIB, [2, 4])]),
    "swapped": (blob([9, 8], magic=0x0BD30BD0, order=">"), [one(0, BYTES, MIB, [9, 8])]),
    "on_the_metadata_server": (
        composite([(1, INIT, 0, MIB, blob([], count=0, pattern=0x100)), (2, INIT, MIB, EOF, blob([6]))]),
        [one(0, MIB, 0, [-1]), one(MIB, BYTES, 0, [6])]),
    "wide": (blob(list(range(2000)), stripe=65536), [one(0, BYTES, 65536, list(range(2000)))]),
    "damaged": (blob([3, 5])[:-1], [one(0, BYTES, 0, [-2])]),
    "nothing": (None, [one(0, BYTES, 0, [-2])]),
}


def write(path, content):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(content)


def told(worker, *arguments):
    output = subprocess.run([worker, *arguments], check=True, timeout=60, stdout=subprocess.PIPE, text=True).stdout
    return [json.loads(line) for line in output.splitlines()]


def check(worker, mount, backing):
    failures = []

    def expect(name, what, is_, should):
        if is_ != should:
            failures.append(f"{name}: {what} is {str(is_)[:300]}, not {str(should)[:300]}")

    names = sorted(CASES)
    for name, answer in zip(names, told(worker, *(f"{mount}/{name}" for name in names))):
        expect(name, "ranges", answer["ranges"], CASES[name][1])
        expect(name, "released", answer["released"], False)
        expect(name, "known", answer["unknown_because"] == "", name not in ("damaged", "nothing"))
        # f_type is FUSE's own, so that this is no Lustre to statfs.
        expect(name, "lustre", answer["lustre"], False)

    write(f"{backing}/released", b"x" * BYTES)
    write(f"{backing}/.lov/released", blob([], count=2, pattern=RELEASED | 1, magic=0x0BD10BD0))
    write(f"{backing}/.lov/released.restored", blob([3, 5], magic=0x0BD10BD0))
    write(f"{backing}/.hsm/released", struct.pack("<IIIIQQ", 0xD, 1, 0, 0, 0, 0))
    (before,) = told(worker, f"{mount}/released")
    expect("released", "released", before["released"], True)
    expect("released", "state", before["hsm"], "(0x0000000d) released exists archived, archive_id:1")
    begin = time.monotonic()
    (after,) = told(worker, "--read", f"{mount}/released")
    expect("released", "read waited", time.monotonic() - begin >= 0.2, True)
    expect("released", "released afterwards", after["released"], False)
    expect("released", "ranges afterwards", after["ranges"], [one(0, BYTES, MIB, [3, 5])])
    expect("released", "state afterwards", after["hsm"], "(0x00000009) exists archived, archive_id:1")
    return failures


@contextlib.contextmanager
def mounted(mock, folder):
    """`folder`/backing as mock_lustre shows it. Ends the test with 77 where nothing can be mounted."""
    if not os.path.exists("/dev/fuse"):
        skip("there is no /dev/fuse")
    backing, mount = f"{folder}/backing", f"{folder}/mount"
    os.makedirs(mount)
    server = subprocess.Popen([mock, backing, mount, "-f"], stderr=subprocess.PIPE, text=True)
    try:
        end = time.monotonic() + 20
        while not os.path.ismount(mount):
            if server.poll() is not None:
                skip("nothing can be mounted here: " + server.stderr.read().strip())
            if time.monotonic() > end:
                sys.exit("the mount did not come up in 20 s")
            time.sleep(0.02)
        yield backing, mount
        if server.poll() is not None:
            sys.exit(f"mock_lustre ended with {server.poll()}: {server.stderr.read().strip()}")
    finally:
        # Lazily, and whatever its state: a mount whose server is gone is no mount to ismount().
        subprocess.run(["umount", "-l", mount], check=False, stderr=subprocess.DEVNULL)
        if server.poll() is None:
            server.terminate()
        server.wait(timeout=20)


def main():
    if len(sys.argv) < 3:
        skip("mock_lustre was not built; it wants libfuse3-dev")
    worker, mock = sys.argv[1:3]
    with tempfile.TemporaryDirectory(prefix="sprat-fuse-") as folder:
        for name, (lov, _) in CASES.items():
            write(f"{folder}/backing/{name}", b"x" * BYTES)
            if lov is not None:
                write(f"{folder}/backing/.lov/{name}", lov)
        with mounted(mock, folder) as (backing, mount):
            failures = check(worker, mount, backing)
    for failure in failures:
        print(failure)
    print(f"{len(CASES) + 1} files, {len(failures)} failures")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
