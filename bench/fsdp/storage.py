"""What storage costs a step: tiers in files while memory has room for them, and one checkpoint in some steps."""

import argparse
import os
import statistics
import tempfile
import time
from dataclasses import dataclass

import jobs
import shapes
import table
from sides import sides_of

# Optimizer state outweighs everything else here, and steps are short: a hard case for storage.
SHAPE = shapes.Shape(4, 512, 128, 1)
BYTES_SAVED = 12  # of each parameter: itself, and AdamW's two
COLUMNS = ["way", "a step, ms", "by memory's", "saves, ms", "a write and fsync of as much, ms"]


def ways_of(folder: str) -> list[dict]:
    tier, zero3 = f"file:{folder}", {"strategy": "zero3"}
    return [{"name": "memory", **zero3},
            {"name": "state_in_files", **zero3, "state_tier": tier},
            {"name": "state_and_shards_in_files", **zero3, "state_tier": tier, "shard_tier": tier},
            {"name": "save_asynchronous", **zero3, "save": f"{folder}/asynchronous"},
            {"name": "save_blocking", **zero3, "save": f"{folder}/blocking", "asynchronous": False}]


@dataclass
class Disk:
    """The limit: one writer, in pieces of 4 MiB, and an fsync."""

    folder: str
    size: int

    def sample(self, way: str, count: int) -> float:
        piece = bytes(4 << 20)
        with tempfile.TemporaryFile(dir=self.folder, buffering=0) as file:
            begin = time.monotonic()
            for _ in range(self.size // len(piece)):
                file.write(piece)
            os.fsync(file.fileno())
            return time.monotonic() - begin


def measure(options: argparse.Namespace) -> tuple[list[dict], list[str]]:
    place = jobs.Here(options.ranks, options.pin)
    size = SHAPE.parameters() * BYTES_SAVED
    with tempfile.TemporaryDirectory(dir=options.folder) as folder, sides_of(SHAPE, place, options) as sides:
        job = sides.ours(ways_of(folder))
        ways = {way["name"]: (job, way["name"]) for way in ways_of(folder)}
        for name in ways:
            job.steps(name, 1)
        seconds = jobs.alternate({**ways, "disk": (Disk(folder, size), "")}, options.rounds, options.steps)
        limit = seconds.pop("disk")
        job.end()
    cells = [{"way": name, "where": place.text(), "text": SHAPE.text(), "steps": options.steps, "bytes": size,
              "seconds": values, "ratio": table.ratios(values, seconds["memory"]), "write_s": limit}
             for name, values in seconds.items()]
    print(f"\n{place.text()}; {SHAPE.text()} a rank; {SHAPE.parameters() / 1e6:.1f} M parameters, "
          f"{size / 1e6:.0f} MB a checkpoint, one in {options.steps} steps\n\n"
          f"{table.lines(COLUMNS, [row(cell, seconds['memory']) for cell in cells])}", flush=True)
    return cells, []


def row(cell: dict, memory: list[float]) -> list[str]:
    saves = "save" in cell["way"]
    added = [1e3 * cell["steps"] * (one - other) for one, other in zip(cell["seconds"], memory)]
    return [cell["way"].replace("_", " "), table.milliseconds(cell["seconds"]), table.digits(cell["ratio"], ".2f"),
            table.digits(table.quartiles(added), ".0f") if saves else "",
            f"{1e3 * statistics.median(cell['write_s']):.0f}" if saves else ""]
