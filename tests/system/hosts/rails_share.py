#!/usr/bin/env python3
"""Whether a host's rails carry about as much each. Every rank of tests/system/hosts/run, one a host, runs it:

    tests/system/hosts/run 2 1 --rails 2 -- rails_share.py BUILD/bin/sprat

Collectives go in chunks that a wire's buffer has room for at any time, so they tell whether rails take turns.
"""
import pathlib
import subprocess
import sys

LEAST = 0.4  # of the bytes; a rail has half, but for headers and short messages


def sent():
    return {str(file.parent.parent.name): int(file.read_text())
            for file in pathlib.Path("/sys/class/net").glob("wire*/statistics/tx_bytes")}


def main():
    before = sent()
    subprocess.run([sys.argv[1], "bench", "all_gather", "-b", "1M", "-e", "1M", "-n", "20", "-w", "0", "--quiet"],
                   check=True, stdout=subprocess.DEVNULL)
    bytes_by_rail = {rail: bytes_now - before[rail] for rail, bytes_now in sent().items()}
    share = min(bytes_by_rail.values()) / sum(bytes_by_rail.values())
    print(f"{bytes_by_rail}: the least has {share:.2f}")
    return 0 if len(bytes_by_rail) == 2 and share >= LEAST else 1


if __name__ == "__main__":
    sys.exit(main())
