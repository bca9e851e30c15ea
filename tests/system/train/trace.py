#!/usr/bin/env python3
"""Timelines of training runs: sound, of all ranks and rows, with arrows between stages, and sentences that follow from them.

    trace.py SPRAT

T 2 x P 2 x S 2 by threads, with recomputation, offload, checkpoints and a loader; two processes that are two hosts to each other,
whose clocks are compared; a run that fails, whose parts are joined.
"""
import collections
import json
import os
import pathlib
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from job import Trainer  # noqa: E402

STEPS = 3
MODEL = {"layers": 4, "width": 32, "heads": 4, "context": 16}
TEXT = "one small fish swims to and fro, and then it swims to the other one. " * 200


def configuration(folder, **parallel):
    (folder / "text.txt").write_text(TEXT)
    return {"model": MODEL, "data": {"files": [str(folder / "text.txt")]},
            "train": {"batch": 8, "steps": STEPS, "learning_rate": 1e-3, "sample_bytes": 0, "validate_every": 0},
            "parallel": parallel, "checkpoint": {"folder": str(folder / "saved"), "every": 2}}


def command(sprat, *arguments, status=0):
    done = subprocess.run([sprat, *map(str, arguments)], capture_output=True, text=True, timeout=60)
    assert done.returncode == status, f"{arguments} ended with {done.returncode}: {done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def events_of(path):
    return json.loads(path.read_text())["traceEvents"]


def rows_of(events):
    """Names of slices, by rank and row."""
    rows = collections.defaultdict(lambda: collections.defaultdict(list))
    for event in events:
        if event["ph"] == "X":
            rows[event["pid"]][event["cat"]].append(event["name"])
    return rows


def lattice_cell(trainer, folder):
    """Everything at once."""
    trace = folder / "cell.json"
    trainer.trained(configuration(folder, tensor_parallel_degree=2, pipeline_parallel_degree=2, hybrid_shard_degree=2,
                                  microbatches=4, activation_checkpointing="each", offload_activations=True,
                                  activation_tier=f"file:{folder}"),
                    8, arguments=["--trace", trace])
    said = command(trainer.sprat, "trace", "check", trace)
    events = events_of(trace)
    rows = rows_of(events)
    assert sorted(rows) == list(range(8)), sorted(rows)
    flows = collections.Counter(event["ph"] for event in events if event["ph"] in "sf")
    # Each of two tensor ranks and two shards has a pipeline of its own, of two stages: in each micro-batch an output and a gradient
    # pass, and outputs once more in the validation behind the last step.
    assert flows["s"] == flows["f"] >= 2 * 2 * 2 * 4 * STEPS, flows
    assert f"{flows['s']} flows" in said, said
    for rank, of in rows.items():
        assert [name for name in of["steps"] if name.startswith("step")] == [f"step {n + 1}" for n in range(STEPS)], of["steps"]
        assert of["loader"].count("batch") == STEPS, of["loader"]
        assert of["checkpoint"], f"rank {rank} saved nothing"
        assert of["computes"].count("update") == STEPS, of["computes"]
        computed = collections.Counter(name.strip("0123456789") for name in of["computes"])
        assert computed["F"] >= 4 * STEPS and computed["B"] == 4 * STEPS, computed
        for row in ("gathers", "reduces", "collectives", "messages"):
            assert of[row], f"rank {rank} has no {row}"
    names = {event["args"]["name"] for event in events if event["ph"] == "M" and event["name"] == "thread_name"}
    assert names >= {"computes", "waits", "messages", "gathers", "reduces", "collectives", "loader", "checkpoint", "steps"}, names
    calls = [event for event in events if event["ph"] == "X" and event["cat"] == "collectives"]
    assert all({"sequence", "algorithm", "communicator"} <= set(event["args"]) for event in calls), calls[0]
    sentences = command(trainer.sprat, "trace", "summary", trace).splitlines()
    assert len(sentences) >= 5 and sentences[0].startswith("8 ranks took"), sentences


def two_hosts(trainer, folder):
    """Clocks of hosts are compared; here they are one, so the bound alone can be wrong."""
    trace = folder / "hosts.json"
    environment = {**trainer.environment, "SPRAT_TRACE": str(trace), "SPRAT_HOST": "left,right"}
    Trainer(trainer.sprat, folder, environment).trained(configuration(folder), 2, how="mpirun")
    facts = json.loads(trace.read_text())["otherData"]
    assert facts["clock_error_us"] > 0, facts
    assert sorted(rows_of(events_of(trace))) == [0, 1]
    command(trainer.sprat, "trace", "check", trace)


def failed(trainer, folder):
    """A rank that cannot save ends the run; what ranks did until then is not lost."""
    trace = folder / "failed.json"
    made = configuration(folder)
    made["train"]["learning_rate"] = 1e30
    made["train"]["max_skipped_steps"] = 0
    made["checkpoint"] = {"folder": "/proc/no/such/folder", "every": 1}
    for jobs in (1, 2):
        outcome = trainer.run(made, 2, arguments=["--trace", trace])
        assert outcome.status != 0, outcome.said()
        assert not trace.exists()
        parts = collections.Counter(path.name.rpartition(".")[0] for path in folder.glob("failed.json.*.rank?"))
        assert list(parts.values()) == [2] * jobs, f"a job's parts take the place of another one's: {parts}"
    said = command(trainer.sprat, "trace", "join", trace)
    assert said.count("2 of 2 ranks") == 2 and not trace.exists(), said
    for name in parts:
        job = name.removeprefix("failed.json.")
        assert sorted({event["pid"] for event in events_of(folder / f"failed.{job}.json")}) == [0, 1]
    said = command(trainer.sprat, "trace", "join", trace, *folder.glob(f"{name}.rank?"))
    assert said.count("2 of 2 ranks") == 1, said
    assert sorted({event["pid"] for event in events_of(trace)}) == [0, 1]
    trace.write_text(trace.read_text().replace('"dur": ', '"dur": -1', 1))
    said = command(trainer.sprat, "trace", "check", trace, status=1)
    assert "ends before it begins" in said, said


def main(sprat):
    with tempfile.TemporaryDirectory() as name:
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
        for case in (lattice_cell, two_hosts, failed):
            folder = pathlib.Path(name) / case.__name__
            folder.mkdir()
            case(Trainer(sprat, folder, environment), folder)
            print(f"{case.__name__}: ok", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
