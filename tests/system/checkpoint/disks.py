#!/usr/bin/env python3
"""Saves to disks that are full, cannot be written to, or are not there.

    disks.py WORKER [SPRAT]

Held: one line that names the path and what to do; the last checkpoint loads; nothing else is left. Uses a tmpfs of
some MB in a mount namespace; status 77 where this user may not make one.
"""
import os
import subprocess
import sys
import tempfile

from harness import entries, loaded_step, one_line, run, skip

IN_NAMESPACE = "--in-namespace"
CHECKPOINTS = ["latest", "step-00000001"]


def mount(*words):
    subprocess.run(["mount", *words], check=True)


def refused(worker, folder, step, *says):
    saved = run(worker, "save", folder, 2, 2, 1, step, step)
    assert saved.returncode == 1, f"status {saved.returncode}: {saved.stderr}"
    complaint = one_line(saved.stderr)
    for text in says:
        assert text in complaint, complaint
    print(complaint.replace(folder, "FOLDER"))


def full_disk(worker, disk):
    """Every amount of free space, from none to almost enough."""
    mount("-t", "tmpfs", "-o", "size=8m", "tmpfs", disk)
    folder = f"{disk}/checkpoints"
    assert run(worker, "save", folder, 2, 2, 1, 1, 1).returncode == 0
    free = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize
    needed = sum(os.path.getsize(f"{folder}/step-00000001/{name}") for name in entries(f"{folder}/step-00000001"))
    for left in [0, 4096, needed // 3, needed // 2, needed - 8192]:
        with open(f"{disk}/ballast", "wb") as ballast:
            ballast.write(bytes(free - left))
        refused(worker, folder, 2, "cannot", f"{folder}/step-00000002.tmp-", "No space left", "free some space")
        assert entries(folder) == CHECKPOINTS, entries(folder)
        assert loaded_step(worker, folder) == 1
        os.remove(f"{disk}/ballast")
    assert run(worker, "save", folder, 2, 2, 1, 2, 2).returncode == 0
    assert loaded_step(worker, folder) == 2


def read_only(worker, disk):
    mount("-t", "tmpfs", "-o", "size=8m", "tmpfs", disk)
    assert run(worker, "save", disk, 2, 2, 1, 1, 1).returncode == 0
    mount("-o", "remount,ro", disk)
    refused(worker, disk, 2, "cannot make folder", disk, "Read-only file system", "choose a folder")
    refused(worker, f"{disk}/new", 2, "cannot make folder", f"{disk}/new", "Read-only file system")
    assert entries(disk) == CHECKPOINTS
    assert loaded_step(worker, disk) == 1


def no_folder(worker, disk):
    with open(f"{disk}/file", "w"):
        pass
    refused(worker, f"{disk}/file/below", 1, "cannot make folder", f"{disk}/file/below", "Not a directory")


def main():
    if IN_NAMESPACE in sys.argv:
        worker = sys.argv[1]
        for test in [full_disk, read_only, no_folder]:
            with tempfile.TemporaryDirectory() as disk:
                test(worker, disk)
                subprocess.run(["umount", disk], capture_output=True)
        print("full, read-only and missing disks: one line each, the last checkpoint loads")
        return
    alone = ["unshare", "--mount", "--map-root-user"]
    try:
        possible = run(*alone, "mount", "-t", "tmpfs", "tmpfs", "/mnt")
    except FileNotFoundError:
        skip("there is no unshare")
    if possible.returncode != 0:
        skip(f"this user may mount nothing: {possible.stderr.strip()}")
    sys.exit(subprocess.run([*alone, sys.executable, __file__, *sys.argv[1:2], IN_NAMESPACE], timeout=200).returncode)


if __name__ == "__main__":
    main()
