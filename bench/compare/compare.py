#!/usr/bin/python3
"""Sprat beside Open MPI, MPICH, gloo and the machine's limit, in one alternation.

  bench/compare/run [--ranks 2] [--memory shared|malloc|huge] [--collectives all_reduce,...]
                    [--sizes 8,4K,1M,...] [--samples 15] [--peers openmpi,mpich,gloo] [--out FOLDER]
                    [--hosts 4 [--rails 2 [--one-rail]] [--rate 1gbit]] [--before FOLDER] [--busy 4] [--starts 9]

All libraries' ranks run at the same time, but one library at a time is told to work; the others sleep in a
read. Rank r of each is pinned to core r mod cores. A sample is the slowest rank's mean over a batch of at
least 2 ms; each round takes one sample of each library, in turn; a ratio is of one round. Every element is
checked before and after the timing of a cell. Peers use malloc memory (or huge pages with --peer-memory
huge); the limit reads and writes what ours does on huge pages if ours is shared.

--before FOLDER adds the libsprat.so of another build, FOLDER, as the peer "before", in a driver compiled with that
build's headers; --one-rail adds ours on the first wire of each host as the peer "one_rail". --busy N starts N loops that
take the cores meanwhile: nothing is pinned then, Open MPI yields, and MPICH, which only spins, is left out.

A start decides which pages, and which lines of the caches, each library gets, so that ratios differ from start to
start by more than within one. --starts N begins all libraries anew N times; the last table has each cell's ratio,
the median of those starts' medians, with the 95 % interval of that median (of 5 and fewer starts: their range).
Whoever begins first gets better pages: one library beside itself, second, took 0.92 of the time for 64 MiB in
malloc memory. Every other start begins them in the opposite order, so N is best even.
The last lines say which cells lie below another library of ours for sure, with all of their interval (of one
start: of their quartiles). A library that hangs ends the run; what has been measured until then is told.

With --hosts the ranks are spread over network namespaces (needs root), each with a wire of --rate in each
direction for every rail, and nothing is pinned. A batch takes at least 50 ms. The limit is the time in which
the wires carry what must cross one host's: at the goodput of plain TCP with all hosts sending in a ring.
"""
import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time

from launch import BEFORE, LIMIT, ONE_RAIL, OURS, Between, Here, Stopped, launch

COLLECTIVES = ["all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all", "all_to_allv", "send_recv", "barrier"]
LEAST_RATIO = 0.97  # less than that of another of our libraries' speed is a loss, and no noise
SIZES = "8,64,512,4K,16K,64K,256K,1M,4M,16M,64M"


def size_of(text):
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    return int(text[:-1]) * units[text[-1]] if text[-1] in units else int(text)


def size_text(size):
    for unit, scale in (("G", 1 << 30), ("M", 1 << 20), ("K", 1 << 10)):
        if size >= scale and size % scale == 0:
            return f"{size // scale} {unit}iB"
    return f"{size} B"


def quartiles(values):
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return {"low": low, "median": middle, "high": high}


def measure(libraries, collective, size, options):
    """One cell: times by library, and our ratios."""
    wrong = []
    for library in libraries.values():
        ours = library.name in OURS or library.name.startswith(LIMIT)
        memory = options.memory if ours else options.peer_memory
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
    peers = [name for name in names if name in options.peers and name not in OURS]
    for other in options.of_ours:
        cell["ratio_to_" + other] = quartiles([theirs / ours for theirs, ours in zip(samples[other], samples["sprat"])])
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
    of_ours = "".join(f"{ratio_text('ratio_to_' + name)}  " for name in options.of_ours)
    return (f"{cell['collective']:14}  {size_text(cell['bytes']):>8}{times}{limit:11.2f}  {ratio_text('ratio_to_best')}  "
            f"{ratio_text('ratio_to_limit')}  {of_ours}{'; '.join(cell['wrong']) or '0 wrong'}")


def header(options):
    names = "".join(f"{name:>11}" for name in ["sprat"] + options.peers + ["limit"])
    of_ours = "".join(f"  {name + ' / sprat':>19}" for name in options.of_ours)
    return f"{'us a call':14}  {'':>8}{names}  {'best peer / sprat':>19}  {'limit / sprat':>19}{of_ours}"


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
    figure.suptitle(title(options), fontsize=10)
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def title(options):
    if options.hosts == 1:
        busy = f" beside {options.busy} busy loops" if options.busy else ""
        return f"{options.ranks} ranks on {len(os.sched_getaffinity(0))} cores{busy}, ours in {options.memory} memory"
    return (f"{options.ranks} ranks on {options.hosts} hosts, {options.rails} x {options.rate} each, "
            f"ours in {options.memory} memory")


def parsed():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True, help="where the drivers are: bench/compare/run gives it")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--memory", choices=["shared", "malloc", "huge"], default="shared", help="ours")
    parser.add_argument("--peer-memory", choices=["malloc", "huge"], default="malloc")
    parser.add_argument("--collectives", default=",".join(COLLECTIVES))
    parser.add_argument("--sizes", default=SIZES)
    parser.add_argument("--samples", type=int, default=15)
    parser.add_argument("--peers", help="default: openmpi,mpich,gloo; openmpi,gloo with --hosts")
    parser.add_argument("--hosts", type=int, default=1)
    parser.add_argument("--rails", type=int, default=1, help="wires of a host")
    parser.add_argument("--one-rail", action="store_true", help="ours on one wire of a host too")
    parser.add_argument("--rate", default="1gbit", help="of a wire in each direction, as tc writes it")
    parser.add_argument("--before", help="the folder of another build's libsprat.so")
    parser.add_argument("--busy", type=int, default=0, help="loops that take the cores meanwhile")
    parser.add_argument("--no-limit", action="store_true")
    parser.add_argument("--starts", type=int, default=1)
    parser.add_argument("--out", help="a folder for compare.json and compare.svg")
    options = parser.parse_args()
    several = options.hosts > 1
    if options.peers is None:
        options.peers = "openmpi,gloo" if several or options.busy else "openmpi,mpich,gloo"
    options.of_ours = [BEFORE] * bool(options.before) + [ONE_RAIL] * options.one_rail
    options.peers = [name for name in options.peers.split(",") if name] + options.of_ours
    if options.ranks % options.hosts:
        parser.error(f"{options.ranks} ranks do not spread evenly over {options.hosts} hosts")
    if options.one_rail and not (several and options.rails > 1):
        parser.error("--one-rail needs several hosts with several wires each")
    if several and "mpich" in options.peers:
        parser.error("mpich is not started on several hosts")
    return options


def interval(medians):
    """The 95 % interval of the median of these, by order: so many of them lie outside on each side."""
    medians = sorted(medians)
    outside, chance = 0, 0.5 ** len(medians)
    while chance <= 0.025:
        outside += 1
        chance += math.comb(len(medians), outside) * 0.5 ** len(medians)
    outside = max(0, outside - 1)
    return {"low": medians[outside], "median": statistics.median(medians), "high": medians[-1 - outside]}


def over_starts(cells):
    """Cells of all starts, one for each collective and size: the ratios' medians, and their intervals."""
    places = {}
    for cell in cells:
        places.setdefault((cell["collective"], cell["bytes"]), []).append(cell)
    joined = []
    for (collective, size), same in places.items():
        libraries = same[0]["median_s"]
        one = {"collective": collective, "bytes": size, "wrong": [text for cell in same for text in cell["wrong"]],
               "median_s": {name: statistics.median(cell["median_s"][name] for cell in same) for name in libraries}}
        for key in same[0]:
            if key.startswith("ratio_to_"):
                one[key] = interval([cell[key]["median"] for cell in same])
        joined.append(one)
    return joined


def summary(cells, options):
    """Of our other libraries: the ratios' geometric mean, and the cells that are below LEAST_RATIO for sure."""
    lines = []
    for name in options.of_ours:
        ratios = [(cell, cell["ratio_to_" + name]) for cell in cells]
        mean = math.exp(statistics.fmean(math.log(ratio["median"]) for _, ratio in ratios))
        below = [f"{cell['collective']} of {size_text(cell['bytes'])} {ratio['median']:.2f} ({ratio['low']:.2f}-{ratio['high']:.2f})"
                 for cell, ratio in ratios if ratio["high"] < LEAST_RATIO]
        lines.append(f"{name} / sprat: geometric mean {mean:.3f} of {len(ratios)} cells; "
                     f"below {LEAST_RATIO}: {', '.join(below) or 'none'}")
    return lines


def measure_start(number, place, options, folder, cells):
    """All cells, of libraries that begin anew, are added to `cells`."""
    names = ["sprat"] + options.peers + ([] if options.no_limit else place.limits())
    if number % 2 == 1:
        names.reverse()
    libraries, loops = {}, []
    with tempfile.TemporaryDirectory() as meeting:
        try:
            libraries = launch(names, place, options, folder, meeting)
            loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(options.busy)]
            for collective in options.collectives.split(","):
                for size in map(size_of, options.sizes.split(",")) if collective != "barrier" else [0]:
                    cells.append(measure(libraries, collective, size, options))
                    print(row(cells[-1], options), flush=True)
        finally:
            for loop in loops:
                loop.kill()
            for library in libraries.values():
                library.quit()


def main():
    options = parsed()
    if options.hosts == 1:
        place = Here(options.ranks, pinned=not options.busy)
    else:
        place = Between(options.ranks, options.hosts, options.rails, options.rate)
    begin, cells, stop = time.monotonic(), [], None
    print(header(options), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        try:
            for number in range(options.starts):
                measure_start(number, place, options, folder, cells)
        except Stopped as reason:  # what has been measured is told all the same
            stop = reason
        finally:
            place.remove()
    print(f"{len(cells)} cells of {options.samples} samples in {time.monotonic() - begin:.0f} s")
    if options.starts > 1:
        cells = over_starts(cells)
        print(f"\nof {options.starts} starts\n{header(options)}\n" + "\n".join(row(cell, options) for cell in cells))
    if cells:
        print("".join(line + "\n" for line in summary(cells, options)), end="")
    if options.out:
        os.makedirs(options.out, exist_ok=True)
        with open(os.path.join(options.out, "compare.json"), "w") as file:
            json.dump({"command": sys.argv[1:], "ranks": options.ranks, "hosts": options.hosts, "rails": options.rails,
                       "memory": options.memory, "cells": cells}, file, indent=1)
        plot(cells, options, os.path.join(options.out, "compare.svg"))
    if stop:
        raise SystemExit(f"compare: {stop}")
    sys.exit(1 if any(cell["wrong"] for cell in cells) else 0)


if __name__ == "__main__":
    main()
