"""One rank of tests/gpu/nccl_net.sh: what NCCL gives is held against what it must give. --trace FOLDER reads what the profiler wrote."""

import collections
import json
import os
import pathlib
import sys
import time

import torch
import torch.distributed as dist


def told(step, **more):
    if dist.get_rank() == 0:
        print(json.dumps({"step": step, **more}), flush=True)


def values(count, dtype, rank):
    """Small whole numbers, which every dtype adds without rounding."""
    numbers = torch.arange(count, device="cuda") % 7 + rank
    return numbers.to(dtype)


def check_collectives(name):
    size, rank = dist.get_world_size(), dist.get_rank()
    wrong = []

    def hold(what, got, wanted):
        if not torch.equal(got, wanted):
            wrong.append(what)

    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int32, torch.int64, torch.uint8):
        for count in (1, 3, 1000, 65_537, 1 << 20):
            mine = values(count, dtype, rank)
            all_ranks = [values(count, dtype, one) for one in range(size)]
            got = mine.clone()
            dist.all_reduce(got)
            hold(f"all_reduce {dtype} {count}", got, sum(all_ranks[1:], all_ranks[0]))
            got = mine.clone()
            dist.all_reduce(got, op=dist.ReduceOp.MAX)
            hold(f"max {dtype} {count}", got, all_ranks[-1])
            gathered = torch.empty(size * count, dtype=dtype, device="cuda")
            dist.all_gather_into_tensor(gathered, mine)
            hold(f"all_gather {dtype} {count}", gathered, torch.cat(all_ranks))
            part = torch.empty(count, dtype=dtype, device="cuda")
            dist.reduce_scatter_tensor(part, torch.cat([mine + one for one in range(size)]))
            hold(f"reduce_scatter {dtype} {count}", part, sum((one + rank for one in all_ranks[1:]), all_ranks[0] + rank))
            got = mine.clone()
            dist.broadcast(got, 1)
            hold(f"broadcast {dtype} {count}", got, all_ranks[1])
            if rank == 0:
                dist.send(mine, 1)
                dist.recv(got, 1)
            else:
                dist.recv(got, 0)
                dist.send(mine, 0)
            hold(f"sendrecv {dtype} {count}", got, all_ranks[1 - rank])
    torch.cuda.synchronize()
    count = torch.tensor([len(wrong)], device="cuda")
    dist.all_reduce(count)
    told(name, checked="collectives", wrong=int(count.item()), first=wrong[:3])
    return not wrong


def measure(name):
    for megabytes in (1, 16, 64):
        tensor = torch.ones(megabytes << 18, device="cuda")
        for _ in range(2):
            dist.all_reduce(tensor)
        torch.cuda.synchronize()
        begun, calls = time.perf_counter(), 6
        for _ in range(calls):
            dist.all_reduce(tensor)
        torch.cuda.synchronize()
        seconds = (time.perf_counter() - begun) / calls
        told(name, all_reduce_mib=megabytes, ms=round(1e3 * seconds, 2), gb_s=round(tensor.nbytes / seconds / 1e9, 3))


def read_traces(folder):
    """0 if there is a trace of each of the two processes in which every event ends, and collectives and the network are told of."""
    counts, files = collections.Counter(), sorted(pathlib.Path(folder).glob("*.json"))
    whole = len(files) == 2
    for file in files:
        begun, over = set(), set()
        for event in json.loads(file.read_text())["traceEvents"]:
            (begun if event["ph"] == "b" else over).add(event["id"])
            counts[event["cat"]] += event["ph"] == "b"
        whole = whole and begun == over
    good = whole and counts["collective"] > 0 and counts["network"] > 0
    print(json.dumps({"step": "trace", "result": "ok" if good else "failed", "files": len(files), **counts}), flush=True)
    return 0 if good else 1


def main():
    name = sys.argv[1]
    if name == "--trace":
        return read_traces(sys.argv[2])
    torch.cuda.set_device(0)
    dist.init_process_group("nccl")
    told(name, torch=torch.__version__, nccl=".".join(map(str, torch.cuda.nccl.version())), gpu=torch.cuda.get_device_name())
    right = check_collectives(name)
    if right and "SPRAT_NCCL_CHECK_ONLY" not in os.environ:
        measure(name)
    dist.destroy_process_group()
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
