"""Tokens a second beside PyTorch's FSDP2 on gloo."""

import argparse
import statistics

import jobs
import shapes
import table
from sides import first_loss, sides_of

COLUMNS = ["shape", "layers x width, tokens a rank", "FSDP2 tok/s", "gloo's share", "sprat tok/s",
           "sprat / FSDP2", "bar", "first loss differs", "`sprat train` tok/s"]


def cell_of(name: str, shape: shapes.Shape, place: jobs.Place, options: argparse.Namespace) -> dict:
    with sides_of(shape, place, options) as sides:
        theirs = sides.torch()
        ours = sides.ours([{"name": "zero3", "strategy": "zero3"}])
        losses = {"torch": first_loss(theirs, "gloo"), "sprat": first_loss(ours, "zero3")}
        theirs.steps("nothing", 1)
        seconds = jobs.alternate({"gloo": (theirs, "gloo"), "nothing": (theirs, "nothing"),
                                  "sprat": (ours, "zero3")}, options.rounds, options.steps)
        theirs.end()
        ours.end()
        trainer = sides.trainer()
    tokens = shape.tokens(place.count)
    return {"shape": name, "ranks": place.count, "text": shape.text(), "seconds": seconds,
            "tokens_per_s": {way: tokens / statistics.median(values)
                             for way, values in seconds.items()},
            "share": table.shares(seconds["gloo"], seconds["nothing"]),
            "ratio": table.ratios(seconds["gloo"], seconds["sprat"]), "bar": shapes.bar(name),
            "losses": losses, "loss_difference": abs(losses["sprat"] / losses["torch"] - 1),
            "trainer": trainer}


def row(cell: dict) -> list[str]:
    rate = cell["tokens_per_s"]
    return [cell["shape"], cell["text"], f"{rate['gloo']:.0f}", table.digits(cell["share"], ".0%"),
            f"{rate['sprat']:.0f}", table.digits(cell["ratio"], ".2f"), f"{cell['bar']:g}",
            f"{cell['loss_difference']:.1e}", f"{cell['trainer']['tokens_per_s']:.0f}"]


def misses(cell: dict) -> list[str]:
    which = f"{cell['ranks']} ranks, {cell['shape']}"
    missed = []
    if cell["ratio"]["median"] < cell["bar"]:
        missed.append(f"{which}: {cell['ratio']['median']:.2f} of {cell['bar']:g}")
    if not cell["loss_difference"] <= shapes.LOSS_TOLERANCE:
        missed.append(f"{which}: the first losses are {cell['losses']}")
    if cell["trainer"]["loss"] != cell["losses"]["sprat"]:
        missed.append(f"{which}: sprat train's first loss is {cell['trainer']['loss']}, this "
                      f"program's {cell['losses']['sprat']}")
    return missed


def measure(options: argparse.Namespace) -> tuple[list[dict], list[str]]:
    cells = []
    for count in map(int, options.ranks.split(",")):
        place = jobs.Here(count, options.pin)
        known = shapes.BESIDE_TORCH[count]
        names = options.shapes.split(",") if options.shapes else list(known)
        if unknown := set(names) - set(known):
            raise SystemExit(f"bench/fsdp: no shape {', '.join(unknown)}; there are: {', '.join(known)}")
        found = [cell_of(name, known[name], place, options) for name in names]
        print(f"\n{place.text()}\n\n{table.lines(COLUMNS, list(map(row, found)))}", flush=True)
        cells += found
    return cells, [miss for cell in cells for miss in misses(cell)]
