"""Distributed checkpoints: saved, loaded into other shards, and saved beside training."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import contextmanager
from typing import Iterator

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint
from torch import nn
from torch.distributed.checkpoint.state_dict import (StateDictOptions, get_optimizer_state_dict, get_state_dict,
                                                     set_state_dict)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

from cell import Theme
from cells.exact import alone, integers, network, same, same_parameters, train

CELLS = Theme("Distributed checkpoint")


@contextmanager
def _folder(rank: int) -> Iterator[str]:
    """A folder of all ranks, gone afterwards."""
    names = [tempfile.mkdtemp(prefix="checkpoint.") if rank == 0 else None]
    dist.broadcast_object_list(names)
    try:
        yield names[0]
        dist.barrier()
    finally:
        if rank == 0:
            shutil.rmtree(names[0], ignore_errors=True)


def _model(size: int) -> nn.Sequential:
    model = network()
    mesh = init_device_mesh("cpu", (size,))
    for block in model:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def _momentum(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.125, momentum=0.5)


def _expected(size: int) -> nn.Sequential:
    return alone(size, 2, optimizer_of=_momentum)


@CELLS.cell("save and load: FSDP2 model and optimizer")
def save_and_load(rank: int, size: int) -> None:
    model = _model(size)
    optimizer = _momentum(model)
    train(model, optimizer, rank, size)
    with _folder(rank) as folder:
        weights, state = get_state_dict(model, optimizer)
        checkpoint.save({"model": weights, "optimizer": state}, checkpoint_id=folder)
        other = _model(size)
        empty = _momentum(other)
        weights, state = get_state_dict(other, empty)
        checkpoint.load({"model": weights, "optimizer": state}, checkpoint_id=folder)
        set_state_dict(other, empty, model_state_dict=weights, optim_state_dict=state)
    same_parameters(other, _expected(size))
    for ours, theirs in zip(empty.state.values(), optimizer.state.values(), strict=True):
        same(ours["momentum_buffer"].full_tensor(), theirs["momentum_buffer"].full_tensor(), "momentum")


@CELLS.cell("load into shards of another shape")
def reshard(rank: int, size: int) -> None:
    mesh = init_device_mesh("cpu", (size,))
    whole = integers(4 * size + 1, 6, seed=11)
    with _folder(rank) as folder:
        checkpoint.save({"tensor": distribute_tensor(whole, mesh, [Shard(0)])}, checkpoint_id=folder)
        for placement in (Shard(1), Replicate()):
            target = {"tensor": distribute_tensor(torch.zeros_like(whole), mesh, [placement])}
            checkpoint.load(target, checkpoint_id=folder)
            same(target["tensor"].full_tensor(), whole, str(placement))


@CELLS.cell("async_save beside training")
def async_save(rank: int, size: int) -> None:
    """What is saved is the state at the call, though training goes on; its collectives are in a group of its own."""
    group = dist.new_group()
    model = _model(size)
    optimizer = _momentum(model)
    train(model, optimizer, rank, size)
    with _folder(rank) as folder:
        future = checkpoint.async_save({"model": model.state_dict()}, checkpoint_id=folder, process_group=group)
        train(model, optimizer, rank, size)
        future.result()
        other = _model(size)
        state = {"model": other.state_dict()}
        checkpoint.load(state, checkpoint_id=folder)
        other.load_state_dict(state["model"])
    same_parameters(other, _expected(size))


@CELLS.cell("full optimizer state on rank 0")
def full_optimizer_state(rank: int, size: int) -> None:
    model = _model(size)
    optimizer = _momentum(model)
    train(model, optimizer, rank, size)
    state = get_optimizer_state_dict(model, optimizer,
                                     options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    if rank == 0:
        expected = network()
        reference = _momentum(expected)
        train(expected, reference, 0, 1, shares=size)
        for (name, _), theirs in zip(expected.named_parameters(), reference.state.values(), strict=True):
            same(state["state"][name]["momentum_buffer"], theirs["momentum_buffer"], name)
