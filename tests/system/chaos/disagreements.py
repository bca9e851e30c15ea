#!/usr/bin/env python3
"""Every disagreement x size x hosts: disagreements.py WORKER [--whole] [--at-once N]

Rank 1 of three calls otherwise than the others, as processes: another dtype, count, root, order, other
counts, one call less, or B where the others call A, for each two collectives. All must end with the
mismatch and both values, soon, whatever the size, on one host and on two (SPRAT_HOST). Without --whole:
a sample.
"""
import argparse
import concurrent.futures
import itertools
import re
import sys
import time

from job import Job, Residue, verdict

RANKS = 3
LIMIT_S = 8.0
SIZES = [0, 8, 4 << 10, 1 << 20, 64 << 20]
HOSTS = ["", "a,a,b"]
COLLECTIVES = ["all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all", "reduce", "gather",
               "scatter", "all_gatherv", "reduce_scatterv", "gatherv", "scatterv", "all_to_allv", "barrier"]
EXCHANGES = ["gatherv", "scatterv", "all_to_allv"]  # each rank knows only its own counts
KINDS = ["dtype", "op", "count", "root", "order", "missing", "all_gatherv/all_gatherv",
         "reduce_scatterv/reduce_scatterv"]
KINDS += [f"{ours}/{theirs}" for ours, theirs in itertools.permutations(COLLECTIVES, 2)]


def call_words(name, count, counts):
    if name == "barrier":
        return r"\bbarrier\b"
    if name in EXCHANGES:
        return rf"\b{name} of f32"
    return rf"\b{name} of {counts if name.endswith('v') else count} f32"


def words(how, size):
    """What the error must say, as patterns: both calls."""
    count = size // 4
    more = count + 1
    common = f"all_reduce of {count} f32"
    other = {"count": f"all_reduce of {more} f32", "dtype": f"all_reduce of {count} i32",
             "op": f"all_reduce of {count} f32, max", "order": f"all_gather of {count} f32",
             "missing": f"all_gather of {count} f32"}
    if how == "root":
        return [f"broadcast of {count} f32, root 0", f"broadcast of {count} f32, root 1"]
    if "/" in how:
        ours, theirs = how.split("/")
        return [call_words(ours, count, f"{more}, {count}, {count}"),
                call_words(theirs, count, f"{count}, {count}, {more}")]
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
            if not re.search(word, text):
                return f"{what}: rank {rank} does not say [{word}]: {text[-300:]}"
    return ""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("worker")
    parser.add_argument("--whole", action="store_true")
    parser.add_argument("--at-once", type=int, default=2)
    options = parser.parse_args()
    residue = Residue()
    cases = [(how, size, hosts) for how in KINDS for size in SIZES for hosts in HOSTS]
    if not options.whole:
        cases = [case for number, case in enumerate(cases) if case[1] <= 4096 and number % 61 == 1]
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
