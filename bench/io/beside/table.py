"""Rates as a table for people."""

from __future__ import annotations

import statistics

#: What is aimed at: our rate over that of ... ; by work and state of the page cache.
AIMS = {
    ("tokens", "cold"): {"the best peer": 5.0, "fio": 0.95},
    ("tokens", "warm"): {"numpy memmap": 1.5, "plain preads": 0.85},
    ("images", "cold"): {"the best peer": 2.0, "fio": 0.95},
    ("images", "warm"): {"the best peer": 2.0, "plain preads": 0.85},
    ("volumes", "cold"): {"the best peer": 0.95, "fio": 0.95},
    ("volumes", "warm"): {"the best peer": 0.95, "plain preads": 0.85},
}
LIMITS = ("fio", "plain preads", "memcpy")


def rate(sample: dict) -> float:
    return sample["bytes"] / sample["seconds"]


def median(samples: list[dict]) -> float:
    return statistics.median(map(rate, samples))


def spread(samples: list[dict]) -> str:
    rates = sorted(map(rate, samples))
    return f"{rates[0] / 1e6:,.0f}-{rates[-1] / 1e6:,.0f}"


def rows(cell: dict) -> list[str]:
    """One work in one state of the page cache."""
    samples = cell["samples"]
    ours = median(samples["sprat"])
    lines = [f"\n{cell['work']}, {cell['state']}: batches of {cell['batch']} x {cell['record_bytes']:,} B",
             f"  {'':22}{'MB/s':>9}{'(least-most)':>16}{'batches/s':>11}{'sprat / it':>11}  first batch  settings"]
    for name, of_name in samples.items():
        middle = median(of_name)
        first = statistics.median(s["first_s"] for s in of_name) if "first_s" in of_name[0] else None
        batch_bytes = cell["batch"] * cell["record_bytes"]
        lines.append(f"  {name:22}{middle / 1e6:>9,.0f}{spread(of_name):>16}{middle / batch_bytes:>11,.1f}{ours / middle:>11.2f}"
                     f"  {f'{first:.2f} s' if first is not None else '':11}  {settings_text(cell['settings'].get(name))}")
    return lines + [judged(cell)]


def settings_text(settings) -> str:
    if isinstance(settings, dict):
        return ", ".join(f"{key} {value}" for key, value in settings.items())
    return "" if settings is None else "x".join(map(str, settings))


def judged(cell: dict) -> str:
    """What is aimed at, and whether it is reached."""
    samples, said = cell["samples"], []
    ours = max(median(of_name) for name, of_name in samples.items() if name.startswith("sprat"))
    for against, aim in AIMS[cell["work"], cell["state"]].items():
        others = [name for name in samples if not name.startswith("sprat") and name not in LIMITS and name != "llm.c's way"]
        names = others if against == "the best peer" else [against]
        there = [name for name in names if name in samples]
        if not there:
            said.append(f"{against}: not measured")
            continue
        best = max(there, key=lambda name: median(samples[name]))
        ratio = ours / median(samples[best])
        cell.setdefault("aims", {})[against] = {"ratio": ratio, "aim": aim, "against": best}
        said.append(f"{ratio:.2f} of {best} (aim {aim:g}: {'reached' if ratio >= aim else 'MISSED'})")
    wrong = {name: sum(s.get("wrong", 0) for s in of_name) for name, of_name in samples.items()}
    said += [f"{count} batches of {name} are WRONG" for name, count in wrong.items() if count]
    return "  -> " + "; ".join(said)
