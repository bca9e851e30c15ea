#!/usr/bin/env python3
"""Thousands of calls in flight under mpirun, beside processes that take the cores.

    in_flight.py BUILD/bin/test_in_flight [--runs 200] [--ranks 4] [--calls 2000] [--busy 4]

Prints each run that fails, then "N passed, N failed". ctest runs a small sample.
"""
import argparse
import os
import shutil
import subprocess
import sys

SKIPPED = 77


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("program")
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--busy", type=int, default=4, help="loops that take the cores meanwhile")
    args = parser.parse_args()
    if shutil.which("mpirun") is None:
        print("skipped: mpirun is not installed")
        return SKIPPED
    command = ["mpirun", "--oversubscribe", "-n", str(args.ranks), args.program, str(args.calls)]
    if os.geteuid() == 0:
        command.insert(1, "--allow-run-as-root")
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(args.busy)]
    failed = 0
    try:
        for number in range(args.runs):
            run = subprocess.run(command, capture_output=True, text=True, timeout=300)
            if run.returncode != 0:
                failed += 1
                print(f"run {number}: status {run.returncode}\n{run.stderr}", flush=True)
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()
    print(f"{args.runs - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
