#!/usr/bin/env python3
"""One rank of a job of two hosts, the second of which loses its wire:

  hosts/run 2 RANKS -- cut.py TIMES SPRAT COMMAND ...

Runs COMMAND, which calls all_reduce without end; the last rank takes down its host's wire. Every rank must end
within twenty seconds of that, and name as lost a rank of the other side, or, on the cut host, one beside it that
has ended for that reason. It does so in at least one line, and in at most TIMES.
"""
import os
import re
import subprocess
import sys
import time

LIMIT_S = 20.0  # eight to notice on a busy machine, two that rank 0 drains; TCP alone would take minutes
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
per_host = size // 2
here = rank // per_host
cut_file = os.path.join(os.environ["HOSTS_FOLDER"], "cut")

most_lines, sprat, *command = int(sys.argv[1]), *sys.argv[2:]
worker = subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
if rank == size - 1:
    status = [sprat, "status", str(worker.pid)]
    while worker.poll() is None and "done" not in subprocess.run(status, text=True, capture_output=True).stdout:
        time.sleep(0.05)
    subprocess.run(["ip", "link", "set", "wire", "down"], check=True)
    with open(cut_file, "w"):
        pass
try:
    _, errors = worker.communicate(timeout=3 * LIMIT_S)
except subprocess.TimeoutExpired:
    worker.kill()
    print(f"FAILED: rank {rank} did not end: {worker.communicate()[1]}")
    sys.exit(1)
seconds = time.time() - os.stat(cut_file).st_mtime
lost = re.compile(r"(?:lost|cannot reach) rank (\d+)")
named = {int(number) for number in lost.findall(errors)}
lines = sum(bool(lost.search(line)) for line in errors.splitlines())
others = {other for other in range(size) if other // per_host != here}
allowed = others | ({*range(size)} - {rank} if here == 1 else set())
if worker.returncode != 1 or seconds > LIMIT_S or not named or not named <= allowed or lines > most_lines:
    print(f"FAILED: rank {rank} ended with {worker.returncode} after {seconds:.1f} s, names {named} in {lines} "
          f"lines, not of {allowed}: {errors}")
    sys.exit(1)
print(f"ok: rank {rank} named {named} after {seconds:.1f} s")
