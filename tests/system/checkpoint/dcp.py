#!/usr/bin/env python3
"""Loads a checkpoint of ours with torch.distributed.checkpoint, and compares every bit.

    dcp.py WORKER

WORKER is bin/checkpoint_worker. Status 77 where there is no torch or no safetensors.
"""
import argparse
import subprocess
import sys
import tempfile

try:
    import safetensors  # noqa: F401  what torch reads such files with
    import torch
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint import HuggingFaceStorageReader
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

# Of tests/unit/checkpoint/model.hpp.
SHAPES = {"wte": (101, 64), "scalar": (), "w": (3, 7, 211), "empty": (0, 3), "flat": (0,), "one_row": (1, 5000),
          "six": (6,), "w1": (9, 1500), "b1": (1500,), "ln": (17,), "bias": (5, 2)}
STATES = ["", "exp_avg", "exp_avg_sq"]
STEP = 3


def expected(state, name, shape):
    count = 1
    for extent in shape:
        count *= extent
    mask = (1 << 64) - 1
    letters = f"{state}/{name}".encode()
    values = []
    for index in range(count):
        key = index * 0x9E3779B97F4A7C15 & mask
        for letter in letters:
            key = (key ^ letter) * 0x100000001B3 & mask
        values.append(((key >> 40) - (1 << 23)) * 2.0**-23)
    return (torch.tensor(values, dtype=torch.float32) + STEP).reshape(shape)


def stored_name(state, name):
    return f"optimizer.{state}.{name}" if state else name


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("worker")
    arguments = parser.parse_args()
    wanted = {stored_name(state, name): expected(state, name, shape)
              for state in STATES for name, shape in SHAPES.items()}
    for ranks, shards, stages in [(1, 1, 1), (2, 2, 1), (4, 2, 1), (8, 8, 1), (4, 2, 2), (4, 2, "1x2"), (6, 1, "2x3"), (4, 2, "1t2")]:
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([arguments.worker, "save", folder, str(ranks), str(shards), str(stages), str(STEP),
                            str(STEP)], check=True, timeout=100)
            path = f"{folder}/latest"
            state = {name: torch.full_like(tensor, float("nan")) for name, tensor in wanted.items()}
            dcp.load(state, storage_reader=HuggingFaceStorageReader(path))
            for name, tensor in wanted.items():
                assert state[name].shape == tensor.shape, name
                assert torch.equal(state[name].view(-1).view(torch.int32), tensor.view(-1).view(torch.int32)), name
            check_metadata(path, wanted)
            print(f"{ranks} ranks, {shards} shards, {stages} stages: {len(wanted)} tensors, every bit")


def check_metadata(path, wanted):
    """What torch infers from the files, by which it cuts at any other degree."""
    metadata = HuggingFaceStorageReader(path).read_metadata()
    assert set(metadata.state_dict_metadata) == set(wanted)
    for name, tensor in wanted.items():
        stored = metadata.state_dict_metadata[name]
        assert tuple(stored.size) == tuple(tensor.shape), (name, stored.size)
        times = torch.zeros(tensor.shape, dtype=torch.int32)
        for chunk in stored.chunks:
            part = times
            for dimension, (offset, size) in enumerate(zip(chunk.offsets, chunk.sizes)):
                part = part.narrow(dimension, offset, size)
            part += 1
        assert bool((times == 1).all()), name


if __name__ == "__main__":
    main()
