"""A small network whose arithmetic is exact, and its training in one process.

Weights and inputs are small integers, the loss is linear in the outputs, and counts and learning rate are powers of
two: for two steps of f64 (one of f32, the gradients of bf16 and f16) every product and every sum is representable.
The order of a sum then cannot matter, and what ranks train must equal what one process trains bit by bit.
"""

from __future__ import annotations

from typing import Iterable

import torch
from torch import nn

ROWS = 4  # Of each rank's part of a batch.
WIDTH = 8
RATE = 0.125


def integers(*shape: int, seed: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """-1, 0 and 1, drawn by the seed."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-1, 2, shape, generator=generator).to(dtype)


class Block(nn.Module):
    """Linear and ReLU: what is sharded, pipelined and replaced as one."""

    def __init__(self, inputs: int, outputs: int):
        super().__init__()
        self.linear = nn.Linear(inputs, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.linear(x))


def network(dtype: torch.dtype = torch.float64, blocks: int = 3, hidden: int = WIDTH) -> nn.Sequential:
    """The same on every rank."""
    widths = [WIDTH] + [hidden] * (blocks - 1) + [WIDTH]
    model = nn.Sequential(*(Block(widths[i], widths[i + 1]) for i in range(blocks))).to(dtype)
    with torch.no_grad():
        for number, parameter in enumerate(model.parameters()):
            parameter.copy_(integers(*parameter.shape, seed=number))
    return model


def batch(step: int, size: int, dtype: torch.dtype = torch.float64):
    """Inputs and the weights of the outputs in the loss, for all ranks together."""
    shape = (ROWS * size, WIDTH)
    return integers(*shape, seed=100 + step, dtype=dtype), integers(*shape, seed=200 + step, dtype=dtype)


def share(tensor: torch.Tensor, rank: int, size: int) -> torch.Tensor:
    return tensor.chunk(size)[rank]


def loss(outputs: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """The mean over rows of a weighted sum."""
    return (outputs * weights).sum() / len(outputs)


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=RATE)


def train(model: nn.Module, optimizer: torch.optim.Optimizer, rank: int, size: int, steps: int = 2,
          dtype: torch.dtype = torch.float64, shares: int | None = None) -> None:
    """Trains on this rank's part of batches that have `shares` shares of rows, one a rank unless told otherwise."""
    for step in range(steps):
        inputs, weights = (share(t, rank, size) for t in batch(step, shares or size, dtype))
        loss(model(inputs), weights).backward()
        optimizer.step()
        optimizer.zero_grad()


def alone(size: int, steps: int = 2, dtype: torch.dtype = torch.float64, blocks: int = 3,
          hidden: int = WIDTH, optimizer_of=sgd) -> nn.Sequential:
    """The network that one process has after training on the whole batches of `size` ranks."""
    model = network(dtype, blocks, hidden)
    train(model, optimizer_of(model), 0, 1, steps, dtype, shares=size)
    return model


def gradients(model: nn.Module, rows: Iterable[tuple[torch.Tensor, torch.Tensor]]) -> list[torch.Tensor]:
    """The sum of the gradients of several batches, in one process."""
    for inputs, weights in rows:
        loss(model(inputs), weights).backward()
    return [parameter.grad for parameter in model.parameters()]


def same(actual: torch.Tensor, expected: torch.Tensor, what: str = "tensor") -> None:
    """Raises unless both hold the same values; NaN equals NaN."""
    torch.testing.assert_close(actual, expected, rtol=0, atol=0, equal_nan=True,
                               msg=lambda text: f"{what}: {text}")


def same_parameters(actual: nn.Module, expected: nn.Module) -> None:
    """As `same`, of each parameter, whole where it is sharded."""
    for (name, ours), theirs in zip(actual.named_parameters(), expected.parameters(), strict=True):
        whole = ours.full_tensor() if hasattr(ours, "full_tensor") else ours
        same(whole.detach(), theirs.detach(), name)


def close(actual: torch.Tensor, expected: torch.Tensor, terms: int, what: str = "tensor") -> None:
    """Raises unless the largest difference is at most `terms` roundings of the largest expected value.

    `terms` is the length of the longest chain of additions and products that leads to an element: computed in two
    orders, it differs by at most that many units of rounding of the largest value on the way (Higham, 4.2).
    """
    limit = terms * torch.finfo(expected.dtype).eps * max(1.0, expected.abs().max().item())
    difference = (actual - expected).abs().max().item()
    assert difference <= limit, f"{what} differs by {difference:.3g}, more than {limit:.3g}"
