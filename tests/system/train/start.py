#!/usr/bin/env python3
"""What a training run under mpirun refuses, before its first step or later. start.py SPRAT [CASE ...]

differ        one rank has another learning rate, text, batch, precision or option: every rank ends, naming key and rank
folder        a checkpoint folder that is a file, that one rank does not share, or that another job saves into
diverge       a rate that no step survives: the run ends with status 1, and keeps the checkpoint from before
slow_kernel   not refused, but named: an environment that holds OpenBLAS to a kernel of old instructions
"""
import json
import os
import pathlib
import platform
import subprocess
import sys
import tempfile

from stop import fail, finish

RANKS, STEPS = 4, 30


def configuration(folder, name="config.json", **changes):
    """A configuration file; changes are sections, whose keys are added."""
    sections = {
        "model": {"layers": 1, "width": 32, "heads": 2, "context": 32}, "data": {"files": ["text.txt"]},
        "train": {"steps": STEPS, "batch": 8, "warmup_steps": 0, "validate_every": 0, "sample_bytes": 0}}
    for section, keys in changes.items():
        sections.setdefault(section, {}).update(keys)
    (folder / "text.txt").write_text("all work and no play makes jack a dull boy. " * 500)
    (folder / name).write_text(json.dumps(sections))
    return folder / name


def mpirun(*programs):
    """Starts mpirun with (ranks, words) after words."""
    line = ["mpirun", "--allow-run-as-root", "--oversubscribe"]
    for ranks, *words in programs:
        line += ([":"] if "-n" in line else []) + ["-n", str(ranks), *map(str, words)]
    # What a model writes in the end may be no UTF-8.
    return subprocess.Popen(line, text=True, errors="replace", stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def refused(what, run, *expected):
    """Ends the run's story: it trained no step, failed, and said all of `expected`."""
    output, errors = finish(run)
    if run.returncode == 0 or "step " in output:
        fail(f"{what}: the run was not refused, status {run.returncode}", output, errors)
    for one in expected:
        if one not in errors:
            fail(f"{what}: nobody says {one!r}", output, errors)


def case_differ(sprat, folder):
    mine = configuration(folder)
    (folder / "other.txt").write_text("all play and no work makes jack a dull boy. " * 500)
    for key, value, told in [
            ("learning_rate", 0.002, "train.learning_rate is 0.001 on ranks 0-2, 0.002 on rank 3"),
            ("batch", 16, "train.batch is 8 on ranks 0-2, 16 on rank 3"),
            ("precision", {"parameters": "bf16"}, "train.precision.parameters is f32 on ranks 0-2, bf16 on rank 3")]:
        other = configuration(folder, "other.json", train={key: value})
        refused(key, mpirun((3, sprat, "train", mine), (1, sprat, "train", other)), told)
    other = configuration(folder, "other.json", data={"files": ["other.txt"]})
    refused("text", mpirun((3, sprat, "train", mine), (1, sprat, "train", other)), "data.files is 22000 bytes with")
    refused("steps", mpirun((3, sprat, "train", mine), (1, sprat, "train", mine, "--steps", 2)),
            "--steps is not given on ranks 0-2, 2 on rank 3")
    refused("absent", mpirun((3, sprat, "train", mine), (1, sprat, "train", folder / "none.json")),
            "rank 3: cannot open configuration")


def case_folder(sprat, folder):
    (folder / "file").write_text("mine")
    config = configuration(folder, checkpoint={"folder": "file"})
    refused("a file", mpirun((RANKS, sprat, "train", config)), "cannot make folder", "file")
    config = configuration(folder, checkpoint={"folder": "saved"})
    refused("a folder of its own", mpirun(
        (3, sprat, "train", config),
        (1, sprat, "train", configuration(folder, "other.json", checkpoint={"folder": "elsewhere"}))),
        "rank 3: cannot create", "Every rank of a job needs it, on a file system that all hosts share")
    lasting = configuration(folder, "lasting.json", checkpoint={"folder": "saved"}, train={"steps": 1000000})
    first = mpirun((RANKS, sprat, "train", lasting))
    for line in first.stdout:
        if line.startswith("step"):
            break
    try:
        refused("a second job", mpirun((RANKS, sprat, "train", config)),
                "another job saves checkpoints into", "end it, or give this one a folder of its own")
    finally:
        first.terminate()
        finish(first)


def case_diverge(sprat, folder):
    saved = {"folder": "saved", "every": 1, "keep": 2}
    run = mpirun((RANKS, sprat, "train", configuration(folder, checkpoint=saved), "--steps", 3))
    output, errors = finish(run)
    if run.returncode != 0:
        fail(f"diverge: the good part ended with status {run.returncode}", output, errors)
    config = configuration(folder, checkpoint=saved, train={"learning_rate": 1e30})
    run = mpirun((RANKS, sprat, "train", config, "--resume"))
    output, errors = finish(run)
    if run.returncode == 0 or "the run has diverged" not in errors:
        fail(f"diverge: the run went on, status {run.returncode}", output, errors)
    if not (folder / "saved" / "step-00000003" / "manifest.json").exists():
        fail("diverge: the checkpoint of the good part is gone", output, errors)


def case_slow_kernel(sprat, folder):
    if platform.machine() != "x86_64":
        return  # where all processors of an architecture run one kernel, there is no slow one to name
    free = {name: value for name, value in os.environ.items() if name != "OPENBLAS_CORETYPE"}
    held = {**free, "OPENBLAS_CORETYPE": "Prescott"}  # of SSE3

    def told(environment, *arguments):
        run = subprocess.run([sprat, *arguments], env=environment, capture_output=True, text=True, errors="replace")
        if run.returncode != 0:
            fail(f"slow_kernel: status {run.returncode}", run.stdout, run.stderr)
        return run.stdout

    def rate(environment):
        return json.loads(told(environment, "info", "--json"))["gemm"][0]["gflops"]

    fast, slow = rate(free), rate(held)
    if fast < 1.6 * slow:  # the command warns from 1.3 on, and rates differ from one run to the next
        print(f"skipped slow_kernel: {slow:.0f} GFLOP/s by SSE3 and {fast:.0f} by this processor's own kernel")
        return
    warning = "warning: OPENBLAS_CORETYPE=Prescott makes"
    for words in [(warning, "type env -u OPENBLAS_CORETYPE before the command"), told(held, "info")], [
        ("matrix products by openblas/Prescott", warning),
        told(held, "train", configuration(folder), "--virtual-ranks", "1", "--steps", "1"),
    ]:
        if not all(one in words[1] for one in words[0]):
            fail("slow_kernel: nobody names it", words[1])


def run_cases(cases_of):
    """The cases that the command line names, or all: functions case_NAME(sprat, folder) of a module."""
    sprat, cases = sys.argv[1], sys.argv[2:] or [name[5:] for name in cases_of if name.startswith("case_")]
    for case in cases:
        with tempfile.TemporaryDirectory() as name:
            cases_of[f"case_{case}"](sprat, pathlib.Path(name))
        print(f"ok {case}", flush=True)


if __name__ == "__main__":
    run_cases(globals())
