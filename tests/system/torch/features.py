"""Runs the cells of the feature table and prints it."""

from __future__ import annotations

import sys
import time
from typing import Iterable, NamedTuple

from cell import Cell
from cells import CELLS
from launch import Ranks, Report


class Result(NamedTuple):
    """One cell on one backend with one number of ranks."""

    cell: Cell
    backend: str
    size: int
    error: str  # Empty if the feature works.
    seconds: float


def run_cells(cells: Iterable[Cell], backend: str, size: int, verbose: bool = False) -> list[Result]:
    """Runs the cells one after another in one launch; a failure costs the launch, and the next cell gets a fresh one."""
    results: list[Result] = []
    ranks: Ranks | None = None
    for cell in cells:
        ranks = ranks or Ranks(backend, size)
        start = time.monotonic()
        reports = ranks.run(cell.check, cell.deadline)
        error = _first_error(reports)
        results.append(Result(cell, backend, size, error, time.monotonic() - start))
        _tell(results[-1])
        if error:
            ranks.kill()
            print(ranks.tail(60) if verbose else "", end="", file=sys.stderr)
            ranks = None
        elif cell.last:
            ranks = ranks.kill()
    if ranks:
        ranks.leave()
    return results


def _first_error(reports: list[Report]) -> str:
    """What went wrong, by the rank that says most about it: an error before a hang that it caused."""
    errors = [(rank, report.error) for rank, report in enumerate(reports) if report.error]
    if not errors:
        return ""
    rank, error = min(errors, key=lambda item: item[1].startswith("hung"))
    return f"rank {rank}: {error}"


def _tell(result: Result) -> None:
    verdict = f"FAILED {result.error[:300]}" if result.error else "ok"
    print(f"{result.backend:5} {result.size} ranks {result.seconds:6.1f} s  {result.cell.feature}: {verdict}",
          file=sys.stderr, flush=True)


def _words(results: list[Result]) -> str:
    """A cell of the printed table."""
    if not results:
        return "-"
    failed = [result for result in results if result.error]
    if not failed:
        return "yes"
    reason = " ".join(failed[0].error.split(": ", 1)[1].split()).replace("|", "/")
    reason = reason.removeprefix("AssertionError: ").removeprefix("RuntimeError: ")
    sizes = "" if len(failed) == len(results) else f" ({failed[0].size} ranks)"
    return f"no{sizes}: {reason if len(reason) <= 150 else reason[:147] + '...'}"


def rows(results: list[Result], backends: list[str]) -> list[tuple[str, list[str]]]:
    """Feature and verdicts; a row of no verdicts opens a theme."""
    table: list[tuple[str, list[str]]] = []
    themes: list[str] = []
    ran = {result.cell for result in results}
    for cell in (cell for cell in CELLS if cell in ran):
        if cell.theme not in themes:
            themes.append(cell.theme)
            table.append((cell.theme, []))
        verdicts = [_words([r for r in results if r.cell == cell and r.backend == backend])
                    for backend in backends]
        table.append((cell.feature, verdicts))
    return table


def text_table(results: list[Result], backends: list[str]) -> str:
    table = rows(results, backends)
    width = max(len(feature) for feature, _ in table) + 2
    lines = []
    for feature, verdicts in table:
        if not verdicts:
            heads = "".join(f"{backend:>8}" for backend in backends)
            lines.append(f"\n{feature:{width}}{heads}")
            continue
        lines.append(f"{feature:{width}}" + "".join(f"{v.split(':')[0][:7]:>8}" for v in verdicts))
        lines.extend(f"    {backend} {verdict}" for backend, verdict in zip(backends, verdicts, strict=True)
                     if verdict.startswith("no"))
    return "\n".join(lines)


def markdown_table(results: list[Result], backends: list[str]) -> str:
    lines = []
    for feature, verdicts in rows(results, backends):
        if not verdicts:
            lines += ["", f"| {feature} | " + " | ".join(backends) + " |", "|---" * (len(backends) + 1) + "|"]
            continue
        lines.append("| " + " | ".join([feature] + verdicts) + " |")
    return "\n".join(lines)


def as_json(results: list[Result]) -> list[dict]:
    return [{"theme": r.cell.theme, "feature": r.cell.feature, "backend": r.backend, "ranks": r.size,
             "works": not r.error, "error": r.error, "seconds": round(r.seconds, 3)} for r in results]
