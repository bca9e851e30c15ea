#!/usr/bin/env python3
"""A rank that fails alone: alone.py SPRAT.

All others end within seconds, and say which rank it was and why, not that it left in good order.
"""
import sys

import run

LIMIT_S = 20.0
REASON = "cannot write \"/proc/nowhere/rows\""


def main():
    case = "rank 0 of three cannot write its file"
    command = [sys.argv[1], "bench", "all_reduce", "-e", "64", "-n", "1", "--json", "/proc/nowhere/rows"]
    results = run.collect(run.start(command, ranks=3), LIMIT_S)
    for rank, (status, errors, _) in results.items():
        if status != 1 or REASON not in errors:
            run.fail(case, f"rank {rank} does not say why", results)
        if rank > 0 and ("rank 0 (" not in errors or "aborted the job" not in errors):
            run.fail(case, f"rank {rank} does not say who", results)
    print(f"ok {case}")


if __name__ == "__main__":
    main()
