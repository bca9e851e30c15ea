"""What communication adds to a step: on two pinned ranks, and between four hosts."""

import argparse
import statistics

import jobs
import shapes
import table
from sides import sides_of

# Two units ahead: the gather that backward begins with hides behind the head's products.
ZERO3 = {"strategy": "zero3", "prefetch_units": 2}
COLUMNS = ["where", "layers x width, tokens a rank", "FSDP2, gloo, ms", "nothing, ms", "exposed",
           "sprat, ms", "nothing, ms", "exposed", "bar", "sprat / FSDP2"]


def cell_of(shape: shapes.Shape, place: jobs.Place, options: argparse.Namespace) -> dict:
    with sides_of(shape, place, options) as sides:
        theirs = sides.torch()
        ours = sides.ours([{"name": "zero3", **ZERO3}, {"name": "nothing", **ZERO3, "nothing": True}])
        ways = {"gloo": (theirs, "gloo"), "gloo, nothing": (theirs, "nothing"),
                "sprat": (ours, "zero3"), "sprat, nothing": (ours, "nothing")}
        for job, way in ways.values():
            job.steps(way, 1)
        seconds = jobs.alternate(ways, options.rounds, options.steps)
        theirs.end()
        ours.end()
    return {"where": place.text(), "text": shape.text(), "seconds": seconds,
            "exposed": {side: table.shares(seconds[side], seconds[f"{side}, nothing"])
                        for side in ("gloo", "sprat")},
            "ratio": table.ratios(seconds["gloo"], seconds["sprat"]), "bar": shapes.EXPOSED_BAR}


def row(cell: dict) -> list[str]:
    time = {way: f"{statistics.median(values) * 1e3:.4g}" for way, values in cell["seconds"].items()}
    exposed = {side: table.digits(share, ".1%") for side, share in cell["exposed"].items()}
    return [cell["where"], cell["text"], time["gloo"], time["gloo, nothing"], exposed["gloo"],
            time["sprat"], time["sprat, nothing"], exposed["sprat"], f"{cell['bar']:.0%}",
            table.digits(cell["ratio"], ".2f")]


def measure(options: argparse.Namespace) -> tuple[list[dict], list[str]]:
    cells = []
    if "ranks" in options.places:
        cells.append(cell_of(shapes.BESIDE_TORCH[2]["20%"], jobs.Here(2, options.pin), options))
    if "hosts" in options.places:
        place = jobs.Between(4, 1, options.rate, options.pin)
        cells.append(cell_of(shapes.FOUR_HOSTS, place, options))
        place.remove()
    print(f"\n{table.lines(COLUMNS, list(map(row, cells)))}", flush=True)
    return cells, [f"{cell['where']}: {cell['exposed']['sprat']['median']:.1%} of {cell['bar']:.0%}"
                   for cell in cells if cell["exposed"]["sprat"]["median"] > cell["bar"]]
