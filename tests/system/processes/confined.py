#!/usr/bin/env python3
"""Jobs under conditions that take things away: confined.py SPRAT UNDUMPABLE [CASE ...].
Needs root; UNDUMPABLE is the library made of undumpable.c.

`sprat bench all` must find nothing wrong, and where ranks cannot share memory a warning must say so.
Ends with 77 if this machine allows none of it.
"""
import os
import subprocess
import sys

import run

BENCH = ["bench", "all", "-e", "64K", "-f", "16", "-n", "1", "-w", "0"]
NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
WARNING = "cannot map the memory of rank"


def job(case, command, warned):
    """Three ranks of `command`; all must end well, and warn or not."""
    results = run.collect(run.start(command, ranks=3), 60)
    if any(status != 0 for status, _, _ in results.values()):
        run.fail(case, "it did not work", results)
    if any((WARNING in errors) != warned for _, errors, _ in results.values()):
        run.fail(case, f"ranks {'do not say' if warned else 'say'} \"{WARNING}\"", results)
    print(f"ok {case}" + (", without shared memory" if warned else ""))


def case_nobody(sprat):
    job("as user nobody", NOBODY + [sprat] + BENCH, warned=False)


def case_undumpable(sprat):
    command = NOBODY + ["env", "LD_PRELOAD=" + undumpable, "ASAN_OPTIONS=verify_asan_link_order=0", sprat]
    job("not dumpable", command + BENCH, warned=True)
    doctor = subprocess.run(command + ["doctor"], text=True, capture_output=True)
    if doctor.returncode != 1 or "not dumpable" not in doctor.stdout:
        run.fail("doctor, not dumpable", f"exit code {doctor.returncode}: {doctor.stdout}", {})


def has_user_namespaces(case):
    """Containers often forbid them, and a changed root does."""
    allowed = subprocess.run(["unshare", "--user", "--map-root-user", "true"], capture_output=True).returncode == 0
    if not allowed:
        print(f"{case}: skipped, since `unshare --user` is not allowed here")
    return allowed


def case_user_namespaces(sprat):
    """Each rank in one of its own: they are separate hosts by their identity, with nothing to warn of."""
    if not has_user_namespaces("each in a user namespace"):
        return
    job("each in a user namespace", ["unshare", "--user", "--map-root-user", sprat] + BENCH, warned=False)


def case_one_user_namespace(sprat):
    if not has_user_namespaces("all in one user namespace"):
        return
    inside = [sys.executable, os.path.abspath(__file__), sprat, "", "inner"]
    sys.stdout.flush()
    if subprocess.run(["unshare", "--user", "--map-root-user"] + inside).returncode != 0:
        sys.exit(1)


def case_small_dev_shm(sprat):
    inside = [sys.executable, os.path.abspath(__file__), sprat, "", "inner"]
    script = 'mount -t tmpfs -o size=1m none /dev/shm && exec "$@"'
    sys.stdout.flush()
    if subprocess.run(["unshare", "--mount", "sh", "-c", script, "sh"] + inside).returncode != 0:
        sys.exit(1)


def case_ptrace_scope(sprat):
    path = "/proc/sys/kernel/yama/ptrace_scope"
    if not os.path.exists(path):
        print("ptrace scope 1: skipped, since this kernel has no Yama")
        return
    with open(path) as file:
        before = file.read()
    try:
        with open(path, "w") as file:
            file.write("1")
        job("ptrace scope 1", NOBODY + [sprat] + BENCH, warned=False)
    finally:
        with open(path, "w") as file:
            file.write(before)


def main():
    global undumpable
    sprat, undumpable, *chosen = sys.argv[1:]
    if chosen == ["inner"]:
        return job("inside", [sprat] + BENCH, warned=False)
    if os.geteuid() != 0:
        print("needs root, which can be other users")
        sys.exit(77)
    sprat, undumpable = run.for_everybody(sprat), run.for_everybody(undumpable)
    run.let_everybody_suppress_leaks()
    for name, case in list(globals().items()):
        if name.startswith("case_") and (not chosen or name[5:] in chosen):
            print(name[5:].replace("_", " "), flush=True)
            case(sprat)


if __name__ == "__main__":
    main()
