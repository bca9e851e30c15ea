"""HSDP, sharded inside a host, beside our own ZeRO-3 over all ranks, between hosts."""

import argparse
import statistics

import jobs
import shapes
import table
from sides import sides_of

COLUMNS = ["micro-steps", "ZeRO-3, ms", "its wire, ms", "its computation, ms", "wire / computation",
           "HSDP, ms", "its wire, ms", "ZeRO-3 / HSDP", "bound", "bar"]
# A frame of 1514 bytes, as the limit of a wire counts it, carries 1448 of a TCP stream.
GOODPUT = 1448 / 1514


def ways_of(place: jobs.Between, micro_steps: int) -> list[dict]:
    zero3 = {"name": "zero3", "strategy": "zero3", "micro_steps": micro_steps}
    hsdp = {"name": "hsdp", "strategy": "hsdp", "hybrid_shard_degree": place.per_host,
            "micro_steps": micro_steps}
    return [zero3, hsdp, {**zero3, "name": "nothing", "nothing": True}]


def crossing(parameters: int, hosts: int, micro_steps: int) -> dict[str, float]:
    """Bytes that must leave each host in a step, in f32.

    ZeRO-3: each micro-step gathers twice, which brings the other hosts' parts in, and reduces once.
    HSDP: once a step, a host's ranks have an all-reduce of their shards with the other hosts', each.
    """
    once = 4 * parameters * (hosts - 1) / hosts
    return {"zero3": 3 * once * micro_steps, "hsdp": 2 * once}


def cell_of(place: jobs.Between, micro_steps: int, options: argparse.Namespace) -> dict:
    with sides_of(shapes.HYBRID, place, options) as sides:
        job = sides.ours(ways_of(place, micro_steps))
        ways = {name: (job, name) for name in ("zero3", "hsdp", "nothing")}
        for name in ways:
            job.steps(name, 1)
        seconds = jobs.alternate(ways, options.rounds, options.steps)
        job.end()
    rate = jobs.bits_of(options.rate) * GOODPUT / 8
    wire = {name: sent / rate for name, sent in
            crossing(shapes.HYBRID.parameters(), options.hosts, micro_steps).items()}
    return {"micro_steps": micro_steps, "where": place.text(), "text": shapes.HYBRID.text(),
            "seconds": seconds, "wire_s": wire, "bound": wire["zero3"] / wire["hsdp"],
            "wire_by_computation": wire["zero3"] / statistics.median(seconds["nothing"]),
            "ratio": table.ratios(seconds["zero3"], seconds["hsdp"]),
            "bar": shapes.HYBRID_BARS.get(micro_steps)}


def row(cell: dict) -> list[str]:
    time = {way: table.milliseconds(values) for way, values in cell["seconds"].items()}
    wire = {way: f"{1e3 * value:.0f}" for way, value in cell["wire_s"].items()}
    return [str(cell["micro_steps"]), time["zero3"], wire["zero3"], time["nothing"],
            f"{cell['wire_by_computation']:.1f}", time["hsdp"], wire["hsdp"],
            table.digits(cell["ratio"], ".2f"), f"{cell['bound']:g}", f"{cell['bar'] or ''}"]


def misses(cell: dict) -> list[str]:
    which, missed = f"{cell['micro_steps']} micro-steps", []
    if cell["bar"] and cell["ratio"]["median"] < cell["bar"]:
        missed.append(f"{which}: {cell['ratio']['median']:.2f} of {cell['bar']:g}")
    if cell["bar"] and cell["wire_by_computation"] < shapes.HYBRID_WIRE:
        missed.append(f"{which}: ZeRO-3's wire needs {cell['wire_by_computation']:.1f} x its "
                      f"computation, not {shapes.HYBRID_WIRE:g}")
    return missed


def measure(options: argparse.Namespace) -> tuple[list[dict], list[str]]:
    place = jobs.Between(options.hosts, options.per_host, options.rate, options.pin)
    cells = [cell_of(place, count, options) for count in map(int, options.micro_steps.split(","))]
    place.remove()
    print(f"\n{place.text()}; {shapes.HYBRID.text()} a micro-step\n\n"
          f"{table.lines(COLUMNS, list(map(row, cells)))}", flush=True)
    return cells, [miss for cell in cells for miss in misses(cell)]
