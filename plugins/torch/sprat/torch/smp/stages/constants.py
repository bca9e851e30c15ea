"""Numbers of tensors that depend on nothing but the program's text, known while a step is captured.

Models look at such numbers: whether positions, an arange, are those of packed sequences. Export knows no
numbers of tensors with more than one element, and takes another way than eager, or none.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch._subclasses import fake_tensor
from torch.fx.experimental import proxy_tensor
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

MOST_ELEMENTS = 2**22
_MADE_OF_NOTHING = frozenset({
    torch.arange, torch.eye, torch.full, torch.linspace, torch.ones, torch.tensor, torch.zeros
})


class _Constants(TorchFunctionMode):
    """Gives what is made of plain values its numbers, which FakeTensorMode then carries on."""

    def __torch_function__(self, function: Any, types: Any, args: tuple = (),
                           kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        made = function(*args, **kwargs)
        if function in _MADE_OF_NOTHING and isinstance(made, fake_tensor.FakeTensor):
            plain = not any(isinstance(leaf, (torch.Tensor, torch.SymInt))
                            for leaf in pytree.tree_leaves((args, kwargs)))
            if plain and made.constant is None and made.numel() <= MOST_ELEMENTS:
                with _disable_current_modes(), torch._C.DisableTorchFunction():
                    made.constant = function(*args, **kwargs)
        return made


@contextlib.contextmanager
def knowing_constants() -> Iterator[None]:
    places = (fake_tensor, proxy_tensor)
    kept = [place.CONSTANT_NUMEL_LIMIT for place in places]
    for place in places:
        place.CONSTANT_NUMEL_LIMIT = MOST_ELEMENTS
    try:
        with _Constants():
            yield
    finally:
        for place, limit in zip(places, kept):
            place.CONSTANT_NUMEL_LIMIT = limit
