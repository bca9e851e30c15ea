"""Marks on modules: which context they were made in."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from torch import nn


class MadeInside:
    """Contexts of one kind, which may lie in each other; a module has the innermost one's value."""

    def __init__(self, attribute: str):
        self._attribute = attribute
        self._values: list[Any] = []

    @contextlib.contextmanager
    def __call__(self, value: Any) -> Iterator[None]:
        self._values.append(value)
        initialise = nn.Module.__init__
        if len(self._values) == 1:

            def marking(module: nn.Module, *args: Any, **kwargs: Any) -> None:
                initialise(module, *args, **kwargs)
                self.mark(module, self._values[-1])

            nn.Module.__init__ = marking
        try:
            yield
        finally:
            self._values.pop()
            if not self._values:
                nn.Module.__init__ = initialise

    def mark(self, module: nn.Module, value: Any) -> None:
        object.__setattr__(module, self._attribute, value)

    def of(self, module: nn.Module, default: Any = None) -> Any:
        """The value that the module was made in, or is marked with."""
        return getattr(module, self._attribute, default)
