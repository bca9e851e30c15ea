"""Tensors in memory that the ranks of a host read in place."""

from __future__ import annotations

import torch

from sprat.torch import _native


def empty(*size: int, dtype: torch.dtype | None = None) -> torch.Tensor:
    """An uninitialised CPU tensor that other ranks of this host read without a copy.

    ``size`` as for ``torch.empty``; ``dtype`` defaults to ``torch.get_default_dtype()``. Any CPU
    tensor may be handed to a collective; these are faster. Raises ``DistBackendError`` if the
    machine has no such memory left. Any thread.
    """
    if len(size) == 1 and not isinstance(size[0], int):
        size = tuple(size[0])
    return _native.empty(list(size), dtype or torch.get_default_dtype())


def is_shared(tensor: torch.Tensor) -> bool:
    """Whether the tensor lies in such memory."""
    return _native.is_shared(tensor)


def memory_use() -> dict[str, int]:
    """Bytes of such memory that tensors use (``used``), and that wait for the next (``kept``)."""
    return _native.memory_use()


def release_kept_memory() -> None:
    """Gives memory that no tensor uses back to the system."""
    _native.release_kept_memory()
