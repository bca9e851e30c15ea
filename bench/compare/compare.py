#!/usr/bin/python3
"""Sprat beside Open MPI, MPICH, gloo and the machine's limit, in one alternation.

  bench/compare/run [--ranks 2] [--memory shared|malloc|huge] [--collectives all_reduce,...]
                    [--sizes 8,4K,1M,...] [--samples 15] [--peers openmpi,mpich,gloo] [--out FOLDER]

All libraries' ranks run at the same time, but one library at a time is told to work; the others sleep in a
read. Rank r of each is pinned to core r mod cores. A sample is the slowest rank's mean over a batch of at
least 100 us; each round takes one sample of each library, in turn; a ratio is of one round. Every element is
checked before and after the timing of a cell. Peers use malloc memory (or huge pages with --peer-memory
huge); the limit reads and writes what ours does on huge pages if ours is shared.
"""
import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time

COLLECTIVES = ["all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all", "barrier"]
SIZES = "8,64,512,4K,16K,64K,256K,1M,4M,16M,64M"
LEAST_BATCH_S = 100e-6
LIMIT = "limit"


def size_of(text):
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    return int(text[:-1]) * units[text[-1]] if text[-1] in units else int(text)


def size_text(size):
    for unit, scale in (("G", 1 << 30), ("M", 1 << 20), ("K", 1 << 10)):
        if size >= scale and size % scale == 0:
            return f"{size // scale} {unit}iB"
    return f"{size} B"


class Library:
    """The ranks of one library, connected."""

    def __init__(self, name):
        self.name, self.streams, self.processes = name, {}, []

    def ask(self, line):
        for stream in self.streams.values():
            stream.write(line + "\n")
            stream.flush()
        answers = [stream.readline().strip() for stream in self.streams.values()]
        if "" in answers:
            raise SystemExit(f"compare: a rank of {self.name} has ended during [{line}]")
        return answers

    def prepare(self, collective, size, memory):
        """What is wrong; empty if nothing."""
        return next((answer for answer in self.ask(f"cell {collective} {size} {memory}") if answer != "ok"), "")

    def check(self):
        return next((answer for answer in self.ask("check") if answer != "ok"), "")

    def sample(self, calls):
        return max(float(answer) for answer in self.ask(f"batch {calls}"))

    def calls_a_batch(self):
        """So many that a batch takes LEAST_BATCH_S; the first calls warm up."""
        calls = 1
        while True:
            seconds = min(self.sample(calls) for _ in range(2)) * calls
            if seconds >= LEAST_BATCH_S or calls >= 1 << 20:
                return calls
            calls = max(calls + 1, min(calls * 10, int(calls * 1.3 * LEAST_BATCH_S / max(seconds, 1e-9))))


def launch(names, options, folder):
    """Starts the libraries' ranks and returns them by name once all have connected."""
    path = os.path.join(folder, "socket")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(256)
    ranks = options.ranks
    base = dict(os.environ)
    for variable in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        base.pop(variable, None)
    store = os.path.join(folder, "store")
    os.mkdir(store)
    libraries = {}
    for name in names:
        library = libraries[name] = Library(name)
        start = lambda command, **more: library.processes.append(
            subprocess.Popen(command, env=dict(base, **more), stdin=subprocess.DEVNULL))
        program = os.path.join(options.build, "compare_" + name)
        if name == "openmpi":
            start(["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-np", str(ranks),
                   program, path])
        elif name == "mpich":
            start(["mpiexec.mpich", "-bind-to", "none", "-n", str(ranks), program, path])
        elif name.startswith(LIMIT):
            start([os.path.join(options.build, "compare_limit"), path, str(ranks)] + ["nt"] * name.endswith("nt"))
        elif name == "gloo":
            for rank in range(ranks):
                start([program, path, str(rank), str(ranks), store, "127.0.0.1"])
        else:
            port = str(20_000 + os.getpid() % 10_000)
            for rank in range(ranks):
                start([program, path], RANK=str(rank), WORLD_SIZE=str(ranks), LOCAL_RANK=str(rank),
                      MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
        await_ranks(listener, library, ranks)
    return libraries


def await_ranks(listener, library, ranks):
    listener.settimeout(60)
    while len(library.streams) < ranks:
        try:
            connection, _ = listener.accept()
        except TimeoutError:
            raise SystemExit(f"compare: {library.name} did not start: {len(library.streams)} of {ranks} ranks came")
        stream = connection.makefile("rw")
        _, rank, pid = stream.readline().split()
        library.streams[int(rank)] = stream
        if not library.name.startswith(LIMIT):  # its threads pin themselves
            cores = sorted(os.sched_getaffinity(0))
            for thread in os.listdir(f"/proc/{pid}/task"):
                os.sched_setaffinity(int(thread), {cores[int(rank) % len(cores)]})


def quartiles(values):
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return {"low": low, "median": middle, "high": high}


def measure(libraries, collective, size, options):
    """One cell: times by library, and our ratios."""
    wrong = []
    for library in libraries.values():
        memory = options.memory if library.name == "sprat" or library.name.startswith(LIMIT) else options.peer_memory
        complaint = library.prepare(collective, size, memory)
        if complaint:
            wrong.append(f"{library.name}: {complaint}")
    calls = {name: library.calls_a_batch() for name, library in libraries.items()}
    samples = {name: [] for name in libraries}
    names = list(libraries)
    for round_number in range(options.samples):
        turn = round_number % len(names)
        for name in names[turn:] + names[:turn]:
            samples[name].append(libraries[name].sample(calls[name]))
    for library in libraries.values():
        complaint = library.check()
        if complaint:
            wrong.append(f"{library.name} after timing: {complaint}")
    medians = {name: statistics.median(values) for name, values in samples.items()}
    cell = {"collective": collective, "bytes": size, "median_s": medians, "samples_s": samples, "wrong": wrong}
    peers = [name for name in names if name in options.peers]
    if peers:
        best = min(peers, key=medians.get)
        cell["best_peer"] = best
        cell["ratio_to_best"] = quartiles([theirs / ours for theirs, ours in zip(samples[best], samples["sprat"])])
    limits = [name for name in names if name.startswith(LIMIT)]
    if limits and collective != "barrier":
        best = min(limits, key=medians.get)
        cell["ratio_to_limit"] = quartiles([limit / ours for limit, ours in zip(samples[best], samples["sprat"])])
    return cell


def row(cell, options):
    def time_text(name):
        return f"{cell['median_s'][name] * 1e6:11.2f}" if name in cell["median_s"] else ""

    def ratio_text(key):
        if key not in cell:
            return " " * 19
        ratio = cell[key]
        return f"{ratio['median']:6.2f} ({ratio['low']:4.2f}-{ratio['high']:5.2f})"

    times = "".join(time_text(name) for name in ["sprat"] + options.peers)
    limit = min((cell["median_s"][name] for name in cell["median_s"] if name.startswith(LIMIT)), default=0.0) * 1e6
    return (f"{cell['collective']:14}  {size_text(cell['bytes']):>8}{times}{limit:11.2f}  {ratio_text('ratio_to_best')}  "
            f"{ratio_text('ratio_to_limit')}  {'; '.join(cell['wrong']) or '0 wrong'}")


def header(options):
    names = "".join(f"{name:>11}" for name in ["sprat"] + options.peers + ["limit"])
    return f"{'us a call':14}  {'':>8}{names}  {'best peer / sprat':>19}  {'limit / sprat':>19}"


def plot(cells, options, path):
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot
    collectives = [name for name in COLLECTIVES if name != "barrier" and any(c["collective"] == name for c in cells)]
    figure, axes = pyplot.subplots(1, max(1, len(collectives)), figsize=(4 * max(1, len(collectives)), 3.6), squeeze=False)
    for axis, name in zip(axes[0], collectives):
        chosen = [cell for cell in cells if cell["collective"] == name]
        sizes = [cell["bytes"] for cell in chosen]
        for library in chosen[0]["median_s"]:
            axis.plot(sizes, [cell["bytes"] / cell["median_s"][library] / 1e9 for cell in chosen],
                      label=library, linewidth=2 if library == "sprat" else 1,
                      linestyle=":" if library.startswith(LIMIT) else "-")
        axis.set_xscale("log", base=2)
        axis.set_yscale("log")
        axis.set_title(name)
        axis.set_xlabel("bytes")
        axis.grid(alpha=0.3)
    axes[0][0].set_ylabel("GB/s (bytes / time)")
    axes[0][0].legend(fontsize=7)
    figure.suptitle(f"{options.ranks} ranks on {len(os.sched_getaffinity(0))} cores, ours in {options.memory} memory", fontsize=10)
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True, help="where the drivers are: bench/compare/run gives it")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--memory", choices=["shared", "malloc", "huge"], default="shared", help="ours")
    parser.add_argument("--peer-memory", choices=["malloc", "huge"], default="malloc")
    parser.add_argument("--collectives", default=",".join(COLLECTIVES))
    parser.add_argument("--sizes", default=SIZES)
    parser.add_argument("--samples", type=int, default=15)
    parser.add_argument("--peers", default="openmpi,mpich,gloo")
    parser.add_argument("--no-limit", action="store_true")
    parser.add_argument("--out", help="a folder for compare.json and compare.svg")
    options = parser.parse_args()
    options.peers = [name for name in options.peers.split(",") if name]
    sizes = [size_of(text) for text in options.sizes.split(",")]
    names = ["sprat"] + options.peers
    if not options.no_limit and options.ranks <= len(os.sched_getaffinity(0)):
        names += [LIMIT, LIMIT + "_nt"]
    begin, cells = time.monotonic(), []
    with tempfile.TemporaryDirectory() as folder:
        libraries = launch(names, options, folder)
        try:
            print(header(options), flush=True)
            for collective in options.collectives.split(","):
                for size in sizes if collective != "barrier" else [0]:
                    cells.append(measure(libraries, collective, size, options))
                    print(row(cells[-1], options), flush=True)
        finally:
            for library in libraries.values():
                for stream in library.streams.values():
                    try:
                        stream.write("quit\n")
                        stream.flush()
                    except OSError:
                        pass
            for library in libraries.values():
                for process in library.processes:
                    try:
                        process.wait(10)
                    except subprocess.TimeoutExpired:
                        process.kill()
    print(f"{len(cells)} cells of {options.samples} samples in {time.monotonic() - begin:.0f} s")
    if options.out:
        os.makedirs(options.out, exist_ok=True)
        with open(os.path.join(options.out, "compare.json"), "w") as file:
            json.dump({"command": sys.argv[1:], "ranks": options.ranks, "memory": options.memory, "cells": cells}, file, indent=1)
        plot(cells, options, os.path.join(options.out, "compare.svg"))
    sys.exit(1 if any(cell["wrong"] for cell in cells) else 0)


if __name__ == "__main__":
    main()
