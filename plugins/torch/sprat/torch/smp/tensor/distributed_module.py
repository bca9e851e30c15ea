"""DistributedModule: what every layer is that tensor parallel ranks have parts of."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

from torch import nn


class DistributedModule(nn.Module):
    """A layer cut over tensor parallel ranks, which call it together."""

    @classmethod
    def keywords(cls) -> set[str]:
        """What its constructor takes by name."""
        return set(inspect.signature(cls.__init__).parameters) - {"self"}


def outermost(root: nn.Module) -> Iterator[nn.Module]:
    """The distributed modules that lie in no other one, each once."""
    seen: set[nn.Module] = set()

    def walk(module: nn.Module) -> Iterator[nn.Module]:
        if module in seen:
            return
        seen.add(module)
        if isinstance(module, DistributedModule):
            yield module
            return
        for child in module.children():
            yield from walk(child)

    yield from walk(root)
