#!/usr/bin/env python3
"""Runs that part, and what `sprat diff` says of them. run.py WORKER SPRAT [--steps 1000] [CASE ...]

equal     two runs of so many steps are alike, on one host and as if on three
input     one bit of a rank's gradients flips before it calls: step, call, rank, chunk, and with kept values the element
sum       the same bit flips while it is on its way
sent      a bit of a message flips before it is sent, and
message   on its way; one run alone tells it, too
core      one rank adds up wrongly: the other ranks have the same, offline and while the job runs
killed    a rank is killed by SIGKILL: its file tears, what was whole is compared
refused   other numbers of ranks, no folder, a damaged file, several runs in one folder
train     `sprat train` twice, with one byte of the text changed: the step is the first whose loss differs
"""
import argparse
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

RANKS, TIMEOUT_S = 3, 280
ELEMENT, BIT, CHUNK_BYTES, F32 = 40_000, 9, 65536, 4
# Of a step of the worker's: operations of the communicator "world".
CALLS_A_STEP = 4


def fail(what, *more):
    sys.exit("FAILED: " + what + "".join(f"\n{one}" for one in more))


def expect(holds, what, *more):
    if not holds:
        fail(what, *more)


class Jobs:
    def __init__(self, worker, sprat, folder, steps):
        self.worker, self.sprat, self.folder, self.steps = worker, sprat, pathlib.Path(folder), steps
        self.number = 0

    def start(self, name, flip=(), ranks=RANKS, steps=None, **variables):
        self.number += 1
        meeting = self.folder / f"meeting{self.number}"
        return [subprocess.Popen(
            [self.worker, str(steps or self.steps), *map(str, flip)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=dict(os.environ, SPRAT_RANK=str(rank), SPRAT_SIZE=str(ranks), SPRAT_RENDEZVOUS=f"file://{meeting}",
                     SPRAT_DIGESTS=str(self.folder / name), SPRAT_TIMEOUT="60", **variables))
            for rank in range(ranks)]

    def run(self, name, flip=(), status=0, **more):
        processes = self.start(name, flip, **more)
        errors = []
        for rank, process in enumerate(processes):
            try:
                errors.append(process.communicate(timeout=TIMEOUT_S)[1])
            except subprocess.TimeoutExpired:
                for one in processes:
                    one.kill()
                fail(f"rank {rank} of {name} did not end")
        for process, said in zip(processes, errors):
            expect(process.returncode == status, f"a rank of {name} ended with {process.returncode}", said)
        return errors

    def diff(self, *runs, status):
        command = [self.sprat, "diff", *(str(self.folder / run) for run in runs)]
        told = [subprocess.run([*command, *more], capture_output=True, text=True, timeout=TIMEOUT_S)
                for more in ([], ["--json"])]
        for one in told:
            expect(one.returncode == status, f"sprat diff {runs} ended with {one.returncode}, not {status}",
                   one.stdout, one.stderr)
        return told[0].stdout + told[0].stderr, json.loads(told[1].stdout) if told[1].stdout else None


def planted(jobs, where, step, rank, **variables):
    """Two runs, one with a flip; what `sprat diff` says."""
    jobs.run(f"{where}-a", ("none", step, rank, ELEMENT, BIT), **variables)
    jobs.run(f"{where}-b", (where, step, rank, ELEMENT, BIT), **variables)
    return jobs.diff(f"{where}-a", f"{where}-b", status=1)


def drop(jobs, *names):
    for name in names:
        shutil.rmtree(jobs.folder / name)


def chunk_of(element, size):
    first = element * size // CHUNK_BYTES * CHUNK_BYTES // size
    return first, first + CHUNK_BYTES // size - 1


def equal(jobs):
    jobs.run("equal-a")
    jobs.run("equal-b", SPRAT_HOST="a,b,c", SPRAT_STAGING="64K")
    said, told = jobs.diff("equal-a", "equal-b", status=0)
    expect(told["equal"] and not told["notes"], "two runs are not alike", said)
    # Ranks make the calls of "world", a barrier or two of "sync", and a receive and a send.
    expect(told["calls"] == RANKS * jobs.steps * (CALLS_A_STEP + 4), "not all calls were compared", said)
    said, told = jobs.diff("equal-a", status=0)
    expect(told["equal"] and told["calls"] > 0, "replicas are not alike", said)
    drop(jobs, "equal-a", "equal-b")


def check_collective(jobs, where, what, ranks):
    step = jobs.steps * 7 // 10
    operation = (step - 1) * CALLS_A_STEP + 1
    said, told = planted(jobs, where, step, 1, SPRAT_DIGESTS_INPUTS="1")
    first = told["first"]
    expect((first["step"], first["operation"], first["of_step"], first["communicator"]) == (step, operation, 2, "world"),
           f"another call is named than operation {operation} of step {step}", said)
    expect(first["what"] == what and first["ranks"] == ranks, f"not the {what} of {ranks}", said)
    expect((first["first_element"], min(first["last_element"], 59_999)) == (chunk_of(ELEMENT, F32)[0],
           min(chunk_of(ELEMENT, F32)[1], 59_999)), "another chunk is named", said)
    hint = re.search(r'SPRAT_DIGESTS_KEEP="([^"]+)"', said)[1]
    expect(hint == f"world {operation}", "another call is to be kept", said)
    drop(jobs, f"{where}-a", f"{where}-b")
    said, told = planted(jobs, where, step, 1, SPRAT_DIGESTS_INPUTS="1", SPRAT_DIGESTS_KEEP=hint)
    first = told["first"]
    expect(first["element"] == ELEMENT and first["elements_differ"] == 1, "another element is named", said)
    bits = [int(re.search(r"\(0x([0-9a-f]{8})\)", value)[1], 16) for value in first["values"]]
    expect(what != "input" or bits[0] ^ bits[1] == 1 << BIT, "other bits are named", said)
    drop(jobs, f"{where}-a", f"{where}-b")


def input_(jobs):
    check_collective(jobs, "input", "input", [1])


def sum_(jobs):
    check_collective(jobs, "sum", "result", [0, 1, 2])


def check_message(jobs, where, what, rank, kind):
    step = jobs.steps * 4 // 10
    said, told = planted(jobs, where, step, 1, SPRAT_DIGESTS_INPUTS="1")
    first = told["first"]
    expect((first["step"], first["operation"], first["rank"], first["what"]) == (step, step - 1, rank, what) and
           first["call"].startswith(kind), f"not the {kind} of rank {rank} in step {step}", said)
    size = 1  # messages have bytes
    expect(first["first_element"] == chunk_of(ELEMENT * F32, size)[0], "another chunk is named", said)
    return f"{where}-a", f"{where}-b", step


def sent(jobs):
    *runs, _ = check_message(jobs, "sent", "input", 1, "send of")
    drop(jobs, *runs)


def message(jobs):
    *runs, step = check_message(jobs, "message", "result", 2, "recv of")
    said, told = jobs.diff(runs[1], status=1)
    expect(told["first"]["step"] == step and told["first"]["rank"] == 2 and "otherwise than it was sent" in said,
           "one run does not tell that a message came otherwise", said)
    drop(jobs, *runs)


def core(jobs):
    step = 57
    flip = ("core", step, 2, 0, 0)
    jobs.run("core", flip, steps=100)
    said, told = jobs.diff("core", status=1)
    first = told["first"]
    expect((first["step"], first["ranks"], first["right"], first["of_step"]) == (step, [2], [0, 1], 1),
           "another replica is named", said)
    errors = jobs.run("checked", flip, status=1, steps=100, SPRAT_DIGESTS_CHECK="10")
    told = "differ before step 60: rank 2 differs from ranks 0, 1; they were alike before step 50"
    expect(any(told in said for said in errors), "no rank says which replica is wrong", *errors)
    said, told = jobs.diff("checked", status=1)
    expect(told["first"]["step"] == step, "another step is named", said)
    drop(jobs, "core", "checked")


def killed(jobs):
    jobs.run("whole", steps=2000)  # more than the other makes until it is killed
    processes = jobs.start("killed", steps=10_000_000)
    begin = time.monotonic()
    while not list((jobs.folder / "killed").glob("*rank1.digests")) or \
            next((jobs.folder / "killed").glob("*rank1.digests")).stat().st_size < 20_000:
        expect(time.monotonic() - begin < TIMEOUT_S, "no digests came")
        time.sleep(0.02)
    processes[1].send_signal(signal.SIGKILL)
    for process in processes:
        process.communicate(timeout=TIMEOUT_S)
    said, told = jobs.diff("whole", "killed", status=0)
    expect(told["calls"] > 0 and any("rank 1's file in B" in note for note in told["notes"]),
           "a killed rank is not told", said)
    # Cut anywhere, the rest is still compared.
    file = next((jobs.folder / "killed").glob("*rank1.digests"))
    whole, random_ = file.read_bytes(), random.Random(1)
    for _ in range(5):
        file.write_bytes(whole[:random_.randrange(1000, len(whole))])
        said, told = jobs.diff("whole", "killed", status=0)
        expect(any("rank 1's file in B" in note for note in told["notes"]), "a torn file is not told", said)
    file.unlink()
    said, told = jobs.diff("whole", "killed", status=0)
    expect(any("rank 1 has no file in B" in note for note in told["notes"]), "a missing rank is not told", said)
    drop(jobs, "whole", "killed")


def refused(jobs):
    jobs.run("three", steps=3)
    jobs.run("two", steps=3, ranks=2)
    said, _ = jobs.diff("three", "two", status=1)
    expect("A has 3 ranks and B 2" in said, "other numbers of ranks are not told", said)
    jobs.run("longer", steps=4)
    said, told = jobs.diff("three", "longer", status=1)
    expect(told["first"]["what"] == "call" and told["first"]["step"] == 4 and "A calls nothing more" in said,
           "the first call that only one run makes is not told", said)
    said, _ = jobs.diff("three", "nowhere", status=2)
    expect("is no folder" in said or "no digests" in said, "a missing folder is not told", said)
    (jobs.folder / "empty").mkdir()
    said, _ = jobs.diff("empty", status=2)
    expect("holds no digests" in said, "an empty folder is not told", said)
    (jobs.folder / "empty" / "sprat-1-2-rank0.digests").write_bytes(b"x" * 1000)
    said, _ = jobs.diff("empty", status=2)
    expect("no file of digests" in said, "a file of something else is not told", said)
    jobs.run("two", steps=3, ranks=2)  # once more into the same folder
    said, _ = jobs.diff("two", "three", status=2)
    expect("A has 2 jobs and B 1" in said, "several runs in a folder are not told", said)
    names = sorted({path.name.rsplit("-rank", 1)[0] for path in (jobs.folder / "two").glob("*.digests")})
    said, told = jobs.diff(f"two/{names[0]}", f"two/{names[1]}", status=0)
    expect(told["equal"], "two jobs of a folder are not alike", said)


def losses(jobs, name, text, **variables):
    """Trains on a text; the hexadecimal losses by step, and the kernel of matrix products."""
    folder = jobs.folder / f"train-{name}"
    folder.mkdir()
    (folder / "text.txt").write_text(text)
    (folder / "config.json").write_text(json.dumps({
        "model": {"layers": 1, "width": 16, "heads": 2, "context": 32}, "data": {"files": ["text.txt"]},
        "train": {"steps": jobs.steps, "batch": 4, "validate_every": 0, "sample_bytes": 0}}))
    report = folder / "report"
    done = subprocess.run([jobs.sprat, "train", str(folder / "config.json"), "--virtual-ranks", "2",
                           "--report", str(report)], capture_output=True, text=True, timeout=TIMEOUT_S,
                          env=dict(os.environ, SPRAT_DIGESTS=str(jobs.folder / name), **variables))
    expect(done.returncode == 0, f"training ended with {done.returncode}", done.stdout, done.stderr)
    kernel = re.search(r"matrix products by openblas/(\S+)", done.stdout)[1]
    return [json.loads(line)["loss_hex"] for line in report.read_text().splitlines()], kernel


def train(jobs):
    chosen = random.Random(3)
    # As short as to be read as a whole: a step reads 128 bytes.
    text = "".join(chosen.choice("abcdefgh ") for _ in range(100 * jobs.steps))
    at = len(text) * 6 // 10
    other = text[:at] + ("x" if text[at] != "x" else "y") + text[at + 1:]
    # A probe on a busy machine may choose another kernel, with other bits: both runs get the first one's.
    _, kernel = losses(jobs, "probe", text)
    drop(jobs, "probe")
    a, _ = losses(jobs, "a", text, OPENBLAS_CORETYPE=kernel)
    same, _ = losses(jobs, "same", text, OPENBLAS_CORETYPE=kernel)
    b, _ = losses(jobs, "b", other, OPENBLAS_CORETYPE=kernel)
    expect(a == same, "two runs of one text have other losses")
    said, told = jobs.diff("a", "same", status=0)
    expect(told["calls"] > 2 * jobs.steps, "nothing was compared", said)
    parts = [step + 1 for step, (one, two) in enumerate(zip(a, b)) if one != two]
    expect(parts, "the changed byte changes no loss: choose another")
    said, told = jobs.diff("a", "b", status=1)
    expect(told["first"]["step"] == parts[0], f"losses part at step {parts[0]}", said)
    print(f"of {jobs.steps} steps of training, step {parts[0]} is named:\n{said}")


CASES = {"equal": equal, "input": input_, "sum": sum_, "sent": sent, "message": message, "core": core,
         "killed": killed, "refused": refused, "train": train}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("worker")
    parser.add_argument("sprat")
    parser.add_argument("cases", nargs="*", metavar="CASE")
    parser.add_argument("--steps", type=int, default=1000)
    arguments = parser.parse_args()
    for case in arguments.cases or CASES:
        with tempfile.TemporaryDirectory(prefix="sprat-diff-") as folder:
            begin = time.monotonic()
            CASES[case](Jobs(os.path.abspath(arguments.worker), os.path.abspath(arguments.sprat), folder,
                             arguments.steps))
            print(f"{case}: passed in {time.monotonic() - begin:.1f} s", flush=True)


if __name__ == "__main__":
    main()
