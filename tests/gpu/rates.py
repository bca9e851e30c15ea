#!/usr/bin/env python3
"""How fast sprat's operations on tensors of a device are, beside gloo's and beside plain copies, and whether memory stays flat.

  tests/gpu/rates.py --device cuda [--ranks 2] [--operations 5000]

Ranks share the first device. Rounds of sprat and of gloo take turns, and medians are told: one JSON line a size. Then a line about
memory over many operations; the status is 1 if it grew.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import resource
import socket
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing

from lane import device_of

SIZES = (4 << 10, 256 << 10, 4 << 20, 64 << 20)
ROUNDS = 7
# What a process may grow by over thousands of operations: some pages of the allocators', nothing for each.
MOST_GROWTH = 8 << 20


def seconds_of(operation, module, times: int) -> float:
    """One operation's, with the device idle before and after."""
    module.synchronize()
    begin = time.perf_counter()
    for _ in range(times):
        operation()
    module.synchronize()
    return (time.perf_counter() - begin) / times


def rates(device: torch.device, groups: dict[str, dist.ProcessGroup], module) -> None:
    for size in SIZES:
        data = torch.ones(size // 4, device=device)
        host = torch.empty(size // 4, pin_memory=device.type == "cuda")
        operations = {name: (lambda group=group: dist.all_reduce(data, group=group)) for name, group in groups.items()}
        # What any way by the host must do at least: out and in again.
        operations["copies"] = lambda: (host.copy_(data, non_blocking=True), data.copy_(host, non_blocking=True))
        times = max(1, min(20, (16 << 20) // size))
        found: dict[str, list[float]] = {name: [] for name in operations}
        for turn in range(ROUNDS + 1):
            for name, operation in operations.items():
                dist.barrier(groups["sprat"])
                took = seconds_of(operation, module, times)
                data.fill_(1)
                if turn > 0:  # the first round makes connections
                    found[name].append(took)
        line = {name + "_us": round(statistics.median(taken) * 1e6, 1) for name, taken in found.items()}
        if dist.get_rank() == 0:
            print(json.dumps({"all_reduce_bytes": size, "ranks": dist.get_world_size(), **line}), flush=True)


def resident() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize()


def memory(device: torch.device, module, count: int) -> bool:
    """Whether the second half of the operations left the process as large as the first half did."""
    data, marks = torch.ones(16 << 10, device=device), []
    for half in range(2):
        for _ in range(count // 2):
            dist.all_reduce(data, dist.ReduceOp.MAX, async_op=True).wait()
        module.synchronize()
        dist.barrier()
        held = torch.cuda.memory_allocated() if device.type == "cuda" else 0
        marks.append((resident(), held))
    growth, device_growth = marks[1][0] - marks[0][0], marks[1][1] - marks[0][1]
    if dist.get_rank() == 0:
        print(json.dumps({"operations": count, "resident_bytes": marks[1][0], "growth_bytes": growth,
                          "device_growth_bytes": device_growth}), flush=True)
    return growth <= MOST_GROWTH and device_growth <= 0


def run_rank(rank: int, given: argparse.Namespace, port: int) -> None:
    import sprat.torch  # noqa: F401  (registers the backend)

    torch.set_num_threads(1)
    device = device_of(given.device)
    module = torch.get_device_module(device)
    module.set_device(device)
    store = dist.TCPStore("127.0.0.1", port, given.ranks, rank == 0)
    dist.init_process_group("sprat", store=store, rank=rank, world_size=given.ranks, timeout=datetime.timedelta(seconds=60))
    groups = {"sprat": dist.group.WORLD}
    if device.type == "cuda":
        groups["gloo"] = dist.new_group(backend="gloo")
    rates(device, groups, module)
    flat = memory(device, module, given.operations)
    with contextlib.suppress(Exception):
        dist.destroy_process_group()
    sys.stdout.flush()
    os._exit(0 if flat else 1)


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--device", choices=["cuda", "stand_in"], default="cuda")
    options.add_argument("--ranks", type=int, default=2)
    options.add_argument("--operations", type=int, default=5000)
    given = options.parse_args()
    if given.device == "stand_in":
        device_of("stand_in")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    torch.multiprocessing.start_processes(run_rank, (given, port), given.ranks, start_method="spawn")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
