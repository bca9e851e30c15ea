#!/usr/bin/env python3
"""Signals to a training run under mpirun. stop.py SPRAT [CASE ...]

one_rank      SIGTERM to one rank: all finish the step, save, end with 143; the run resumes with the same bits
launcher      SIGTERM to mpirun, which passes it on: the same
lost_launcher SIGKILL to mpirun, with and without a script around the rank: the ranks do not outlive it by more than a
              step and a save, the folder is free, and the run resumes with the same bits
absent_peer   SIGTERM to one rank while another is stopped (SIGSTOP): the grace, then one line, status 1, and the last
              checkpoint is whole
"""
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

# As many steps as take twice what mpirun waits.
RANKS, STEPS, EVERY, GRACE_S = 2, 500, 50, 2
# A resumed run has the bits of one that never stopped for as many steps, over one more save.
RESUMED_STEPS = EVERY + 10
# What mpirun waits before it passes SIGTERM on, and again before it kills.
MPIRUN_S = 3
# The kernel of matrix products that the first run chose: a probe on a busy machine may choose another, with other bits.
KERNEL = {}
PATIENCE_S = 120


def configure(folder):
    (folder / "text.txt").write_text("all work and no play makes jack a dull boy. " * 2000)
    config = folder / "config.json"
    config.write_text(json.dumps({
        "model": {"layers": 2, "width": 64, "heads": 2, "context": 128}, "data": {"files": ["text.txt"]},
        "train": {"steps": STEPS, "batch": 16, "validate_every": 0, "sample_bytes": 0, "stop_grace_s": GRACE_S},
        "checkpoint": {"folder": "saved", "every": EVERY}}))
    return config


def start(sprat, config, *more, around=()):
    return subprocess.Popen(
        ["mpirun", "--allow-run-as-root", "--oversubscribe", "--mca", "odls_base_sigkill_timeout", str(MPIRUN_S),
         "-n", str(RANKS), *around, sprat, "train", str(config), "--report", str(config.parent / "report"), *more],
        text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=dict(os.environ, **KERNEL))


def ranks_of(mpirun):
    """Process ids of the ranks: mpirun's children."""
    children = []
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text()
        except OSError:
            continue
        if int(text.rsplit(")", 1)[1].split()[1]) == mpirun.pid:
            children.append(int(text.split()[0]))
    return sorted(children)


def steps(config):
    report = config.parent / "report"
    return [json.loads(line) for line in report.read_text().splitlines()] if report.exists() else []


def await_steps(config, mpirun, count):
    begin = time.monotonic()
    while len(steps(config)) < count:
        if mpirun.poll() is not None or time.monotonic() - begin > PATIENCE_S:
            mpirun.kill()
            fail("training did not get far enough", *mpirun.communicate())
        time.sleep(0.05)


def fail(what, output="", errors=""):
    sys.exit(f"FAILED: {what}\n{output[-1500:]}\n{errors[-1500:]}")


def finish(mpirun):
    try:
        output, errors = mpirun.communicate(timeout=PATIENCE_S)
    except subprocess.TimeoutExpired:
        mpirun.kill()
        fail("the run did not end", *mpirun.communicate())
    return output, errors


def resumed(sprat, config):
    """The hexadecimal losses of the run and of some steps of its resumption, or of all if it is near its end."""
    mpirun = start(sprat, config, "--resume")
    wanted = len(steps(config)) + RESUMED_STEPS
    if wanted < STEPS:
        await_steps(config, mpirun, wanted)
        os.kill(ranks_of(mpirun)[0], signal.SIGTERM)
    output, errors = finish(mpirun)
    if "resuming after step" not in output or (wanted >= STEPS and mpirun.returncode != 0):
        fail(f"--resume ended with {mpirun.returncode}", output, errors)
    return [line["loss_hex"] for line in steps(config)]


def stop_and_resume(sprat, config, send):
    mpirun = start(sprat, config)
    await_steps(config, mpirun, 7)
    send(mpirun)
    output, errors = finish(mpirun)
    if "saved in" not in output:
        fail("the run does not say that it saved", output, errors)
    if mpirun.returncode == 0:
        fail("a stopped run ended as if it were complete", output, errors)
    done = len(steps(config))
    if done >= STEPS:
        fail("the run was over before the signal", output, errors)
    saved = json.loads((config.parent / "saved" / "latest" / "manifest.json").read_text())["step"]
    if saved != done:
        fail(f"step {done} was the last, {saved} was saved", output, errors)
    return resumed(sprat, config)


def case_one_rank(sprat, config):
    return stop_and_resume(sprat, config, lambda mpirun: os.kill(ranks_of(mpirun)[-1], signal.SIGTERM))


def case_launcher(sprat, config):
    return stop_and_resume(sprat, config, lambda mpirun: mpirun.send_signal(signal.SIGTERM))


def processes_of(config):
    """Those that train by this configuration, whoever their parent is."""
    found = []
    for cmdline in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = cmdline.read_text().split("\0")
        except OSError:
            continue
        if "train" in words and str(config) in words and "mpirun" not in words[0]:
            found.append(int(cmdline.parent.name))
    return found


def case_lost_launcher(sprat, config):
    for around in [(), ("sh", "-c", '"$0" "$@"; exit $?')]:
        mpirun = start(sprat, config, *(["--resume"] if steps(config) else []), around=around)
        await_steps(config, mpirun, len(steps(config)) + 7)
        mpirun.kill()
        mpirun.wait()
        begin = time.monotonic()
        while processes_of(config):
            if time.monotonic() - begin > PATIENCE_S:
                fail("ranks live on without their launcher")
            time.sleep(0.05)
        done = len(steps(config))
        if done >= STEPS:
            fail("the ranks trained to their end without a launcher")
        saved = json.loads((config.parent / "saved" / "latest" / "manifest.json").read_text())["step"]
        if saved != done:
            fail(f"step {done} was the last, {saved} was saved")
    return resumed(sprat, config)


def await_save(config):
    """The last save that was due is complete, and the next some steps away: no save waits for a rank."""
    begin = time.monotonic()
    manifest = config.parent / "saved" / "latest" / "manifest.json"
    while True:
        done = len(steps(config))
        saved = json.loads(manifest.read_text())["step"] if manifest.exists() else 0
        if saved > 0 and done - saved < EVERY // 2:
            return
        if time.monotonic() - begin > PATIENCE_S:
            fail(f"after {done} steps the last checkpoint is of step {saved}")
        time.sleep(0.01)


def case_absent_peer(sprat, config):
    mpirun = start(sprat, config)
    await_save(config)
    first, last = ranks_of(mpirun)
    os.kill(last, signal.SIGSTOP)
    begin = time.monotonic()
    os.kill(first, signal.SIGTERM)
    while pathlib.Path(f"/proc/{first}").exists() and mpirun.poll() is None:
        if time.monotonic() - begin > PATIENCE_S:
            fail("the rank that was asked does not give up")
        time.sleep(0.05)
    seconds = time.monotonic() - begin
    try:
        os.kill(last, signal.SIGKILL)
    except ProcessLookupError:
        pass  # mpirun was faster
    output, errors = finish(mpirun)
    if "did not agree on a stop" not in errors or seconds < GRACE_S:
        fail(f"no word of giving up after {seconds:.1f} s", output, errors)
    print(f"gave up after {seconds:.1f} s of a grace of {GRACE_S} s")
    return resumed(sprat, config)


def main():
    sprat, cases = sys.argv[1], sys.argv[2:] or ["one_rank", "launcher", "lost_launcher", "absent_peer"]
    with tempfile.TemporaryDirectory() as name:
        config = configure(pathlib.Path(name))
        output, errors = finish(start(sprat, config))
        reference = [line["loss_hex"] for line in steps(config)]
        if len(reference) != STEPS:
            fail("the run to compare with is not whole", output, errors)
        KERNEL["OPENBLAS_CORETYPE"] = re.search(r"matrix products by openblas/(\S+)", output)[1]
    for case in cases:
        with tempfile.TemporaryDirectory() as name:
            losses = globals()[f"case_{case}"](sprat, configure(pathlib.Path(name)))
            if losses != reference[:len(losses)]:
                at = next((i + 1 for i, pair in enumerate(zip(losses, reference)) if pair[0] != pair[1]), None)
                fail(f"{case}: the resumed run has {len(losses)} steps, and other bits from step {at} on")
        print(f"ok {case}", flush=True)


if __name__ == "__main__":
    main()
