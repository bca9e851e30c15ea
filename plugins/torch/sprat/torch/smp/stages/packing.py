"""Messages of known form: tensors one after the other in one memory that is used again and again."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import torch

from .program import Form

# As PyTorch's own memory: kernels may add in another order where it lies otherwise.
_ALIGNMENT = 64


class Box:
    """Room for one message. `parts` are views of it, in the layout's order; `flag` is not 0 if the
    sender has failed, and the parts then mean nothing."""

    def __init__(self, layout: Layout):
        self.memory = torch.empty(layout.bytes, dtype=torch.uint8)
        self.flag = self.memory[:8].view(torch.int64)
        self.parts = [_view(self.memory, offset, form)
                      for offset, form in zip(layout.offsets, layout.forms)]

    @property
    def storage(self) -> int:
        return self.memory.untyped_storage().data_ptr()


class Layout:
    """Where each tensor of a message lies. Pure."""

    def __init__(self, forms: Sequence[Form]):
        self.forms = tuple(forms)
        self.offsets: list[int] = []
        end = _ALIGNMENT  # of the flag
        for form in self.forms:
            self.offsets.append(end)
            end += -(-form.bytes // _ALIGNMENT) * _ALIGNMENT
        self.bytes = end


class Boxes:
    """Keeps boxes for the next message of the same channel."""

    def __init__(self) -> None:
        self._free: dict[Hashable, list[Box]] = {}
        self.storages: set[int] = set()  # of all that were made
        self.bytes = 0

    def take(self, channel: Hashable, layout: Layout) -> Box:
        free = self._free.setdefault(channel, [])
        if free:
            return free.pop()
        box = Box(layout)
        self.storages.add(box.storage)
        self.bytes += layout.bytes
        return box

    def give(self, channel: Hashable, box: Box) -> None:
        self._free.setdefault(channel, []).append(box)

    def lent(self, tensor: torch.Tensor) -> bool:
        """Whether the tensor lies in a box, which others will write to."""
        return tensor.untyped_storage().data_ptr() in self.storages


def sent_form(form: Form) -> Form:
    """As it lies in a message: with the strides of its maker if these leave no gaps, for kernels
    may compute other bits from other strides."""
    expected = 1
    for stride, size in sorted(zip(form.stride, form.shape)):
        if size != 1 and stride != expected:
            return Form(form.shape, _contiguous(form.shape), form.dtype, form.requires_grad)
        expected *= size
    return form


def _contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def _view(memory: torch.Tensor, offset: int, form: Form) -> torch.Tensor:
    flat = memory[offset : offset + form.bytes].view(form.dtype)
    return flat.as_strided(form.shape, form.stride)
