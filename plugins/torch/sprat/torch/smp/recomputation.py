"""Activation checkpointing: forwards that keep their inputs alone, and run again in backward."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint as recompute

from .activation_store import ActivationStore

_store: ActivationStore | None = None


def offload_inputs(store: ActivationStore | None) -> None:
    """From here on inputs of checkpointed layers go to the store; with None they stay."""
    global _store
    _store = store


def checkpoint(module: nn.Module, *args: Any, preserve_rng_state: bool = True) -> Any:
    """The module's output, of which backward computes again what it needs. The bits are the same."""
    return _recomputed(module, *args, preserve_rng_state=preserve_rng_state)


def checkpoint_sequential(
    sequential: nn.Sequential,
    inputs: torch.Tensor | tuple,
    strategy: str = "each",
    preserve_rng_state: bool = True,
    pack_args_as_tuple: bool = False,
) -> Any:
    """The output of nn.Sequential, whose layers are recomputed group by group.

    strategy: "each" layer by itself; "contiguous", all that lie side by side on one rank;
    "group_N", N at a time. pack_args_as_tuple: a layer's tuple is one argument of the next, else
    so many. ValueError for another strategy.
    """
    value = inputs
    for layers in _groups(list(sequential), strategy):
        function = functools.partial(_through, layers, pack_args_as_tuple)
        value = _recomputed(function, value, preserve_rng_state=preserve_rng_state)
    return value


def set_activation_checkpointing(
    module: nn.Module,
    preserve_rng_state: bool = True,
    pack_args_as_tuple: bool = False,
    strategy: str = "each",
) -> None:
    """From here on the module's forward is recomputed; of nn.Sequential as checkpoint_sequential.

    Before the first step. ValueError for a strategy that there is not.
    """
    forward = module.forward
    if isinstance(module, nn.Sequential):
        _groups(list(module), strategy)

        def again(value: Any) -> Any:
            return checkpoint_sequential(
                module, value, strategy, preserve_rng_state, pack_args_as_tuple
            )

    else:

        def again(*args: Any, **kwargs: Any) -> Any:
            return _recomputed(forward, *args, preserve_rng_state=preserve_rng_state, **kwargs)

    module.forward = functools.wraps(forward)(again)


def _recomputed(function: Callable, *args: Any, preserve_rng_state: bool, **kwargs: Any) -> Any:
    # Of what is saved while it runs, the inputs alone are autograd's: the rest is computed again.
    with _store.hooks() if _store is not None else contextlib.nullcontext():
        return recompute(function, *args, use_reentrant=False,
                         preserve_rng_state=preserve_rng_state, **kwargs)


def _groups(layers: list[nn.Module], strategy: str) -> list[list[nn.Module]]:
    if strategy == "each":
        size = 1
    elif strategy == "contiguous":
        size = max(1, len(layers))
    elif strategy.startswith("group_") and strategy[6:].isdecimal() and int(strategy[6:]) > 0:
        size = int(strategy[6:])
    else:
        raise ValueError(
            f"strategy = {strategy!r}: take each, contiguous or group_N, as in group_2"
        )
    return [layers[first : first + size] for first in range(0, len(layers), size)]


def _through(layers: list[nn.Module], pack: bool, value: Any) -> Any:
    for layer in layers:
        value = layer(value) if pack or not isinstance(value, tuple) else layer(*value)
    return value
