"""`sprat train` beside ranks of PyTorch's, a turn at a time: ours anew each time, theirs where they left off."""

import json
import pathlib
import statistics
import subprocess
import sys
from dataclasses import dataclass

import jobs

WARM_UP = 3  # steps that `sprat train` begins with, which do not count


@dataclass(frozen=True)
class Report:
    """What `sprat train` says of the steps that count, and of its first ones."""

    seconds: float  # of a step, the mean
    counted: list[dict]  # its lines
    first: list[dict]  # those of the steps that do not count

    @staticmethod
    def of(lines: list[dict], tokens: int) -> "Report":
        counted = lines[WARM_UP:]
        return Report(seconds=statistics.mean(tokens / line["tokens_per_s"] for line in counted),
                      counted=counted, first=lines[:WARM_UP])

    def mean(self, name: str) -> float:
        """Of a number that every line has."""
        return statistics.mean(line[name] for line in self.counted)


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
            raise SystemExit(f"{sys.argv[0]}: sprat train failed; its message is above")
        lines = self.report.read_text().splitlines()
        return Report.of([json.loads(line) for line in lines], self.tokens)


class Theirs:
    """Ranks of a script that serves jobs.Job. They have trained already, and go on.

    It knows "check", whose answers have losses and norms, and "train".
    """

    def __init__(self, place: jobs.Place, script: pathlib.Path, config: pathlib.Path):
        self.job = jobs.Job("PyTorch", place, [sys.executable, "-B", str(script), str(config)])

    def first(self, steps: int) -> list[dict]:
        """Losses and norms of the very first steps, by the report's names."""
        ranks = self.job.steps("check", steps)
        return [{"loss": ranks[-1]["losses"][i], "grad_norm": ranks[0]["norms"][i]} for i in range(steps)]

    def turn(self, steps: int) -> float:
        """Seconds of a step, the mean, behind one that warms up."""
        return self.job.sample("train", steps)

    def end(self) -> None:
        self.job.end()


def differences(ours: list[dict], theirs: list[dict]) -> dict[str, float]:
    """Relative: the forward is held by the first loss, the backward by the norm, the update by the next loss."""
    def between(name: str, step: int) -> float:
        return abs(ours[step][name] / theirs[step][name] - 1)

    return {"first loss": between("loss", 0), "first norm": between("grad_norm", 0), "second loss": between("loss", 1)}


@dataclass(frozen=True)
class Turns:
    """By round."""

    ours: list[Report]
    theirs: list[float]  # seconds of a step
    differ: dict[str, float]  # differences(), of the first steps

    @property
    def seconds(self) -> list[float]:
        """Of our steps."""
        return [report.seconds for report in self.ours]


def in_turns(ours: Ours, theirs: Theirs, rounds: int, steps: int) -> Turns:
    """First compares what both compute, then lets each side begin every other round."""
    turns = Turns([], [], differences(ours.turn(1).first, theirs.first(WARM_UP)))
    for number in range(rounds):
        for is_ours in [True, False] if number % 2 else [False, True]:
            if is_ours:
                turns.ours.append(ours.turn(steps))
            else:
                turns.theirs.append(theirs.turn(steps))
    theirs.end()
    return turns
