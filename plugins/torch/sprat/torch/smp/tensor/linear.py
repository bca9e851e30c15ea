"""Linear layers cut over the ranks of a tensor parallel group, by rows or by columns of W x."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from . import regions
from .cut_parameters import cut
from .distributed_module import DistributedModule
from .sequence import Hidden, leave, shared


class ColumnLinear(DistributedModule):
    """Each rank computes its slice of the output's features, from the whole input.

    gathers: every rank gets the whole output, else its slice. blocks: so many outputs lie side by
    side, as query, key and value of one layer, and each is cut. enters: the input is a value that
    all have; else the caller has brought it in.
    """

    def __init__(self, inside: nn.Linear, gathers: bool = False, blocks: int = 1,
                 enters: bool = True):
        super().__init__()
        self.in_features, self.out_features = inside.in_features, inside.out_features
        self.weight = cut(inside.weight, 0, blocks)
        self.bias = None if inside.bias is None else cut(inside.bias, 0, blocks)
        self.gathers, self.enters = gathers, enters

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = regions.enter(x) if self.enters else x
        y = functional.linear(x, self.weight, self.bias)
        return regions.whole(y) if self.gathers else y

    def reset_parameters(self) -> None:
        nn.Linear.reset_parameters(self)

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.out_features}, of {regions.ranks()} ranks"


class RowLinear(DistributedModule):
    """Each rank multiplies its slice of the input's features; all get the sum.

    takes_part: the input is a slice already, as a ColumnLinear gives it; else it is cut here.
    """

    def __init__(self, inside: nn.Linear, takes_part: bool = True):
        super().__init__()
        self.in_features, self.out_features = inside.in_features, inside.out_features
        self.weight = cut(inside.weight, 1)
        self.bias = inside.bias
        self.takes_part = takes_part

    def forward(self, x: torch.Tensor, sum_for: Hidden | None = None) -> torch.Tensor:
        """sum_for: gives the sum in that form, this rank's positions or whole."""
        slices = x if self.takes_part else regions.part(x)
        form = x if sum_for is None else sum_for
        y = leave(form, functional.linear(slices, self.weight))
        return y if self.bias is None else y + shared(form, self.bias)

    reset_parameters = ColumnLinear.reset_parameters
    extra_repr = ColumnLinear.extra_repr


class DistributedLinear(RowLinear):
    """SMP's: whole input in, whole output out; the weight is cut along the input's features."""

    def __init__(self, in_features: int, out_features: int, bias: bool = True,
                 inside: nn.Linear | None = None):
        require_divides("in_features", in_features)
        super().__init__(inside or nn.Linear(in_features, out_features, bias), takes_part=False)


class CutConv1D(DistributedModule):
    """The linear layer of GPT-2 in transformers, whose weight is [input, output]."""

    def __init__(self, inside: nn.Module):
        super().__init__()
        self.weight, self.bias, self.nf = cut(inside.weight, 0), inside.bias, inside.nf

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return regions.leave(regions.part(x) @ self.weight) + self.bias

    def reset_parameters(self) -> None:
        nn.init.normal_(self.weight, std=0.02)
        nn.init.zeros_(self.bias)


def require_divides(name: str, number: int) -> None:
    if number % regions.ranks() != 0:
        raise ValueError(
            f"{name} = {number} is not a multiple of tensor_parallel_degree = {regions.ranks()}: "
            "choose another size, or leave the layer whole"
        )
