"""Cases measured beside DTensor's tensor parallelism, and their table."""

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
COLUMNS = ["case", "layers x width, tokens", "optimize", "DTensor, tokens/s", "sprat train, tokens/s", "sprat / DTensor",
           "wanted", "sprat's exposed", "differ by, of the bound"]


def measured(name: str, optimize: str, place: jobs.Place, options: argparse.Namespace) -> dict:
    case = cases.CASES[name]
    with tempfile.TemporaryDirectory() as folder:
        config = pathlib.Path(folder) / "config.json"
        config.write_text(json.dumps(case.config(optimize)))
        ours = turns.Ours(place, config, pathlib.Path(options.bin) / "sprat", case.tokens())
        theirs = turns.Theirs(place, HERE / "torch_rank.py", config)
        both = turns.in_turns(ours, theirs, options.rounds, options.steps)
    exposed = statistics.median(report.mean("exposed_comm_ms") / 1e3 / report.seconds for report in both.ours)
    return {"case": name, "text": case.text(), "optimize": optimize, "place": place.text(),
            "seconds": {"sprat": both.seconds, "torch": both.theirs},
            "tokens_per_s": {"sprat": case.tokens() / statistics.median(both.seconds),
                             "torch": case.tokens() / statistics.median(both.theirs)},
            "ratio": table.ratios(both.theirs, both.seconds), "least": cases.LEAST, "exposed": exposed,
            "differ": both.differ, "bounds": case.bounds()}


def row(cell: dict) -> list[str]:
    rate = cell["tokens_per_s"]
    nearest = max(cell["differ"], key=lambda what: cell["differ"][what] / cell["bounds"][what])
    return [cell["case"], cell["text"], cell["optimize"], f"{rate['torch']:,.0f}", f"{rate['sprat']:,.0f}",
            table.digits(cell["ratio"], ".2f"), f"{cell['least']:g}", f"{cell['exposed']:.0%}",
            f"{cell['differ'][nearest]:.0e} of {cell['bounds'][nearest]:.0e}"]


def misses(cell: dict) -> list[str]:
    which = f"{cell['case']}, {cell['optimize']}, {cell['place']}"
    missed = [f"{which}: the {name}s differ by {value:.1e} of {cell['bounds'][name]:.1e}"
              for name, value in cell["differ"].items() if not value <= cell["bounds"][name]]
    if cell["ratio"]["median"] < cell["least"]:
        missed.append(f"{which}: {cell['ratio']['median']:.2f} of {cell['least']:g}")
    return missed


def measure(place: jobs.Place, options: argparse.Namespace) -> tuple[list[dict], list[str]]:
    """A table of one place."""
    cells = [measured(name, optimize, place, options) for name in options.cases for optimize in options.optimize]
    products = f"OpenBLAS's kernel {options.kernel}" if options.kernel else "the fastest kernel"
    print(f"\n{place.text()}; our products by {products}\n\n{table.lines(COLUMNS, list(map(row, cells)))}", flush=True)
    return cells, [miss for cell in cells for miss in misses(cell)]
