"""Functional collectives, as they are and under torch.compile."""

from __future__ import annotations

import shutil

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch.nn.parallel import DistributedDataParallel

from cell import Theme
from cells.exact import alone, network, same, same_parameters, sgd, train
from cells.reference import same_bits

CELLS = Theme("Functional collectives and torch.compile")


def _every_collective(x: torch.Tensor, size: int) -> list[torch.Tensor]:
    """Each functional collective once, of rows that are size times something."""
    group = dist.group.WORLD
    rows = x.shape[0] // size
    return [functional.all_reduce(x * 2, "sum", group) + 1,
            functional.all_reduce(x, "avg", group),
            functional.all_gather_tensor(x, 0, group) * 2,
            functional.reduce_scatter_tensor(x, "sum", 0, group),
            functional.all_to_all_single(x, [rows] * size, [rows] * size, group),
            functional.broadcast(x, 1, group),
            *functional.all_reduce_coalesced([x, x + 1], "sum", group),
            *functional.all_gather_into_tensor_coalesced([x, x + 1], group),
            *functional.reduce_scatter_tensor_coalesced([x, x + 1], "sum", [0, 0], group)]


def _input(rank: int, size: int) -> torch.Tensor:
    return torch.arange(size * 3 * 4.0).reshape(size * 3, 4) + 100 * rank


def _expected(rank: int, size: int) -> list[torch.Tensor]:
    every = [_input(other, size) for other in range(size)]
    total = torch.stack(every).sum(0)
    return [total * 2 + 1, total / size, torch.cat(every) * 2, total.chunk(size)[rank],
            torch.cat([x.chunk(size)[rank] for x in every]), every[1],
            total, total + size, torch.cat(every), torch.cat(every) + 1,
            total.chunk(size)[rank], total.chunk(size)[rank] + size]


def _check(function, rank: int, size: int) -> None:
    for number, (ours, theirs) in enumerate(zip(function(_input(rank, size), size), _expected(rank, size),
                                                strict=True)):
        same(torch.ops._c10d_functional.wait_tensor(ours), theirs, f"result {number}")


@CELLS.cell("functional collectives")
def eager(rank: int, size: int) -> None:
    _check(_every_collective, rank, size)
    columns = functional.all_gather_tensor(_input(rank, size), 1, dist.group.WORLD)  # Dynamo refuses this one.
    same(columns + 0, torch.cat([_input(other, size) for other in range(size)], 1), "gathered columns")


@CELLS.cell("functional collectives with gradients")
def autograd(rank: int, size: int) -> None:
    x = _input(rank, size).requires_grad_()
    gathered = functional.all_gather_tensor_autograd(x, 0, dist.group.WORLD)
    (gathered * (rank + 1)).sum().backward()
    # The gradient of a gather is the scattered sum of every rank's.
    same(x.grad, torch.full_like(x, sum(range(1, size + 1))), "gradient of all_gather")
    x = _input(rank, size).requires_grad_()
    (functional.reduce_scatter_tensor_autograd(x, "sum", 0, dist.group.WORLD) * (rank + 1)).sum().backward()
    weights = torch.arange(1.0, size + 1).repeat_interleave(len(x) // size)[:, None].expand_as(x)
    same(x.grad, weights, "gradient of reduce_scatter")
    x = _input(rank, size).requires_grad_()
    rows = [x.shape[0] // size] * size
    (functional.all_to_all_single_autograd(x, rows, rows, dist.group.WORLD) * (rank + 1)).sum().backward()
    same(x.grad, weights, "gradient of all_to_all")


def _compiled(backend: str, rank: int, size: int) -> None:
    torch._dynamo.reset()
    _check(torch.compile(_every_collective, backend=backend, fullgraph=True), rank, size)


@CELLS.cell("functional collectives, torch.compile(backend=\"eager\")")
def compiled_eager(rank: int, size: int) -> None:
    _compiled("eager", rank, size)


@CELLS.cell("functional collectives, torch.compile(backend=\"aot_eager\")")
def compiled_aot(rank: int, size: int) -> None:
    _compiled("aot_eager", rank, size)


@CELLS.cell("functional collectives, torch.compile(backend=\"inductor\")", deadline=300, quick=False)
def compiled_inductor(rank: int, size: int) -> None:
    assert shutil.which("g++"), "inductor needs g++"
    torch._inductor.config.compile_threads = 1
    _compiled("inductor", rank, size)


def _plain_collectives(x: torch.Tensor) -> torch.Tensor:
    """What torch.compile turns into functional collectives by itself."""
    x = x * 2
    dist.all_reduce(x)
    gathered = torch.empty(dist.get_world_size() * x.shape[0], *x.shape[1:])
    dist.all_gather_into_tensor(gathered, x + 1)
    return gathered - 1


@CELLS.cell("dist.all_reduce and dist.all_gather_into_tensor under torch.compile")
def plain(rank: int, size: int) -> None:
    torch._dynamo.reset()
    output = torch.compile(_plain_collectives, backend="aot_eager", fullgraph=True)(_input(rank, size))
    total = torch.stack([_input(other, size) for other in range(size)]).sum(0) * 2
    same_bits(output, torch.cat([total] * size), "gathered sums")


@CELLS.cell("DDP under torch.compile")
def ddp(rank: int, size: int) -> None:
    torch._dynamo.reset()
    model = DistributedDataParallel(network())
    train(torch.compile(model, backend="aot_eager"), sgd(model), rank, size)
    same_parameters(model.module, alone(size))
