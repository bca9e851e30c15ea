"""The two sides' jobs: PyTorch's ranks and ours, from one configuration."""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Iterator

import jobs
import shapes

HERE = pathlib.Path(__file__).resolve().parent
TRAINER_STEPS = 20  # of which the second half counts


@dataclass
class Sides:
    """What can be started for one shape in one place."""

    place: jobs.Place
    config: pathlib.Path
    binaries: pathlib.Path

    def torch(self) -> jobs.Job:
        """Its ways are "gloo" and "nothing"."""
        return jobs.Job("FSDP2", self.place,
                        [sys.executable, "-B", str(HERE / "torch_rank.py"), str(self.config)])

    def ours(self, ways: list[dict]) -> jobs.Job:
        """Ways are those of bench/fsdp/training.hpp."""
        command = [str(self.binaries / "sprat_bench_fsdp"), str(self.config)]
        for way in ways:
            command += ["--way", json.dumps(way)]
        return jobs.Job("sprat", self.place, command)

    def trainer(self) -> dict:
        """`sprat train` itself for some steps: the median rate, and the first loss."""
        report = self.config.with_suffix(".report")
        ranks = jobs.start(self.place, [str(self.binaries / "sprat"), "train", str(self.config),
                                        "--steps", str(TRAINER_STEPS), "--report", str(report)],
                           stdout=subprocess.DEVNULL)
        if any([rank.wait(120) for rank in ranks]):
            raise SystemExit("bench/fsdp: sprat train failed; its message is above")
        steps = [json.loads(line) for line in report.read_text().splitlines()]
        return {"loss": steps[0]["loss"],
                "tokens_per_s": statistics.median(step["tokens_per_s"] for step in steps[TRAINER_STEPS // 2:])}


@contextmanager
def sides_of(shape: shapes.Shape, place: jobs.Place, options: argparse.Namespace) -> Iterator[Sides]:
    with tempfile.TemporaryDirectory() as folder:
        config = pathlib.Path(folder) / "config.json"
        config.write_text(json.dumps(shape.config(place.count)))
        yield Sides(place, config, pathlib.Path(options.bin))


def first_loss(job: jobs.Job, way: str) -> float:
    """The first step's: the mean over ranks, which have equally many samples."""
    return statistics.mean(answer["losses"][0] for answer in job.steps(way, 1))
