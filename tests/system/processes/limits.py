#!/usr/bin/env python3
"""Jobs that start with too few descriptors or threads: limits.py SPRAT. With --address-space, instead, ranks
that have too little room to map each other's buffers, or virtual ones that have too little for their threads.

Whatever the limit, every rank ends within seconds, well or with a reason that names what ran out.
"""
import os
import resource
import signal
import subprocess
import sys

import run

LIMIT_S = 20.0
FILES = "Too many open files"
THREADS = "cannot start "
NO_MEMORY = ["ulimit -v", "Cannot allocate memory"]
LONELY_USER = 61234  # the limit on threads counts all of a user's


def outcome(case, command, before):
    """(status, errors) of one process; fails the test if it does not end by itself."""
    try:
        done = subprocess.run(command, text=True, capture_output=True, timeout=LIMIT_S, preexec_fn=before)
    except subprocess.TimeoutExpired as error:
        run.fail(case, f"it did not end within {LIMIT_S} s", {0: (None, str(error.stderr), LIMIT_S)})
    return done.returncode, done.stderr


def ends_with_reason(case, status, errors, reasons):
    if status != 0 and (status != 1 or not any(reason in errors for reason in reasons)):
        run.fail(case, f"it ended without any of {reasons}", {0: (status, errors, 0)})
    return status != 0


def limit(which, value):
    return lambda: resource.setrlimit(which, (value, value))


def threads_of_lonely_user(value):
    def before():
        os.setgroups([])
        os.setgid(LONELY_USER)
        os.setuid(LONELY_USER)
        resource.setrlimit(resource.RLIMIT_NPROC, (value, value))
    return before


def sweep(case, command, limits, before, reasons):
    """Under each of the limits, of which the least is too little."""
    refused = [ends_with_reason(f"{case} {value}", *outcome(f"{case} {value}", command, before(value)), reasons)
               for value in limits]
    if not refused[0]:
        run.fail(case, f"it ran with {limits[0]}, so nothing was tested", {})
    print(f"ok {case}: {sum(refused)} of {len(refused)} limits are too little", flush=True)


def processes_with_few_descriptors(sprat):
    command = [sprat, "bench", "all_reduce", "-e", "64", "-n", "1", "-w", "0"]
    reasons = [FILES, "cannot join", "no descriptor is left", "turned away", "missing: rank", "found no hub"]
    for files in range(8, 20):
        case = f"two processes with {files} descriptors"
        results = run.collect(run.start(["prlimit", f"--nofile={files}"] + command, ranks=2,
                                        SPRAT_JOIN_TIMEOUT="3"), LIMIT_S)
        for rank, (status, errors, _) in results.items():
            if status not in (0, 1) or (status == 1 and not any(reason in errors for reason in reasons)):
                run.fail(case, f"rank {rank} does not say why", results)
            if "another host" in errors or "without a secret" in errors:
                run.fail(case, f"rank {rank} takes the other for a stranger", results)
        if any(status == 1 for status, _, _ in results.values()):
            if not any(FILES in errors or "no descriptor is left" in errors for _, errors, _ in results.values()):
                run.fail(case, "nobody says what ran out", results)
    print("ok two processes with few descriptors")


def more_ranks_than_descriptors(sprat):
    """Rank 0, which has a connection to each, says so before anybody has come."""
    case = "a thousand ranks and 64 descriptors"
    command = ["prlimit", "--nofile=64", sprat, "bench", "all_reduce", "-e", "64"]
    results = run.collect(run.start(command, ranks=1000, skip=range(1, 1000), SPRAT_JOIN_TIMEOUT="60"), LIMIT_S)
    status, errors, _ = results[0]
    if status != 1 or "no more than 64 files" not in errors:
        run.fail(case, "rank 0 does not say that the limit is too low", results)
    print(f"ok {case}")


def address_space(sprat):
    """Somewhere between joining and having all buffers mapped the room ends, wherever libraries lie."""
    command = [sprat, "bench", "all_reduce", "-b", "128M", "-e", "128M", "--memory", "shared", "-n", "1", "-w", "0"]
    named = 0
    for mib in range(800, 1400, 60):
        case = f"two processes with {mib} MiB of address space"
        results = run.collect(run.start(["prlimit", f"--as={mib << 20}"] + command, ranks=2), LIMIT_S)
        for rank, (status, errors, _) in results.items():
            if status is None or "it was freed there" in errors:
                run.fail(case, f"rank {rank} gives a wrong reason, or none", results)
            named += "this process can map no more memory (see ulimit -v" in errors
    if not named:
        run.fail("address space", "nobody could map too little", {})
    print(f"ok address space: {named} ranks say that they can map no more")
    # Of each thread the stack and what it allocates from take room, so that it ends at any of them.
    virtual = [sprat, "bench", "all_reduce", "-e", "64", "-n", "1", "-w", "0", "--virtual-ranks", "300"]
    sweep("address space of 300 virtual ranks", virtual, [mib << 20 for mib in range(1000, 9000, 400)],
          lambda value: limit(resource.RLIMIT_AS, value), [THREADS, *NO_MEMORY])


def main():
    sprat = sys.argv[1]
    if sys.argv[2:] == ["--address-space"]:
        address_space(sprat)
        return
    threads = [sprat, "bench", "all_reduce", "-e", "64", "-n", "1", "-w", "0", "--virtual-ranks"]
    sweep("descriptors of 4 virtual ranks", threads + ["4"], range(8, 20),
          lambda value: limit(resource.RLIMIT_NOFILE, value), [FILES])
    if os.geteuid() == 0:
        threads[0] = run.for_everybody(sprat)
        sweep("threads of 4 virtual ranks", threads + ["4"], range(1, 6), threads_of_lonely_user, [THREADS])
    else:
        print("threads: skipped, since only root can be a user without other processes")
    processes_with_few_descriptors(sprat)
    more_ranks_than_descriptors(sprat)


if __name__ == "__main__":
    main()
