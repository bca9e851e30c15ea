"""Ratios, shares and tables."""

import statistics


def quartiles(values: list[float]) -> dict[str, float]:
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return {"low": low, "median": middle, "high": high}


def ratios(above: list[float], below: list[float]) -> dict[str, float]:
    """Quartiles of above / below, each of one round."""
    return quartiles([a / b for a, b in zip(above, below)])


def shares(step: list[float], nothing: list[float]) -> dict[str, float]:
    """Quartiles of 1 - nothing / step, each of one round: what communication adds to a step."""
    return quartiles([1 - b / a for a, b in zip(step, nothing)])


def digits(values: dict[str, float], form: str) -> str:
    low, middle, high = (format(values[key], form) for key in ("low", "median", "high"))
    return f"{middle} ({low} to {high})"


def milliseconds(seconds: list[float]) -> str:
    return f"{statistics.median(seconds) * 1e3:.3g}"


def lines(columns: list[str], rows: list[list[str]]) -> str:
    """A table that is easy to read, and Markdown."""
    widths = [max(len(row[i]) for row in [columns, *rows]) for i in range(len(columns))]

    def line(cells: list[str]) -> str:
        return "| " + " | ".join(cell.ljust(width) for cell, width in zip(cells, widths)) + " |"

    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    return "\n".join([line(columns), rule, *map(line, rows)])
