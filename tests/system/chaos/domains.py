#!/usr/bin/env python3
"""One communicator fails, others go on: domains.py WORKER [--rounds N] [--operations N] [--seed N] [--at-once N]

Each round is a job whose ranks have four communicators. One of them times out, is called otherwise by one
rank, is aborted or revoked, or loses a rank; the other three do --operations right collectives each
meanwhile, and some after it, and the failed one is shrunk and used. Every rank that lives ends well, and
nothing may be left behind. All ranks share a host; of several hosts, over our
sockets, hosts.communicators_fail_alone.* are samples. A thousand rounds: --rounds 1000 --operations 10000.
"""
import argparse
import concurrent.futures
import random
import signal
import sys
import time

from job import Job, Residue, verdict

WAYS = ["timeout", "mismatch", "abort", "revoke", "loss"]


def one_round(options, number):
    """Text of what went wrong; empty if nothing. And how long it took."""
    draw = random.Random(options.seed * 100_003 + number)
    ranks = draw.randint(3, 5)
    way = WAYS[number % len(WAYS)]
    seed = draw.randrange(1 << 30)
    what = f"round {number} (seed {options.seed}): {way}, {ranks} ranks, worker seed {seed}"
    job = Job(options.worker, ["domains", way, str(seed), str(options.operations)], ranks)
    try:
        results = job.collect(options.limit)
    finally:
        job.end()
    dead = [rank for rank, (status, _, _) in results.items() if status == -signal.SIGKILL]
    if len(dead) != (way == "loss"):
        return f"{what}: dead are {dead}", 0.0
    for rank, (status, errors, _) in sorted(results.items()):
        if rank not in dead and status != 0:
            code, named, text = verdict(errors)
            return f"{what}: rank {rank} ended with {status}, {code}, rank {named}: {text[-400:]}", 0.0
    return "", max(seconds for _, _, seconds in results.values())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("worker")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--operations", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--at-once", type=int, default=2)
    parser.add_argument("--limit", type=float, default=120, help="seconds that a round may take")
    options = parser.parse_args()
    residue = Residue()
    failures, slowest, begin = [], 0.0, time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(options.at_once) as pool:
        rounds = pool.map(lambda number: one_round(options, number), range(options.rounds))
        for done, (failure, seconds) in enumerate(rounds, 1):
            slowest = max(slowest, seconds)
            if failure:
                failures.append(failure)
                print("FAILED", failure, flush=True)
            if done % max(10, options.rounds // 20) == 0:
                print(f"{done} of {options.rounds} rounds, {len(failures)} failed, {time.monotonic() - begin:.0f} s", flush=True)
    left = residue.left()
    print(f"{options.rounds} rounds, {len(failures)} failed, slowest {slowest:.1f} s, {time.monotonic() - begin:.0f} s, "
          f"left behind: {left or 'nothing'}")
    sys.exit(1 if failures or left else 0)


if __name__ == "__main__":
    main()
