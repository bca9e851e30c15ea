"""Tries many combinations and says afterwards which failed."""

from __future__ import annotations

from typing import Callable


class Tally:
    """Counts combinations; leaving the `with` block raises if any failed."""

    def __init__(self):
        self.tried, self.failed = 0, []

    def attempt(self, name: str, check: Callable[[], None]) -> None:
        """Every rank must take part in what fails on one, or the next combination hangs."""
        self.tried += 1
        try:
            check()
        except Exception as error:
            self.failed.append((name, " ".join(str(error).split())[:200]))

    def __enter__(self) -> Tally:
        return self

    def __exit__(self, kind, *_) -> None:
        if kind is None and self.failed:
            names = [name for name, _ in self.failed]
            listed = ", ".join(names[:9]) + (", ..." if len(names) > 9 else "")
            raise AssertionError(f"{len(names)} of {self.tried}: {self.failed[0][1]} ({listed})")
