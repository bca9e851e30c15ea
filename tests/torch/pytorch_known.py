"""PyTorch's own tests that fail on sprat, each with its reason; a failure that is not here fails the run."""

from __future__ import annotations

from typing import NamedTuple


class Known(NamedTuple):
    """Why a test fails, and with how many ranks."""

    reason: str
    sizes: tuple[int, ...] = (2, 3, 4)


FAILURES: dict[str, Known] = {}
