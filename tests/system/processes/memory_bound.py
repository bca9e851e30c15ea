#!/usr/bin/env python3
"""Training within less memory than whole copies of the model need: memory_bound.py SPRAT.
Needs root and a memory control group; ends with 77, saying why, where there is none.

Four ranks share one group of 0.6 x 4 x the bytes of a whole f32 state with AdamW (16 an element). ZeRO-3 must
train in it; DDP must not, or the limit would prove nothing. In half of it ZeRO-3 must train with
shards and optimizer state in files, and not without. Who does not train says which limit is too low, or is killed:
ranks that share a group may each find room that another one takes.
"""
import json
import os
import pathlib
import signal
import sys
import tempfile
import time

import run

RANKS = 4
LAYERS, WIDTH, CONTEXT = 12, 512, 32
# Weights and biases of a block, two norms each; the embeddings and the last norm.
PARAMETERS = LAYERS * (12 * WIDTH * WIDTH + 13 * WIDTH) + (256 + CONTEXT) * WIDTH + 2 * WIDTH
LIMIT = int(0.6 * RANKS * 16 * PARAMETERS)


def make_group(bytes):
    """A new control group with a limit of so many, or None with the reason."""
    for folder, limit in (("memory", "memory.limit_in_bytes"), (".", "memory.max")):
        root = pathlib.Path("/sys/fs/cgroup") / folder
        group = root / f"sprat-test-{os.getpid()}"
        try:
            group.mkdir()
            (group / limit).write_text(str(bytes))
            return group, ""
        except OSError as error:
            reason = str(error)
            if group.is_dir():
                group.rmdir()
    return None, reason


def train(sprat, group, config, parallel):
    config["parallel"] = parallel
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(config, file)
        file.flush()
        inside = ["sh", "-c", 'echo 0 >"$0" && exec "$@"', str(group / "cgroup.procs")]
        return run.collect(run.start(inside + [sprat, "train", file.name], ranks=RANKS), 240)


def held(sprat, config, bytes, kind, parallel, trains):
    """Trains within so many bytes, or ends for want of more."""
    group, _ = make_group(bytes)
    try:
        results = train(sprat, group, config, parallel)
        if trains and any(status != 0 for status, _, _ in results.values()):
            run.fail(kind, f"it did not train in {bytes >> 20} MiB", results)
        if not trains and not any(status == -signal.SIGKILL or f"{group.name}/memory." in errors
                                  for status, errors, _ in results.values()):
            run.fail(kind, f"nobody lacked memory in {bytes >> 20} MiB", results)
        print(f"ok {kind} {'trains' if trains else 'does not train'} in {bytes >> 20} MiB", flush=True)
    finally:
        time.sleep(0.2)  # the killed leave the group
        group.rmdir()


def main():
    sprat = sys.argv[1]
    group, reason = make_group(LIMIT)
    if group is None:
        print(f"skipped: no memory control group can be made here: {reason}")
        return 77
    group.rmdir()
    print(f"{PARAMETERS} parameters, {RANKS} ranks")
    with tempfile.NamedTemporaryFile(suffix=".txt") as text, tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        text.write(b"the quick brown fox jumps over the lazy dog. " * 200)
        text.flush()
        config = {"model": {"layers": LAYERS, "width": WIDTH, "heads": 8, "context": CONTEXT},
                  "data": {"files": [text.name]},
                  "train": {"steps": 2, "batch": RANKS, "validate_every": 0, "sample_bytes": 0}}
        zero3 = {"hybrid_shard_degree": RANKS}
        tiers = {"state_tier": f"file:{folder}", "shard_tier": f"file:{folder}"}
        held(sprat, config, LIMIT, "ZeRO-3", zero3, trains=True)
        held(sprat, config, LIMIT, "DDP", {"hybrid_shard_degree": 1}, trains=False)
        held(sprat, config, LIMIT // 2, "ZeRO-3 in files", zero3 | tiers, trains=True)
        held(sprat, config, LIMIT // 2, "ZeRO-3 in memory", zero3, trains=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
