#!/usr/bin/env python3
"""Every disagreement x size x hosts: disagreements.py WORKER [--whole] [--at-once N]

Rank 1 of three calls otherwise than the others, as processes. All must end with the mismatch and both
values, soon, whatever the size, on one host and on two (SPRAT_HOST). Without --whole: a sample.
"""
import argparse
import concurrent.futures
import sys
import time

from job import Job, Residue, verdict

RANKS = 3
LIMIT_S = 8.0
SIZES = [0, 8, 4 << 10, 1 << 20, 64 << 20]
HOSTS = ["", "a,a,b"]


def words(how, size):
    """What the error must say: both calls."""
    count = size // 4
    common = f"all_reduce of {count} f32"
    other = {"count": f"all_reduce of {count + 1} f32", "dtype": f"all_reduce of {count} i32",
             "op": f"all_reduce of {count} f32, max", "collective": f"all_gather of {count} f32",
             "barrier": "barrier", "order": f"all_gather of {count} f32"}
    if how == "root":
        return [f"broadcast of {count} f32, root 0", f"broadcast of {count} f32, root 1"]
    return [common, other[how]]


def check(worker, how, size, hosts):
    """What went wrong; empty if nothing."""
    what = f"{how}, {size} bytes, hosts [{hosts}]"
    job = Job(worker, ["differ", how, str(size)], RANKS, hosts)
    try:
        results = job.collect(LIMIT_S + 20)
    finally:
        job.end()
    for rank, (status, errors, _) in sorted(results.items()):
        code, _, text = verdict(errors)
        if status != 1 or code != "mismatch":
            return f"{what}: rank {rank} ended with {status}, {code}: {text[-300:]}"
        for word in words(how, size):
            if word not in text:
                return f"{what}: rank {rank} does not say [{word}]: {text[-300:]}"
    return ""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("worker")
    parser.add_argument("--whole", action="store_true")
    parser.add_argument("--at-once", type=int, default=2)
    options = parser.parse_args()
    residue = Residue()
    cases = [(how, size, hosts) for how in ("collective", "barrier", "dtype", "op", "count", "root", "order")
             for size in SIZES for hosts in HOSTS]
    if not options.whole:
        cases = [case for number, case in enumerate(cases) if case[1] <= 4096 and number % 5 == 1]
    begin = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(options.at_once) as pool:
        failures = [failure for failure in pool.map(lambda case: check(options.worker, *case), cases) if failure]
    for failure in failures:
        print("FAILED", failure)
    left = residue.left()
    print(f"{len(cases)} disagreements, {len(failures)} failed, {time.monotonic() - begin:.0f} s, left behind: {left or 'nothing'}")
    sys.exit(1 if failures or left else 0)


if __name__ == "__main__":
    main()
