"""A regression whose training is exact in f32: the same bits however its rows are spread over ranks.

Inputs are -1, 0 and 1, targets small integers, and the rate times 2 / ROWS is 1/16: each step adds four
bits to the weights, and STEPS of them leave every product and sum within the 24 bits of f32.
"""

from __future__ import annotations

import torch
from torch import nn

STEPS, ROWS, WIDTH = 3, 8, 8  # Rows of one step, over all ranks.
RATE = 0.25


def model() -> nn.Linear:
    linear = nn.Linear(WIDTH, 1, bias=False)
    nn.init.zeros_(linear.weight)
    return linear


def rows() -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs and targets; step s takes ROWS of them from ROWS * s on."""
    generator = torch.Generator().manual_seed(3)
    inputs = torch.randint(-1, 2, (STEPS * ROWS, WIDTH), generator=generator).float()
    return inputs, inputs @ torch.tensor([[1.0], [-1], [2], [0], [1], [-2], [0], [1]])


def dataset() -> torch.utils.data.TensorDataset:
    return torch.utils.data.TensorDataset(*rows())
