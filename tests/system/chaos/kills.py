#!/usr/bin/env python3
"""Random kills: kills.py WORKER [--kills N] [--seed N] [--at-once N] [--shrink] [--namespaces]

A rank of a job that runs random collectives dies by SIGKILL at a random moment. Every survivor must end
within five seconds with an error that names it (or, with --shrink, go on and do 100 right collectives),
and nothing may be left behind. With --namespaces hosts are network namespaces (needs root).
"""
import argparse
import concurrent.futures
import random
import sys
import time

from hosts import Hosts
from job import Job, Residue, verdict

LIMIT_S = 5.0


def one_kill(options, number):
    """Text of what went wrong; empty if nothing. And how long the slowest survivor took."""
    draw = random.Random(options.seed * 100_003 + number)
    ranks = draw.randint(2, 6)
    hosts = draw.choice(["", "", ",".join("ab"[rank * 2 // ranks] for rank in range(ranks)),
                         ",".join(draw.choice("ab") for _ in range(ranks))])
    if options.namespaces:
        hosts = ",".join("ab"[rank * 2 // ranks] for rank in range(ranks))
    forks = draw.random() < 0.3
    victim = draw.randrange(ranks)
    arguments = ["soak", str(draw.randrange(1 << 30))] + ["fork"] * forks + ["shrink"] * options.shrink
    variables, spaces = {}, None
    if options.namespaces:
        spaces = [options.hosts.space("ab".index(name)) for name in hosts.split(",")]
        variables = {"address": options.hosts.address(0), "port": 20_000 + number % 20_000}
    job = Job(options.worker, arguments, ranks, hosts, spaces=spaces, **variables)
    sessions = job.sessions()
    what = f"kill {number} (seed {options.seed}): rank {victim} of {ranks} on [{hosts}]{' forked' * forks}"
    try:
        if not job.wait_until_ready():
            return f"{what}: did not start: {job.collect(1)}", 0.0
        time.sleep(draw.random() ** 2 * 0.5)
        job.kill(victim)
        return (check_shrunk if options.shrink and ranks > 1 else check_ended)(job, what, victim, ranks)
    finally:
        job.end()
        job.sweep(sessions)


def check_ended(job, what, victim, ranks):
    results = job.collect(LIMIT_S + 3)
    for rank, (status, errors, seconds) in sorted(results.items()):
        code, named, text = verdict(errors)
        if status is None or seconds > LIMIT_S:
            return f"{what}: rank {rank} did not end within {LIMIT_S} s: {errors[-300:]}", seconds
        if status != 1 or code != "lost peer" or named != victim:
            return f"{what}: rank {rank} ended with {status}, {code}, rank {named}: {text[-300:]}", seconds
    return "", max(seconds for _, _, seconds in results.values())


def check_shrunk(job, what, victim, ranks):
    begin = time.monotonic()
    for rank in job.processes:
        line = job.read_line(rank, 30)
        if line != f"shrunk {ranks - 1}":
            return f"{what}: rank {rank} says [{line}] instead of going on: {job.collect(0.1)}", 0.0
    return "", time.monotonic() - begin


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("worker")
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--at-once", type=int, default=2)
    parser.add_argument("--shrink", action="store_true")
    parser.add_argument("--namespaces", action="store_true")
    options = parser.parse_args()
    residue = Residue()
    options.hosts = Hosts(2) if options.namespaces else None
    failures, slowest = [], 0.0
    try:
        with concurrent.futures.ThreadPoolExecutor(options.at_once) as pool:
            for failure, seconds in pool.map(lambda number: one_kill(options, number), range(options.kills)):
                slowest = max(slowest, seconds)
                if failure:
                    failures.append(failure)
                    print("FAILED", failure, flush=True)
    finally:
        if options.hosts:
            options.hosts.remove()
    left = residue.left()
    print(f"{options.kills} kills, {len(failures)} failed, slowest survivor {slowest:.2f} s, left behind: {left or 'nothing'}")
    sys.exit(1 if failures or left else 0)


if __name__ == "__main__":
    main()
