"""What model.backward can go back from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.autograd.function import BackwardCFunction


def require_roots(roots: Sequence[Any], given: Sequence[torch.Tensor | None]) -> None:
    """ValueError unless each is a tensor that needs a gradient, and has one or is one number."""
    if len(roots) != len(given):
        raise ValueError(f"model.backward got {len(roots)} tensors and {len(given)} gradients: give one for each")
    for root, gradient in zip(roots, given):
        if not isinstance(root, torch.Tensor) or not root.requires_grad:
            raise ValueError(
                f"model.backward got {describe(root)}: a loss computed from the model's output, "
                "with gradients on, has a path back to its parameters"
            )
        if gradient is None and root.numel() != 1:
            raise ValueError(f"model.backward got a tensor of shape {tuple(root.shape)}, and a loss is one number: take "
                             "its mean or sum, or give its gradient too")


def require_way_back(roots: Sequence[torch.Tensor], module: nn.Module) -> None:
    """ValueError if the tensors depend on none of the model's parameters, here or on other ranks.

    A function of Python's, as that which asks other ranks, may lead to them.
    """
    parameters = {id(one) for one in module.parameters() if one.requires_grad}
    open_ones, seen = [one.grad_fn for one in roots], set()
    while open_ones:
        node = open_ones.pop()
        if node is None or node in seen:
            continue
        if isinstance(node, BackwardCFunction) or id(getattr(node, "variable", None)) in parameters:
            return
        seen.add(node)
        open_ones += [after for after, _ in node.next_functions]
    if parameters and not any(id(one) in parameters for one in roots):
        raise ValueError("model.backward got a loss that depends on no parameter of the model: compute it from the model's "
                         "output, which is neither detached nor computed under torch.no_grad()")


def describe(loss: Any) -> str:
    if isinstance(loss, torch.Tensor):
        return f"a tensor of shape {tuple(loss.shape)} that needs no gradient"
    return f"a {type(loss).__name__}"
