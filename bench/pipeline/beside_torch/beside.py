"""Cases measured beside PyTorch's pipelining, and their table."""

import argparse
import json
import pathlib
import statistics
import tempfile

import cases
import jobs
import table
import turns

HERE = pathlib.Path(__file__).resolve().parent
COLUMNS = ["case", "layers x width, tokens x micro-batches", "schedule", "PyTorch, tokens/s", "sprat train, tokens/s",
           "sprat / PyTorch", "wanted", "sprat's bubble", "differ by"]


def measured(name: str, schedule: str, place: jobs.Place, options: argparse.Namespace) -> dict:
    case = cases.CASES[name]
    with tempfile.TemporaryDirectory() as folder:
        config = pathlib.Path(folder) / "config.json"
        config.write_text(json.dumps(case.config(schedule)))
        ours = turns.Ours(place, config, pathlib.Path(options.bin) / "sprat", case.tokens())
        theirs = turns.Theirs(place, HERE / "torch_stage.py", config)
        both = turns.in_turns(ours, theirs, options.rounds, options.steps)
    return {"case": name, "text": case.text(), "schedule": schedule, "place": place.text(),
            "seconds": {"sprat": both.seconds, "torch": both.theirs},
            "tokens_per_s": {"sprat": case.tokens() / statistics.median(both.seconds),
                             "torch": case.tokens() / statistics.median(both.theirs)},
            "ratio": table.ratios(both.theirs, both.seconds), "least": options.least,
            "bubble": statistics.median(report.mean("bubble") for report in both.ours), "differ": both.differ}


def row(cell: dict) -> list[str]:
    rate = cell["tokens_per_s"]
    return [cell["case"], cell["text"], cell["schedule"], f"{rate['torch']:,.0f}", f"{rate['sprat']:,.0f}",
            table.digits(cell["ratio"], ".2f"), f"{cell['least']:g}", f"{cell['bubble']:.0%}",
            f"{max(cell['differ'].values()):.0e}"]


def misses(cell: dict) -> list[str]:
    which = f"{cell['case']}, {cell['schedule']}, {cell['place']}"
    missed = [f"{which}: the {name}s differ by {value:.1e}" for name, value in cell["differ"].items()
              if not value <= cases.TOLERANCE]
    if cell["ratio"]["median"] < cell["least"]:
        missed.append(f"{which}: {cell['ratio']['median']:.2f} of {cell['least']:g}")
    return missed


def measure(place: jobs.Place, options: argparse.Namespace) -> tuple[list[dict], list[str]]:
    """A table of one place."""
    cells = [measured(name, schedule, place, options)
             for name in options.cases for schedule in options.schedules]
    products = f"OpenBLAS's kernel {options.kernel}" if options.kernel else "the fastest kernel"
    print(f"\n{place.text()}; our products by {products}\n\n{table.lines(COLUMNS, list(map(row, cells)))}", flush=True)
    return cells, [miss for cell in cells for miss in misses(cell)]
