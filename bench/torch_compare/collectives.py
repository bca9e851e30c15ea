"""One rank of the comparison of collectives: gloo and Sprat in turns, every element checked."""

import json
import statistics
import sys
import time
from dataclasses import dataclass

import torch
import torch.distributed as dist

import ways

# A sample is the mean of as many calls as take this long.
LEAST_BATCH_S = 10e-3
MOST_CALLS = 2_000


def pattern(rank: int, first: int, count: int) -> torch.Tensor:
    """What `rank` holds at [first, first + count): small whole numbers, whose sums are exact."""
    return ((torch.arange(first, first + count) * 7 + rank * 31) % 251).to(torch.float32)


def sum_of_patterns(size: int, first: int, count: int) -> torch.Tensor:
    return sum(pattern(rank, first, count) for rank in range(size))


class AllReduce:
    def __init__(self, way: ways.Way, count: int):
        self.way, self.count, self.data = way, count, way.empty(count)

    def fill(self) -> None:
        self.data.copy_(pattern(dist.get_rank(), 0, self.count))

    def call(self) -> None:
        dist.all_reduce(self.data, group=self.way.group)

    def wrong(self) -> int:
        return differing(self.data, sum_of_patterns(dist.get_world_size(), 0, self.count))

    def settle(self) -> None:
        """Zeros, whose sums stay finite however often they are summed in place."""
        self.data.zero_()


class AllGather:
    def __init__(self, way: ways.Way, count: int):
        self.way, self.share = way, count // dist.get_world_size()
        self.input, self.output = way.empty(self.share), way.empty(count)

    def fill(self) -> None:
        self.input.copy_(pattern(dist.get_rank(), 0, self.share))
        self.output.zero_()

    def call(self) -> None:
        dist.all_gather_into_tensor(self.output, self.input, group=self.way.group)

    def wrong(self) -> int:
        return differing(self.output, torch.cat([pattern(rank, 0, self.share)
                                                 for rank in range(dist.get_world_size())]))

    def settle(self) -> None:
        pass


class ReduceScatter:
    def __init__(self, way: ways.Way, count: int):
        self.way, self.count, self.share = way, count, count // dist.get_world_size()
        self.input, self.output = way.empty(count), way.empty(self.share)

    def fill(self) -> None:
        self.input.copy_(pattern(dist.get_rank(), 0, self.count))
        self.output.zero_()

    def call(self) -> None:
        dist.reduce_scatter_tensor(self.output, self.input, group=self.way.group)

    def wrong(self) -> int:
        return differing(self.output, sum_of_patterns(dist.get_world_size(),
                                                      dist.get_rank() * self.share, self.share))

    def settle(self) -> None:
        pass


class AllToAll:
    def __init__(self, way: ways.Way, count: int):
        self.way, self.count, self.share = way, count, count // dist.get_world_size()
        self.input, self.output = way.empty(count), way.empty(count)

    def fill(self) -> None:
        self.input.copy_(pattern(dist.get_rank(), 0, self.count))
        self.output.zero_()

    def call(self) -> None:
        dist.all_to_all_single(self.output, self.input, group=self.way.group)

    def wrong(self) -> int:
        return differing(self.output, torch.cat([
            pattern(rank, dist.get_rank() * self.share, self.share)
            for rank in range(dist.get_world_size())]))

    def settle(self) -> None:
        pass


class Barrier:
    def __init__(self, way: ways.Way, _count: int):
        self.way = way

    def fill(self) -> None:
        pass

    def call(self) -> None:
        dist.barrier(group=self.way.group)

    def wrong(self) -> int:
        return 0

    def settle(self) -> None:
        pass


COLLECTIVES = {"all_reduce": AllReduce, "all_gather_into_tensor": AllGather,
               "reduce_scatter_tensor": ReduceScatter, "all_to_all_single": AllToAll,
               "barrier": Barrier}


def differing(got: torch.Tensor, expected: torch.Tensor) -> int:
    return int((got != expected).sum())


@dataclass
class Timed:
    """One way of one cell, ready to be sampled."""

    work: object
    calls: int = 1

    def check(self) -> int:
        """How many elements, over all ranks, one call gets wrong."""
        self.work.fill()
        self.work.call()
        wrong = torch.tensor([self.work.wrong()])
        dist.all_reduce(wrong)
        return int(wrong)

    def sample(self) -> float:
        """This rank's seconds a call, of a batch that all ranks begin together."""
        dist.barrier(group=self.work.way.group)
        begin = time.perf_counter()
        for _ in range(self.calls):
            self.work.call()
        return (time.perf_counter() - begin) / self.calls

    def choose_calls(self) -> None:
        """Warms up, and finds how many calls make a batch, the same on every rank."""
        while True:
            seconds = torch.tensor([min(self.sample() for _ in range(2)) * self.calls],
                                   dtype=torch.float64)
            dist.all_reduce(seconds, op=dist.ReduceOp.MAX)
            if float(seconds) >= LEAST_BATCH_S or self.calls >= MOST_CALLS:
                return
            wanted = int(self.calls * 1.3 * LEAST_BATCH_S / max(float(seconds), 1e-9))
            self.calls = min(MOST_CALLS, max(self.calls + 1, min(self.calls * 10, wanted)))


def measure(name: str, size_bytes: int, all_ways: list[ways.Way], samples: int) -> dict:
    """One cell; `size_bytes` is a rank's larger buffer, at least an element for each rank."""
    count = max(size_bytes // 4, dist.get_world_size())
    timed = {way.name: Timed(COLLECTIVES[name](way, count)) for way in all_ways}
    wrong = {way: entry.check() for way, entry in timed.items()}
    for entry in timed.values():
        entry.work.settle()
        entry.choose_calls()
    seconds = ways.alternate({way: entry.sample for way, entry in timed.items()}, samples)
    for way, entry in timed.items():
        wrong[way] += entry.check()
    return {"collective": name, "bytes": 0 if name == "barrier" else count * 4,
            "ranks": dist.get_world_size(), "samples_s": seconds,
            "median_s": {way: statistics.median(values) for way, values in seconds.items()},
            "wrong": wrong}


def main() -> None:
    options = json.loads(sys.argv[1])
    all_ways: list[ways.Way] = ways.join(options["against"])
    for name in options["collectives"]:
        for size_bytes in options["sizes"] if name != "barrier" else [0]:
            cell = measure(name, size_bytes, all_ways, options["samples"])
            if dist.get_rank() == 0:
                print(json.dumps(cell), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
