"""SageMaker's model parallel library, version 1: a pipeline whose shape the estimator says."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn

import report

import smdistributed.modelparallel.torch as smp

STEPS, ROWS, WIDTH = 4, 8, 16

smp.init()
torch.manual_seed(7)
model = smp.DistributedModel(nn.Sequential(nn.Linear(WIDTH, 64), nn.Tanh(), nn.Linear(64, WIDTH), nn.Linear(WIDTH, 1)))
optimizer = smp.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))


@smp.step
def train_step(model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    loss = nn.functional.mse_loss(model(inputs), targets)
    model.backward(loss)
    return loss


generator = torch.Generator().manual_seed(5)
inputs, targets = torch.randn(ROWS, WIDTH, generator=generator), torch.randn(ROWS, 1, generator=generator)
losses = []
for step in range(STEPS):
    report.begin(step)
    optimizer.zero_grad()
    losses.append(train_step(model, inputs, targets).reduce_mean().item())
    optimizer.step()
smp.barrier(smp.WORLD)
report.finish(losses, [])
dist.destroy_process_group()
