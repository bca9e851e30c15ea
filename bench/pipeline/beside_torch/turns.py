"""The two sides, a turn at a time: `sprat train` anew each time, PyTorch's ranks where they left off."""

import json
import pathlib
import statistics
import subprocess
import sys
from dataclasses import dataclass

import jobs

HERE = pathlib.Path(__file__).resolve().parent
WARM_UP = 3  # steps that `sprat train` begins with, which do not count


@dataclass(frozen=True)
class Report:
    """What `sprat train` says of the steps that count, and of its first ones."""

    seconds: float  # of a step, the mean
    bubble: float
    first: list[dict]  # its lines of the steps that do not count

    @staticmethod
    def of(lines: list[dict], tokens: int) -> "Report":
        counted = lines[WARM_UP:]
        return Report(seconds=statistics.mean(tokens / line["tokens_per_s"] for line in counted),
                      bubble=statistics.mean(line["bubble"] for line in counted),
                      first=lines[:WARM_UP])


class Ours:
    """`sprat train` as it is, from its first step in each turn."""

    def __init__(self, place: jobs.Place, config: pathlib.Path, binary: pathlib.Path, tokens: int):
        self.place, self.config, self.binary, self.tokens = place, config, binary, tokens
        self.report = config.with_suffix(".report")

    def turn(self, steps: int) -> Report:
        command = [str(self.binary), "train", str(self.config), "--steps", str(WARM_UP + steps),
                   "--report", str(self.report)]
        ranks = jobs.start(self.place, command, stdout=subprocess.DEVNULL)
        if any([rank.wait(170) for rank in ranks]):
            raise SystemExit("bench/pipeline: sprat train failed; its message is above")
        lines = self.report.read_text().splitlines()
        return Report.of([json.loads(line) for line in lines], self.tokens)


class Theirs:
    """Ranks that have trained already, and go on."""

    def __init__(self, place: jobs.Place, config: pathlib.Path):
        self.job = jobs.Job("PyTorch", place, [sys.executable, "-B", str(HERE / "torch_stage.py"), str(config)])

    def first(self, steps: int) -> list[dict]:
        """Losses and norms of the very first steps, by the report's names."""
        ranks = self.job.steps("check", steps)
        return [{"loss": ranks[-1]["losses"][i], "grad_norm": ranks[0]["norms"][i]} for i in range(steps)]

    def turn(self, steps: int) -> float:
        """Seconds of a step, the mean, behind one that warms up."""
        return self.job.sample("train", steps)

    def end(self) -> None:
        self.job.end()
