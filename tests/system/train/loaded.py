#!/usr/bin/env python3
"""Training on files of tokens that a loader reads, under mpirun. loaded.py SPRAT [CASE ...]

ranks     1, 2 and 4 ranks, stages, and layers that are cut among ranks which read their own samples, have the same losses to the bit,
          from shards of nanoGPT and llm.c, from Megatron's documents with separators, and from a mixture; ranks index each file once, together
kill      a run of 2 ranks that is killed goes on with 4, then with 1, with the losses of a run that never stopped
other     other data is refused where a run goes on, on every rank
"""
import array
import json
import os
import random
import re
import signal
import struct
import time

from start import mpirun, run_cases
from stop import fail, finish, ranks_of

STEPS = 6
VOCABULARY = 300
PATIENCE_S = 120


def tokens(draw, count):
    """Numbers that a model can learn something of: each is mostly the one before, and one more."""
    values, last = array.array("H"), 0
    for _ in range(count):
        last = (last + 1) % VOCABULARY if draw.random() < 0.8 else draw.randrange(VOCABULARY)
        values.append(last)
    return values


def write_shards(folder, name, shards, draw):
    for shard in range(shards):
        (folder / f"{name}{shard}.bin").write_bytes(tokens(draw, 3000 + 7 * shard).tobytes())


def write_llmc(folder, name, draw):
    """A shard of llm.c's, whose header says what it holds."""
    values = tokens(draw, 3000)
    header = array.array("i", [20240520, 1, len(values)] + [0] * 253)
    (folder / f"{name}.bin").write_bytes(header.tobytes() + values.tobytes())


def write_documents(folder, name, draw):
    """Megatron's .bin and .idx."""
    lengths = [draw.randrange(1, 90) for _ in range(200)]
    (folder / f"{name}.bin").write_bytes(tokens(draw, sum(lengths)).tobytes())
    places = array.array("q", [0])
    for length in lengths[:-1]:
        places.append(places[-1] + 2 * length)
    (folder / f"{name}.idx").write_bytes(
        b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, len(lengths), 1) + array.array("i", lengths).tobytes() + places.tobytes()
        + array.array("q", [0]).tobytes())


def write_data(folder):
    draw = random.Random(4)
    write_shards(folder, "learn", 3, draw)
    write_shards(folder, "held", 1, draw)
    write_llmc(folder, "llmc", draw)
    write_documents(folder, "documents", draw)
    write_documents(folder, "held_documents", draw)


def plain(*paths, **keys):
    return {"paths": list(paths), "format": "tokens", "token_type": "u16", **keys}


DATA = {
    "shards": {"sources": [plain("learn*.bin")], "validation": {"sources": [plain("held0.bin")]}},
    "llm.c": {"sources": [{"paths": ["llmc.bin"]}], "validation": {"sources": [plain("held0.bin")]}},
    "documents": {"sources": [{"paths": ["documents.bin"], "separator": 299}],
                  "validation": {"sources": [{"paths": ["held_documents.bin"], "separator": 299}]}},
    "mixture": {"sources": [plain("learn0.bin", weight=3), plain("learn1.bin", "learn2.bin")],
                "validation": {"sources": [plain("held0.bin")]}, "order": {"shuffle": "chunks", "chunk": 16}}}


def configuration(folder, data, **sections):
    config = {"model": {"layers": 2, "width": 32, "heads": 2, "context": 32, "vocabulary": VOCABULARY}, "data": data,
              "train": {"steps": STEPS, "batch": 8, "gemm": "reference", "validate_every": 3}, **sections}
    (folder / "config.json").write_text(json.dumps(config))
    return folder / "config.json"


def lines_of(folder):
    report = folder / "report"
    return [json.loads(line) for line in report.read_text().splitlines()] if report.exists() else []


def losses_of(lines):
    return [(line["loss_hex"], line.get("validation_loss")) for line in lines]


def train(sprat, folder, ranks, data, *more, **sections):
    """What the run prints, and its report."""
    run = mpirun((ranks, sprat, "train", configuration(folder, data, **sections), "--report", folder / "report", *more))
    output, errors = finish(run)
    if run.returncode != 0:
        fail(f"{ranks} ranks ended with status {run.returncode}", output, errors)
    return output, lines_of(folder)


def shared(microbatches, **keys):
    return {"parallel": {"gradient_order": "tree", "hybrid_shard_degree": 1, "microbatches": microbatches, **keys}}


def case_ranks(sprat, folder):
    write_data(folder)
    own_samples = {"tensor_parallel_degree": 2, "prescaled_batch": False}
    for name, data in DATA.items():
        expected = None
        for ranks, microbatches, keys in [(1, 4, {}), (2, 2, {}), (4, 1, {}), (2, 4, {"pipeline_parallel_degree": 2}),
                                          (4, 2, own_samples)]:
            for index in folder.glob(".sprat-index*"):
                index.unlink()
            output, lines = train(sprat, folder, ranks, data, **shared(microbatches, **keys))
            expected = expected or losses_of(lines)
            if len(lines) != STEPS or losses_of(lines) != expected:
                fail(f"{name}, {ranks} ranks, {keys}: losses are {losses_of(lines)}, not {expected}", output, "")
            if not all("data_wait_ms" in line for line in lines):
                fail(f"{name}: the report tells of no wait for data", output, "")
            if list(folder.glob(".sprat-index*.lock")):
                fail(f"{name}: a lock of who indexed is left", output, "")
        if "samples of 32 tokens to learn" not in output or "data that is read ahead" not in output:
            fail(f"{name}: nothing says what is learnt, and how much memory that takes", output, "")


def killed(sprat, folder, ranks, step, *more, **sections):
    """A run that is killed once it has saved something behind `step`. The step that was saved last."""
    run = mpirun((ranks, sprat, "train", configuration(folder, DATA["shards"], **sections), "--report", folder / "report", *more))
    deadline = time.monotonic() + PATIENCE_S
    while True:
        saved = [int(path.name[5:]) for path in (folder / "saved").glob("step-*") if re.fullmatch(r"step-\d+", path.name)]
        if saved and max(saved) > step:
            break
        if run.poll() is not None or time.monotonic() > deadline:
            output, errors = finish(run)
            fail(f"the run that was to be killed behind step {step} saved {saved}", output, errors)
        time.sleep(0.02)
    for rank in ranks_of(run):
        os.kill(rank, signal.SIGKILL)
    finish(run)
    return max(saved)


def case_kill(sprat, folder):
    write_data(folder)
    steps = 60
    sections = lambda microbatches: {
        "train": {"steps": 2000, "batch": 8, "gemm": "reference", "validate_every": 0, "sample_bytes": 0},
        "checkpoint": {"folder": "saved", "every": 5, "keep": 3}, **shared(microbatches)}
    _, whole = train(sprat, folder, 1, DATA["shards"], "--steps", steps, **{**sections(4), "checkpoint": {}})
    saved = killed(sprat, folder, 2, 4, **sections(2))
    if saved >= steps:
        fail(f"the run was killed behind step {saved}, too late to compare {steps}", "", "")
    output, lines = train(sprat, folder, 4, DATA["shards"], "--steps", saved + 7, "--resume", **sections(1))
    if "resuming after step" not in output:
        fail("the run with 4 ranks did not resume", output, "")
    output, lines = train(sprat, folder, 1, DATA["shards"], "--steps", max(steps, saved + 8), "--resume", **sections(4))
    if [line["loss_hex"] for line in lines[:steps]] != [line["loss_hex"] for line in whole]:
        fail("the run that was killed has other losses than one that never stopped", output, "")


def case_other(sprat, folder):
    write_data(folder)
    sections = {"checkpoint": {"folder": "saved"}, **shared(1)}
    train(sprat, folder, 2, DATA["shards"], "--steps", 3, **sections)
    other = {**DATA["shards"], "sources": [plain("learn0.bin")]}
    run = mpirun((2, sprat, "train", configuration(folder, other, **sections), "--resume"))
    output, errors = finish(run)
    if run.returncode == 0 or "step " in output.replace("resuming after step", "") or "data.sources: " not in errors:
        fail(f"other data was not refused, status {run.returncode}", output, errors)


if __name__ == "__main__":
    run_cases(globals())
