"""One side for some seconds, in a process of its own: python -m beside.measure '{"side": ..., "work": ...}'.

Prints what it took as one line of JSON. The sum of each batch's words is taken while the time runs, as by a program that
looks at its data, and held against what the batch's samples must add up to behind it.
"""

from __future__ import annotations

import json
import pathlib
import sys
import time

import numpy

from beside import data, sides


def measured(asked: dict) -> dict:
    folder, work, name = pathlib.Path(asked["folder"]), asked["work"], asked["side"]
    begin = time.perf_counter()
    batches = sides.SIDES[name][0](folder, work, asked["settings"])
    which, arrays = next(batches)
    taken = [(sides.identities(work, which), checksum(arrays))]
    started = time.perf_counter()
    size = summing = 0.0
    deadline, most = started + asked["seconds"], asked["most_bytes"]
    while size < most and time.perf_counter() < deadline:
        which, arrays = next(batches)
        before = time.perf_counter()
        total = checksum(arrays)
        summing += time.perf_counter() - before
        size += sum(numpy.asarray(array).nbytes for array in arrays)
        taken.append((which if isinstance(which, (list, numpy.ndarray)) else which.records, total))
        del which, arrays
    seconds = time.perf_counter() - started
    return {"bytes": size, "seconds": seconds, "sum_seconds": summing, "first_s": started - begin, "batches": len(taken) - 1,
            "wrong": wrong(folder, work, name, taken)}


def checksum(arrays: list) -> int:
    return sum(int(numpy.asarray(array).reshape(-1).view(numpy.uint64).sum(dtype=numpy.uint64)) for array in arrays) % 2**64


def wrong(folder: pathlib.Path, work: str, name: str, taken: list) -> int:
    """Batches whose words are not those of their samples."""
    if work == "tokens":
        expected = data.WindowSums()
        return sum(expected(sides.first_tokens(name, numbers)) != total for numbers, total in taken)
    sums = data.Pieces(data.IMAGE if work == "images" else data.VOLUME).sums(data.counts(folder)[work])
    return sum(sum(sums[number] for number in numbers) % 2**64 != total for numbers, total in taken)


if __name__ == "__main__":
    print(json.dumps(measured(json.loads(sys.argv[1]))), flush=True)
