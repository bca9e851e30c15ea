#!/usr/bin/env python3
"""Kills a job at every step of a commit (SIGKILL, before each change of the disk), then loads.

    kills.py WORKER [SPRAT] [--whole]

Held: what loads is the checkpoint before or the new one, whole, every value checked; the next save succeeds and
takes away what the dead one left; so does a third with keep_last. --whole: every step of six arrangements.
"""
import argparse
import random
import tempfile

from harness import entries, loaded_step, run

FIRST, SECOND = 1, 2


def one_kill(worker, arrangement, at, again):
    """What was killed; None once there are fewer changes than `at`. `again` saves the same step twice."""
    with tempfile.TemporaryDirectory() as folder:
        first = SECOND if again else FIRST
        # Two are kept, so that a third removes the oldest one.
        assert run(worker, "save", folder, *arrangement, first - 1, first).returncode == 0
        killed = run(worker, "save", folder, *arrangement, SECOND, SECOND, at)
        if killed.returncode == 0:
            return None
        assert killed.returncode == -9, killed.stderr
        step = loaded_step(worker, folder)
        assert step in {first, SECOND}, f"{killed.stdout}: {step} loads, and {first} was complete"
        steps = [name for name in entries(folder) if name.startswith("step-") and ".tmp-" not in name]
        for name in steps:
            assert loaded_step(worker, f"{folder}/{name}") == int(name[5:]), f"{killed.stdout}: {name} does not load"
        third = SECOND + 1
        assert run(worker, "save", folder, *arrangement, third, third).returncode == 0
        assert loaded_step(worker, folder) == third
        left = [name for name in entries(folder) if ".tmp-" in name]
        assert not left, f"{killed.stdout}: {left} is left"
        return f"{killed.stdout.strip().replace(folder, '')}: step {step} loads"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("worker")
    parser.add_argument("sprat", nargs="?")
    parser.add_argument("--whole", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    draw = random.Random(arguments.seed)
    # Ranks, of which so many share a copy of the parameters of each of so many stages; x2: of each half of a tensor.
    arrangements = [(2, 2, 1), (4, 2, 2)]
    if arguments.whole:
        arrangements += [(1, 1, 1), (4, 2, 1), (4, 4, 1), (4, 2, "1x2")]
    kills = 0
    for arrangement in arrangements:
        for again in [False, True]:
            at = 1
            while True:
                said = one_kill(arguments.worker, arrangement, at, again)
                if said is None:
                    break
                stages = f" in {arrangement[2]} stages" if arrangement[2] != 1 else ""
                print(f"{arrangement[0]} ranks{stages}, {'same' if again else 'next'} step, change {at}: {said}", flush=True)
                kills += 1
                at += 1 if arguments.whole else draw.randint(1, 4)
            assert at > 15, f"a commit of one rank makes 18 changes, this one only {at}"
    print(f"{kills} kills, always the previous or the new checkpoint, whole")


if __name__ == "__main__":
    main()
