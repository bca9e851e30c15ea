"""What AWS's scripts import of libraries for CUDA, and use only if they are asked to.

Where such a library is not installed its modules are answered with these, so that a script which is
told to do without runs; whatever is done with them says what they want.
"""

from __future__ import annotations

from typing import Any, NoReturn


class Absent:
    """A name of a library that is not here: it can be imported, and cannot be used."""

    def __init__(self, name: str, remedy: str) -> None:
        self._sentence = f"{name} is not installed and needs CUDA: {remedy}"

    def __call__(self, *_: Any, **__: Any) -> NoReturn:
        raise RuntimeError(self._sentence)

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise AttributeError(self._sentence)


FP8 = "leave out fp8 (--fp8 0)"
Format = Absent("transformer_engine.common.recipe.Format", FP8)
DelayedScaling = Absent("transformer_engine.common.recipe.DelayedScaling", FP8)


class CheckpointingException(Exception):
    """Megatron's, which nothing here raises; scripts import it to see whether Megatron is there."""
