#!/usr/bin/env python3
"""Training within less memory than whole copies of the model need: memory_bound.py SPRAT.
Needs root and a memory control group; ends with 77, saying why, where there is none.

Four ranks share one group of 0.6 x 4 x the bytes of a whole f32 state with AdamW (16 an element). ZeRO-3 must
train in it; DDP must be killed in it, or the limit would prove nothing.
"""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile

import run

RANKS = 4
LAYERS, WIDTH, CONTEXT = 12, 512, 32
# Weights and biases of a block, two norms each; the embeddings and the last norm.
PARAMETERS = LAYERS * (12 * WIDTH * WIDTH + 13 * WIDTH) + (256 + CONTEXT) * WIDTH + 2 * WIDTH
LIMIT = int(0.6 * RANKS * 16 * PARAMETERS)


def make_group():
    """A new control group with the limit, or None with the reason."""
    for folder, limit in (("memory", "memory.limit_in_bytes"), (".", "memory.max")):
        root = pathlib.Path("/sys/fs/cgroup") / folder
        group = root / f"sprat-test-{os.getpid()}"
        try:
            group.mkdir()
            (group / limit).write_text(str(LIMIT))
            return group, ""
        except OSError as error:
            reason = str(error)
            if group.is_dir():
                group.rmdir()
    return None, reason


def train(sprat, group, config, degree):
    config["parallel"] = {"hybrid_shard_degree": degree}
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(config, file)
        file.flush()
        inside = ["sh", "-c", 'echo 0 >"$0" && exec "$@"', str(group / "cgroup.procs")]
        return run.collect(run.start(inside + [sprat, "train", file.name], ranks=RANKS), 240)


def main():
    sprat = sys.argv[1]
    group, reason = make_group()
    if group is None:
        print(f"skipped: no memory control group can be made here: {reason}")
        return 77
    with tempfile.NamedTemporaryFile(suffix=".txt") as text:
        text.write(b"the quick brown fox jumps over the lazy dog. " * 200)
        text.flush()
        config = {"model": {"layers": LAYERS, "width": WIDTH, "heads": 8, "context": CONTEXT},
                  "data": {"files": [text.name]},
                  "train": {"steps": 2, "batch": RANKS, "validate_every": 0, "sample_bytes": 0}}
        try:
            results = train(sprat, group, config, RANKS)
            if any(status != 0 for status, _, _ in results.values()):
                run.fail("ZeRO-3", f"it did not train in {LIMIT >> 20} MiB", results)
            print(f"ok ZeRO-3 trains {PARAMETERS} parameters on {RANKS} ranks in {LIMIT >> 20} MiB")
            results = train(sprat, group, config, 1)
            if not any(status == -signal.SIGKILL for status, _, _ in results.values()):
                run.fail("DDP", f"nobody was killed in {LIMIT >> 20} MiB", results)
            print("ok DDP is killed")
        finally:
            subprocess.run(["sleep", "0.2"], check=True)  # the killed leave the group
            group.rmdir()
    return 0


if __name__ == "__main__":
    sys.exit(main())
