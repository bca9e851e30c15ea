"""Random streams: the one that all ranks share, and the one of each tensor-parallel rank."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from .state import state


@contextlib.contextmanager
def tensor_parallel_random() -> Iterator[None]:
    """Draws from this tensor-parallel rank's random stream, seeded with `random_seed` + tp_rank.

    For what is split over tensor-parallel ranks, such as dropout between two split layers; all else
    draws the same numbers on each of them. The stream continues from one use to the next.
    """
    generators = _generators()
    kept = [generator.get_rng_state() for generator in generators]
    _set_states(generators, state.tensor_parallel_generators)
    try:
        yield
    finally:
        state.tensor_parallel_generators = [generator.get_rng_state() for generator in generators]
        _set_states(generators, kept)


def begin_streams(seed: int | None) -> None:
    """Seeds ranks alike, for equal parameters, and begins the tensor-parallel stream."""
    if seed is not None:
        torch.manual_seed(seed)
    own_seed = torch.initial_seed() + state.tp_rank
    generators = _generators()
    kept = [generator.get_rng_state() for generator in generators]
    for generator in generators:
        generator.manual_seed(own_seed)
    state.tensor_parallel_generators = [generator.get_rng_state() for generator in generators]
    _set_states(generators, kept)


def _generators() -> list[Any]:
    """The modules that hold the random generators of the CPU and of the mesh's device."""
    device_type = state.mesh.device_type
    return (
        [torch.random]
        if device_type == "cpu"
        else [torch.random, torch.get_device_module(device_type)]
    )


def _set_states(generators: list[Any], states: list[torch.Tensor]) -> None:
    for generator, its_state in zip(generators, states, strict=True):
        generator.set_rng_state(its_state)
