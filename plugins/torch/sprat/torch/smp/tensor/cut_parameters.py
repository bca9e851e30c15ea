"""Parameters of which each rank of a tensor parallel group has a slice."""

from __future__ import annotations

import torch
from torch import nn

from . import regions

_DIM = "sprat_cut_dim"


def cut(parameter: nn.Parameter, dim: int, blocks: int = 1) -> nn.Parameter:
    """This rank's slice along dim of the first rank's value, which may be another where seeds differ.

    blocks: so many wholes lie side by side, each of which is cut. The ranks call it together.
    """
    if parameter.is_meta:
        shape = list(parameter.shape)
        shape[dim] //= regions.ranks()
        value = torch.empty(shape, dtype=parameter.dtype, device="meta")
    else:
        value = part_of(regions.of_first_rank(parameter.detach()), dim, blocks)
    made = nn.Parameter(value, requires_grad=parameter.requires_grad)
    setattr(made, _DIM, (dim, blocks))
    return made


def dim_of(parameter: torch.Tensor) -> tuple[int, int] | None:
    """Along which dimension, and in how many blocks, it is cut; None of a whole one."""
    return getattr(parameter, _DIM, None)


def copy_cut(of: torch.Tensor, to: torch.Tensor) -> None:
    """`to` stands for the same slice, or for a share of it."""
    if dim_of(of) is not None:
        setattr(to, _DIM, dim_of(of))


def part_of(value: torch.Tensor, dim: int, blocks: int = 1) -> torch.Tensor:
    """This rank's slice of a whole value, in memory of its own."""
    parts = [regions.slice_of(block, dim) for block in value.chunk(blocks, dim)]
    return torch.cat(parts, dim) if blocks > 1 else parts[0].clone()


def whole_of(value: torch.Tensor, dim: int, blocks: int = 1) -> torch.Tensor:
    """The whole of what each rank has a slice of. The ranks of the group call it together."""
    parts = [regions.join_slices(block, dim) for block in value.chunk(blocks, dim)]
    return torch.cat(parts, dim) if blocks > 1 else parts[0]


def whole_shape(parameter: torch.Tensor) -> tuple[int, ...]:
    """Of the parameter that this is a slice of."""
    shape = list(parameter.shape)
    found = dim_of(parameter)
    if found is not None:
        shape[found[0]] *= regions.ranks()
    return tuple(shape)
