"""A cell of the feature table: a function that every rank of a group calls, and what it is called."""

from __future__ import annotations

from typing import Callable, NamedTuple


class Cell(NamedTuple):
    """One feature; `check(rank, size)` raises on at least one rank if the feature does not work."""

    theme: str
    feature: str
    check: Callable[[int, int], None]
    sizes: tuple[int, ...]  # Numbers of ranks on which the feature is checked.
    deadline: float  # Seconds; a cell that takes longer counts as hung.
    quick: bool  # Whether it belongs to the fixed subset for CI.
    last: bool  # Whether it leaves ranks that nothing else should run on.


class Theme(list[Cell]):
    """The cells of one file, in the order in which they are written."""

    def __init__(self, name: str):
        super().__init__()
        self.name = name

    def cell(self, feature: str, sizes: tuple[int, ...] = (2, 4), deadline: float = 90,
             quick: bool = True, last: bool = False):
        """Registers the function it decorates."""

        def register(check: Callable[[int, int], None]) -> Callable[[int, int], None]:
            self.append(Cell(self.name, feature, check, sizes, deadline, quick, last))
            return check

        return register
