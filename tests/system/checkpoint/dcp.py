#!/usr/bin/env python3
"""Loads checkpoints of ours with torch.distributed.checkpoint, and compares every bit.

    dcp.py WORKER [SPRAT]

WORKER is bin/checkpoint_worker, which saves values that are known. With SPRAT also what `sprat train` saves under tensor, pipeline
and sharding degrees together, against what one rank saves. Status 77 where there is no torch or no safetensors.
"""
import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "train"))
from job import Trainer, stored_tensors  # noqa: E402

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
    parser.add_argument("sprat", nargs="?")
    arguments = parser.parse_args()
    wanted = {stored_name(state, name): expected(state, name, shape)
              for state in STATES for name, shape in SHAPES.items()}
    for ranks, shards, stages in [(1, 1, 1), (2, 2, 1), (4, 2, 1), (8, 8, 1), (4, 2, 2), (4, 2, "1x2"), (6, 1, "2x3"), (4, 2, "1t2")]:
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([arguments.worker, "save", folder, str(ranks), str(shards), str(stages), str(STEP),
                            str(STEP)], check=True, timeout=100)
            check(f"{folder}/latest", wanted)
            print(f"{ranks} ranks, {shards} shards, {stages} stages: {len(wanted)} tensors, every bit")
    if arguments.sprat:
        check_trained(arguments.sprat)


def check(path, wanted):
    state = {name: torch.full_like(tensor, float("nan")) for name, tensor in wanted.items()}
    dcp.load(state, storage_reader=HuggingFaceStorageReader(path))
    for name, tensor in wanted.items():
        assert state[name].shape == tensor.shape, name
        assert torch.equal(state[name].view(-1).view(torch.int32), tensor.view(-1).view(torch.int32)), name
    check_metadata(path, wanted)


def check_trained(sprat):
    """What one rank saves is in whole tensors, which cuts.py holds every cut to."""
    train = {"steps": 2, "batch": 8, "validate_every": 0, "sample_bytes": 0, "gemm": "reference"}
    cuts = {"one rank": (1, {"microbatches": 4}),
            "T 2 x P 2 x S 2": (8, {"microbatches": 2, "tensor_parallel_degree": 2, "pipeline_parallel_degree": 2,
                                    "hybrid_shard_degree": 2})}
    with tempfile.TemporaryDirectory() as name:
        folder, wanted = pathlib.Path(name), None
        (folder / "text.txt").write_text("a text that repeats itself.\n" * 400)
        for cut, (ranks, parallel) in cuts.items():
            Trainer(sprat, folder, dict(os.environ)).trained(
                {"model": {"layers": 2, "width": 32, "heads": 4, "context": 16}, "data": {"files": ["text.txt"]},
                 "parallel": {"gradient_order": "tree", **parallel}, "train": train, "checkpoint": {"folder": cut}}, ranks)
            path = str(folder / cut / "latest")
            wanted = wanted or whole_tensors(path)
            check(path, wanted)
            print(f"sprat train on {cut}: {len(wanted)} tensors, every bit")


def whole_tensors(path):
    stored = stored_tensors(path)
    metadata = HuggingFaceStorageReader(path).read_metadata().state_dict_metadata
    return {name: torch.frombuffer(bytearray(stored[name]), dtype=torch.float32).reshape(tuple(metadata[name].size))
            for name in metadata}


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
