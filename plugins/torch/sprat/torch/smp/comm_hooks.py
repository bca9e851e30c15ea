"""Hooks of communication, as DistributedDataParallel takes them: how a bucket becomes a mean."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class CommHook:
    """A function of (state, bucket) that returns a future of the bucket's mean over ranks."""

    state: Any
    function: Callable[[Any, Any], torch.futures.Future]


class Bucket:
    """Gradients that travel at once, as torch's hooks of communication take them."""

    def __init__(self, index: int, buffer: torch.Tensor, parameters: list[torch.Tensor], last: bool):
        self._index, self._buffer, self._parameters, self._last = index, buffer, parameters, last

    def index(self) -> int:
        return self._index

    def buffer(self) -> torch.Tensor:
        return self._buffer

    def set_buffer(self, buffer: torch.Tensor) -> None:
        self._buffer = buffer

    def parameters(self) -> list[torch.Tensor]:
        return self._parameters

    def gradients(self) -> list[torch.Tensor]:
        sizes = [one.numel() for one in self._parameters]
        return [part.view_as(one) for part, one in zip(self._buffer.split(sizes), self._parameters)]

    def is_last(self) -> bool:
        return self._last


def averaged(result: Any) -> torch.Tensor:
    """The tensor of what a hook's future holds: the tensor, or a list of it."""
    return result[0] if isinstance(result, (list, tuple)) else result
