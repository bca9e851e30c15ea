"""A step's body as a list of operations: plain values, without PyTorch's graphs, that pickle.

Values are numbered: sources first (parameters, buffers, inputs of the batch, constants), then one for
each operation. What an operation returns is its value; of a tuple the operation `getitem` takes one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch.utils import _pytree as pytree

PARAMETER, BUFFER, INPUT, CONSTANT = "parameter", "buffer", "input", "constant"
GETITEM = "getitem"


class Unservable(Exception):
    """Why a step cannot be played by stages. The execution server runs it."""


@dataclass(frozen=True)
class Use:
    """Stands in arguments and results for a value. No tuple: to pytree it is a leaf."""

    value: int


class Source(NamedTuple):
    kind: str
    name: str  # as the model names it; of an input or a constant its number


@dataclass(frozen=True)
class Operation:
    name: str
    target: str  # "aten.linear.default", or getitem
    args: tuple
    kwargs: dict[str, Any] = field(default_factory=dict)
    gradients: bool = True  # whether autograd is on, where the step has it on
    draws: bool = False  # takes numbers from the random generator
    writes: tuple[int, ...] = ()  # values that it changes in place

    def uses(self) -> list[int]:
        """The values it takes, in their order, each once."""
        return list(dict.fromkeys(uses_in((self.args, self.kwargs))))


@dataclass(frozen=True)
class Form:
    """What is known of a tensor without its numbers."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    requires_grad: bool = False

    @property
    def bytes(self) -> int:
        return torch.Size(self.shape).numel() * self.dtype.itemsize


def form_of(tensor: torch.Tensor) -> Form:
    return Form(tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype, tensor.requires_grad)


@dataclass(frozen=True)
class Program:
    """`results`: what the body returns, a tree with Use in the place of tensors."""

    sources: tuple[Source, ...]
    operations: tuple[Operation, ...]
    loss: int | None
    results: Any
    constants: dict[str, torch.Tensor] = field(default_factory=dict)

    def value_of(self, operation: int) -> int:
        return len(self.sources) + operation

    def operation_of(self, value: int) -> int | None:
        """None: it is a source's."""
        return value - len(self.sources) if value >= len(self.sources) else None

    def source_of(self, value: int) -> Source | None:
        return self.sources[value] if value < len(self.sources) else None

    def result_values(self) -> list[int]:
        """What is returned, and the loss; each once."""
        loss = [] if self.loss is None else [self.loss]
        named = [leaf.value for leaf in pytree.tree_leaves(self.results) if isinstance(leaf, Use)]
        return list(dict.fromkeys([*named, *loss]))

    def users(self) -> dict[int, list[int]]:
        """By value, the operations that take it, rising."""
        found: dict[int, list[int]] = {}
        for number, operation in enumerate(self.operations):
            for value in operation.uses():
                found.setdefault(value, []).append(number)
        return found


def uses_in(tree: Any) -> Iterator[int]:
    """The values that a tree of arguments or results names."""
    if isinstance(tree, Use):
        yield tree.value
    elif isinstance(tree, (tuple, list)):
        for inside in tree:
            yield from uses_in(inside)
    elif isinstance(tree, dict):
        for inside in tree.values():
            yield from uses_in(inside)
    elif isinstance(tree, slice):
        yield from uses_in((tree.start, tree.stop, tree.step))


def with_values(tree: Any, change: Callable[[int], Any]) -> Any:
    """The tree with change(value) for each Use."""
    if isinstance(tree, Use):
        return change(tree.value)
    if isinstance(tree, (tuple, list)):
        return type(tree)(with_values(inside, change) for inside in tree)
    if isinstance(tree, dict):
        return {key: with_values(inside, change) for key, inside in tree.items()}
    if isinstance(tree, slice):
        return slice(*(with_values(end, change) for end in (tree.start, tree.stop, tree.step)))
    return tree


def function_of(target: str) -> Callable:
    """What an operation's target calls."""
    if target == GETITEM:
        return lambda values, index: values[index]
    space, name, overload = target.split(".")
    return getattr(getattr(getattr(torch.ops, space), name), overload)
