"""The modules and parameters that were split: whether they are still those."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn


class HeldTree:
    """Remembers them, with the parameters' shapes."""

    def __init__(self, module: nn.Module):
        self._module = module
        self._objects = list(_objects(module))
        self._shapes = _shapes(self._objects)
        self._names = dict(_named(module))

    def change(self) -> str:
        """The first thing that is another one now, and how; or the empty text."""
        here = list(_objects(self._module))
        same = len(here) == len(self._objects) and all(map(operator.is_, here, self._objects))
        if same and _shapes(here) == self._shapes:
            return ""
        names = dict(_named(self._module))
        for name, one in names.items():
            if name not in self._names:
                return f"{name} is new"
            if one is not self._names[name]:
                return f"{name} is another {'tensor' if isinstance(one, torch.Tensor) else 'module'}"
        for name in self._names:
            if name not in names:
                return f"{name} is gone"
        for one, before in zip((one for one in here if isinstance(one, torch.Tensor)), self._shapes):
            if one.shape != before:
                name = next(name for name, other in names.items() if other is one)
                return f"{name} has shape {tuple(one.shape)}, and had {tuple(before)}"
        return "their order"


def _objects(module: nn.Module) -> Iterator[Any]:
    for inside in module.modules():
        yield inside
        yield from inside._parameters.values()


def _shapes(objects: list[Any]) -> list[torch.Size]:
    return [one.shape for one in objects if isinstance(one, torch.Tensor)]


def _named(module: nn.Module) -> Iterator[tuple[str, Any]]:
    """Parameters before the module that has them, which is told only where they are the same."""
    for name, inside in module.named_modules():
        for key, parameter in inside._parameters.items():
            yield f"{name}.{key}" if name else key, parameter
        yield name, inside
