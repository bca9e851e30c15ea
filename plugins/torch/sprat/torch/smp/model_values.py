"""Values of parameters, or of their shapes as optimizers keep them: whole, a slice, a share."""

from __future__ import annotations

from typing import Any

from torch import nn

from .shards.parameters import ParameterShards
from .tensor.cut_parameters import dim_of, part_of, whole_of, whole_shape


class ModelValues:
    """Turns values of one form into another, by their parameters' names; other values stay.

    A whole value is the plain module's. Tensor parallel ranks have slices of it, and replicas that
    share parameters have shares of a slice.
    """

    def __init__(self, named: dict[str, nn.Parameter], shards: ParameterShards | None = None):
        self._named = named
        self.shards = shards

    def gathered(self, name: str, value: Any) -> Any:
        """The slice that this rank has a share of. The ranks that share it call together."""
        own = self.shards.own.get(name) if self.shards is not None else None
        if own is None or getattr(value, "shape", None) != own.shape:
            return value
        return self.shards.joined(name, value)

    def whole(self, name: str, value: Any) -> Any:
        """The whole that this rank has a slice of. Tensor parallel ranks call together."""
        parameter = self._named.get(name)
        found = None if parameter is None else dim_of(parameter)
        if found is None or getattr(value, "shape", None) != parameter.shape:
            return value
        return whole_of(value, *found)

    def part(self, name: str, value: Any) -> Any:
        """This rank's slice of a whole."""
        parameter = self._named.get(name)
        found = None if parameter is None else dim_of(parameter)
        if found is None or tuple(getattr(value, "shape", ())) != whole_shape(parameter):
            return value
        return part_of(value, *found)

    def share(self, name: str, value: Any) -> Any:
        """Of a whole or of a slice what this rank keeps."""
        value = self.part(name, value)
        parameter = self._named.get(name)
        if self.shards is None or parameter is None:
            return value
        if getattr(value, "shape", None) != parameter.shape:
            return value
        return self.shards.share(name, value)
