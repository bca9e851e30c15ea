"""Lets ``torch.distributed`` know the backend "sprat" from ``import torch`` on.

PyTorch calls ``autoload()`` by this package's entry point, in every program of the environment that
imports it. So it loads nothing: the native module comes with the first group. Below
``python -m sprat.torch.run`` it also puts sprat in gloo's place.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from typing import Any


class Devices(Sequence):
    """The devices whose tensors the backend takes, found out when a group is made."""

    def _listed(self) -> list[str]:
        from sprat.torch.backend import devices

        return devices()

    def __getitem__(self, index: Any) -> Any:
        return self._listed()[index]

    def __len__(self) -> int:
        return len(self._listed())


def autoload() -> None:
    """What PyTorch calls. Whatever happens here, ``import torch`` goes on."""
    try:
        register()
        # Read here too, so that a program which does not want it imports nothing more.
        if os.environ.get("TORCH_RUN_ON_SPRAT", "0") not in ("", "0"):
            run_on_sprat()
    except Exception as error:  # of PyTorch's internals, which change
        warnings.warn(f"torch.distributed was not told of the backend sprat: {error!r}", stacklevel=2)


def run_on_sprat() -> None:
    """In a process that a program under ``python -m sprat.torch.run`` has started."""
    import torch.distributed as dist

    asked = os.environ["TORCH_RUN_ON_SPRAT"]
    if not dist.is_available():
        return
    if asked.startswith("sagemaker"):
        from sprat.sagemaker import answer, distribution_of

        answer(distribution_of(asked))
    else:
        from sprat.replacement import take_the_place_of

        take_the_place_of("gloo")


def register() -> None:
    """Makes ``torch.distributed`` know the backend; again does nothing."""
    import torch.distributed as dist

    if dist.is_available() and not hasattr(dist.Backend, "SPRAT"):
        dist.Backend.register_backend("sprat", _create, extended_api=True, devices=["cpu"])
        # Put in afterwards, since register_backend() looks at what it is given.
        dist.Backend.backend_capability["sprat"] = Devices()


def _create(options: Any, backend_options: Any = None) -> Any:
    from sprat.torch.backend import create

    return create(options, backend_options)
