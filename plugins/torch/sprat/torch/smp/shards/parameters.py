"""Parameters divided over the ranks of a shard group, whole while a step lasts.

A pipeline's servers run modules in an order of their own, so ranks that share parameters would meet
in a module's gathers in no order at all. They meet once a step instead: all parameters are gathered
at its start, all gradients are reduced at its end.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from ..cutting import stand_in_for


class ParameterShards:
    """This rank's part of each parameter, which an optimizer updates; the ranks have the same list.

    Between steps a parameter has one number for all of its elements, NaN. Parts are flat; the last
    ones are filled up with zeros.
    """

    def __init__(self, named: dict[str, nn.Parameter], shard_group: dist.ProcessGroup,
                 replicate_group: dist.ProcessGroup):
        self._group, self._replicas = shard_group, replicate_group
        self._ranks, self._rank = dist.get_world_size(shard_group), dist.get_rank(shard_group)
        self._named = self.originals = named  # what a part stands for, by name
        self.own = {
            name: nn.Parameter(self.part_of(one.detach()), requires_grad=one.requires_grad)
            for name, one in named.items()
        }
        self._gathered = True
        self._standing: dict[str, int] = {}  # where what stands in for parameters lies
        self.release()

    def share(self, name: str, value: torch.Tensor) -> torch.Tensor:
        """What this rank keeps of a whole value of that parameter."""
        return self.part_of(value)

    def joined(self, name: str, value: torch.Tensor) -> torch.Tensor:
        """The whole value that ranks have shares of. The ranks of the group call it together."""
        return self.whole_of(value, self._named[name].shape)

    def part_of(self, value: torch.Tensor) -> torch.Tensor:
        """This rank's part of a whole value, in memory of its own."""
        length = self._length(value.numel())
        part = value.new_zeros(length)
        rows = value.reshape(-1)[self._rank * length : (self._rank + 1) * length]
        part[: rows.numel()] = rows
        return part

    def whole_of(self, part: torch.Tensor, shape: torch.Size) -> torch.Tensor:
        """The ranks of the group call it together."""
        flat = part.new_empty(part.numel() * self._ranks)
        dist.all_gather_into_tensor(flat, part.contiguous(), group=self._group)
        return flat[: shape.numel()].view(shape)

    def gather(self) -> None:
        """Parameters are whole. Every rank of the group calls it."""
        begun = []
        for name, parameter in self._named.items():
            part = self.own[name].detach()
            flat = part.new_empty(part.numel() * self._ranks)
            work = dist.all_gather_into_tensor(flat, part, group=self._group, async_op=True)
            begun.append((work, flat, parameter))
        for work, flat, parameter in begun:
            work.wait()
            parameter.data = flat[: parameter.numel()].view(parameter.shape)
        self._gathered = True

    def release(self) -> None:
        """Gives the memory of whole parameters back."""
        if self._gathered:
            for name, parameter in self._named.items():
                parameter.data = stand_in_for(parameter)
                self._standing[name] = parameter.data_ptr()
            self._gathered = False

    def lost_values(self) -> str:
        """A parameter that the program has given other values between steps, which gather() would take back."""
        standing = {} if self._gathered else self._standing
        return next((name for name, lies in standing.items() if self._named[name].data_ptr() != lies), "")

    @contextlib.contextmanager
    def whole(self) -> Iterator[None]:
        """Inside, parameters are whole; what is written to them counts."""
        self.gather()
        try:
            yield
            for name, parameter in self._named.items():
                self.own[name].data.copy_(self.part_of(parameter.detach()))
        finally:
            self.release()

    def module_state(self, module: nn.Module, wanted: Callable[[str], bool]) -> dict[str, Any]:
        """Of the module that has the parameters, in whole values, by name. The ranks call it together."""
        with self.whole():
            # Not of others: a copy of what stands in for a parameter takes memory.
            return {name: value.clone() for name, value in module.state_dict().items() if wanted(name)}

    def load_module_state(self, module: nn.Module, values: dict[str, Any], strict: bool) -> None:
        """From whole values."""
        with self.whole():
            module.load_state_dict(values, strict=strict)

    # Of gradients that come while a step lasts, as where a part of the parameters is gathered block by block.

    def begin(self) -> None:
        """Puts aside what stands in .grad."""

    def collected(self) -> dict[int, torch.Tensor]:
        """This step's, by the id of what the part stands for; .grad is what it was."""
        return {}

    def forget(self) -> None:
        """Of a step that failed: .grad is what it was."""

    def settle(self) -> None:
        """Called where a micro-batch waits for another rank."""

    def take_gradients(self, sums: dict[int, torch.Tensor]) -> None:
        """Adds this rank's part of their mean over all replicas to .grad of what it owns."""
        begun = []
        replicas = dist.get_world_size(self._replicas)
        for name, parameter in self._named.items():
            if not parameter.requires_grad:
                continue
            gradient = sums.pop(id(parameter), None)
            flat = parameter.new_zeros(self._length(parameter.numel()) * self._ranks)
            if gradient is not None:
                flat[: parameter.numel()] = gradient.reshape(-1)
            part = flat.new_empty(flat.numel() // self._ranks)
            work = dist.reduce_scatter_tensor(part, flat, group=self._group, async_op=True)
            begun.append((work, part, flat, self.own[name]))
        for work, part, _, own in begun:
            work.wait()
            if replicas > 1:
                dist.all_reduce(part, group=self._replicas)
            part /= self._ranks * replicas
            own.grad = part if own.grad is None else own.grad + part

    def _length(self, elements: int) -> int:
        return -(-elements // self._ranks)
