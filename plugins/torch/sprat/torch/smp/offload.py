"""Activation offload under SMP's names: of a script's root module, and of checkpointed layers."""

from __future__ import annotations

import os
from typing import Any

import torch
from torch import nn

from .activation_store import ActivationStore
from .state import state


class OffloadWrapper(nn.Module):
    """Calls the module; what autograd saves of it lies in a file until backward."""

    def __init__(self, module: nn.Module, store: ActivationStore):
        super().__init__()
        self.module = module
        self.store = store

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        self.store.end_step()
        if not torch.is_grad_enabled():
            return self.module(*args, **kwargs)
        with self.store.hooks():
            output = self.module(*args, **kwargs)
        self.store.begin_backward()
        return output

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.module, name)


def offload_wrapper(module: nn.Module, folder: str | os.PathLike | None = None) -> OffloadWrapper:
    """SMP v2's: around the root module, whose layers are checkpointed, so that their inputs leave.

    folder: on a disk; by default where temporary files are (TMPDIR). At most
    activation_loading_horizon inputs are in memory at a time. ValueError for a module on an
    accelerator, whose tensors torch.autograd.graph.save_on_cpu moves.
    """
    require_cpu(module)
    return OffloadWrapper(module, ActivationStore(folder, state.config["activation_loading_horizon"]))


def require_cpu(module: nn.Module) -> None:
    for name, parameter in module.named_parameters():
        if parameter.device.type not in ("cpu", "meta"):
            raise ValueError(
                f"activations of the CPU are offloaded, and parameter {name!r} is on "
                f"{parameter.device}: use torch.autograd.graph.save_on_cpu there"
            )
