#!/usr/bin/env python3
"""Jobs that lose ranks and grow again: elastic.py WORKER [--rounds N] [--ranks N] [--seed N] [--namespaces]

A job of --ranks ranks loses one by SIGKILL at a random moment, --rounds times, rank 0 as often as any. The
others shrink and do right collectives, a new process takes the lost one's place by growing, and all do right
collectives again; the last generation ends well. With --namespaces ranks are on two hosts, over the wire that
SPRAT_PROVIDER says. Nothing may be left behind. A whole run: --rounds 20.
"""
import argparse
import os
import random
import signal
import sys
import tempfile
import time

from hosts import Hosts
from job import Job, Residue, verdict

LIMIT_S = 60


def expect(job, rank, line):
    """Reads a rank's next line; text of what it said instead."""
    said = job.read_line(rank, LIMIT_S)
    if said == line:
        return ""
    process = job.processes[rank]
    process.send_signal(signal.SIGKILL)
    return f"rank {rank} says [{said}] instead of [{line}]: {process.communicate()[1][-400:]}"


def run(options, folder, hosts):
    """Text of what went wrong; empty if nothing. And how long a cycle of kill, shrink, grow took at most."""
    draw = random.Random(options.seed)
    seed, place = str(draw.randrange(1 << 30)), "file://" + os.path.join(folder, "growth")
    arguments = [seed, place, str(options.rounds)]
    names = ["ab"[rank * 2 // options.ranks] for rank in range(options.ranks)] if hosts else []
    homes = dict(enumerate(names))
    spaces = [hosts.space("ab".index(name)) for name in names] if hosts else None
    where = dict(address=hosts.address(0), port=20_001) if hosts else {}
    job = Job(options.worker, ["elastic", *arguments], options.ranks, ",".join(names), spaces=spaces, **where)
    slowest = 0.0
    try:
        for generation in range(options.rounds):
            for rank in job.processes:
                if wrong := expect(job, rank, f"whole {options.ranks} {generation}"):
                    return wrong, slowest
            time.sleep(draw.random() ** 2 * 0.3)
            victim = draw.choice(sorted(job.processes))
            begin = time.monotonic()
            job.kill(victim)
            for rank in job.processes:
                if wrong := expect(job, rank, f"shrunk {options.ranks - 1} {generation}"):
                    return f"generation {generation} without rank {victim}: {wrong}", slowest
            # A name of its own, so that who lives keeps its. It comes back where the lost one was.
            newcomer = options.ranks + generation
            homes[newcomer] = homes.get(victim, "")
            job.add(newcomer, [options.worker, "newcomer", *arguments], SPRAT_HOST=homes[newcomer],
                    space=hosts.space("ab".index(homes[newcomer])) if hosts else None)
            slowest = max(slowest, time.monotonic() - begin)
        for rank in job.processes:
            for line in (f"whole {options.ranks} {options.rounds}", "well"):
                if wrong := expect(job, rank, line):
                    return wrong, slowest
        for rank, (status, errors, _) in sorted(job.collect(LIMIT_S).items()):
            if status != 0:
                return f"rank {rank} ended with {status}: {verdict(errors)}", slowest
        return "", slowest
    finally:
        job.end()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("worker")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--namespaces", action="store_true")
    options = parser.parse_args()
    residue = Residue()
    hosts = Hosts(2) if options.namespaces else None
    begin = time.monotonic()
    try:
        with tempfile.TemporaryDirectory() as folder:
            failure, slowest = run(options, folder, hosts)
            left = os.listdir(folder)
    finally:
        if hosts:
            hosts.remove()
    left += residue.left()
    if failure:
        print("FAILED", failure)
    print(f"{options.rounds} rounds of {options.ranks} ranks, slowest loss and shrink {slowest:.2f} s, "
          f"{time.monotonic() - begin:.0f} s, left behind: {left or 'nothing'}")
    sys.exit(1 if failure or left else 0)


if __name__ == "__main__":
    main()
