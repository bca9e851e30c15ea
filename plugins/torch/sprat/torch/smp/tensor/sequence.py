"""Activations between cut layers: whole on each rank, or each rank with a part of the sequence.

`optimize: speed` has them whole. Under `optimize: memory` what norms, dropouts and residuals keep for
backward is divided by the ranks; where a cut layer begins the parts are gathered, and where it ends
its sums are scattered: together the bytes of the one sum that they replace.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional

from ..state import state
from . import regions

_AXIS = 1  # of [batch, positions, features]


class SequencePart(NamedTuple):
    """This rank's positions; it travels between ranks of a pipeline as tuples do."""

    values: torch.Tensor


Hidden = torch.Tensor | SequencePart


def values_of(hidden: Hidden) -> torch.Tensor:
    return hidden.values if isinstance(hidden, SequencePart) else hidden


def like(hidden: Hidden, values: torch.Tensor) -> Hidden:
    """The values in the form of `hidden`."""
    return SequencePart(values) if isinstance(hidden, SequencePart) else values


def in_parts(hidden: Hidden) -> Hidden:
    """For layers one after another, as `optimize` says; whole if the ranks do not divide it."""
    if isinstance(hidden, SequencePart) or regions.ranks() == 1:
        return hidden
    memory = state.config.get("optimize") == "memory"
    if not memory or hidden.shape[_AXIS] % regions.ranks() != 0:
        return hidden
    return SequencePart(regions.part(hidden, _AXIS))


def as_given(given: Hidden, hidden: Hidden) -> Hidden:
    """What in_parts(given) has become, in the form of what was given."""
    if isinstance(given, SequencePart) or not isinstance(hidden, SequencePart):
        return hidden
    return regions.whole(hidden.values, _AXIS)


def enter(hidden: Hidden) -> torch.Tensor:
    """Whole, for a cut layer, which uses it in another way on each rank."""
    if isinstance(hidden, SequencePart):
        return regions.whole_in_parts(hidden.values, _AXIS)
    return regions.enter(hidden)


def leave(hidden: Hidden, term: torch.Tensor) -> torch.Tensor:
    """The sum of the ranks' terms of a whole, in the form of `hidden`."""
    if isinstance(hidden, SequencePart):
        return regions.part_of_sum(term, _AXIS)
    return regions.leave(term)


def shared(hidden: Hidden, parameter: torch.Tensor) -> torch.Tensor:
    """A parameter that all ranks have, for use with values of that form."""
    return regions.enter(parameter) if isinstance(hidden, SequencePart) else parameter


def dropped(hidden: Hidden, probability: float, training: bool) -> Hidden:
    """The same positions and features as of the whole, and the same random numbers afterwards."""
    x = values_of(hidden)
    if not training or probability == 0:
        return hidden
    if not isinstance(hidden, SequencePart):
        return functional.dropout(x, probability)
    batch, positions, features = x.shape
    mask = functional.dropout(x.new_ones(batch, positions * regions.ranks(), features), probability)
    return SequencePart(x * regions.slice_of(mask, _AXIS))


class Norm(nn.LayerNorm):
    """Of either form."""

    def forward(self, hidden: Hidden) -> Hidden:
        x = functional.layer_norm(values_of(hidden), self.normalized_shape,
                                  shared(hidden, self.weight), shared(hidden, self.bias), self.eps)
        return like(hidden, x)
