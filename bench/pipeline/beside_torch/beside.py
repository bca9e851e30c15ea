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

COLUMNS = ["case", "layers x width, tokens x micro-batches", "schedule", "PyTorch, tokens/s", "sprat train, tokens/s",
           "sprat / PyTorch", "wanted", "sprat's bubble", "differ by"]


def differences(ours: list[dict], theirs: list[dict]) -> dict[str, float]:
    """Relative: the forward is held by the first loss, the backward by the norm, the update by the next loss."""
    def between(name: str, step: int) -> float:
        return abs(ours[step][name] / theirs[step][name] - 1)

    return {"first loss": between("loss", 0), "first norm": between("grad_norm", 0), "second loss": between("loss", 1)}


def measured(name: str, schedule: str, place: jobs.Place, options: argparse.Namespace) -> dict:
    case = cases.CASES[name]
    with tempfile.TemporaryDirectory() as folder:
        config = pathlib.Path(folder) / "config.json"
        config.write_text(json.dumps(case.config(schedule)))
        ours = turns.Ours(place, config, pathlib.Path(options.bin) / "sprat", case.tokens())
        theirs = turns.Theirs(place, config)
        differ = differences(ours.turn(1).first, theirs.first(turns.WARM_UP))
        reports: list[turns.Report] = []
        seconds: list[float] = []
        for number in range(options.rounds):
            for is_ours in [True, False] if number % 2 else [False, True]:
                if is_ours:
                    reports.append(ours.turn(options.steps))
                else:
                    seconds.append(theirs.turn(options.steps))
        theirs.end()
    own_seconds = [report.seconds for report in reports]
    return {"case": name, "text": case.text(), "schedule": schedule, "place": place.text(),
            "seconds": {"sprat": own_seconds, "torch": seconds},
            "tokens_per_s": {"sprat": case.tokens() / statistics.median(own_seconds),
                             "torch": case.tokens() / statistics.median(seconds)},
            "ratio": table.ratios(seconds, own_seconds), "least": options.least,
            "bubble": statistics.median(report.bubble for report in reports), "differ": differ}


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
