"""Lightning's Fabric with ModelParallelStrategy: fully_shard over a mesh."""

from __future__ import annotations

import os

import torch
from lightning.fabric import Fabric
from lightning.fabric.strategies import ModelParallelStrategy
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader

import exact
import report

DEVICES = int(os.environ.get("WORLD_SIZE", "1"))


def sharded(model: torch.nn.Module, mesh) -> torch.nn.Module:
    return fully_shard(model, mesh=mesh["data_parallel"])


fabric = Fabric(accelerator="cpu", devices=DEVICES,
                strategy=ModelParallelStrategy(sharded, data_parallel_size=DEVICES, tensor_parallel_size=1))
fabric.launch()
model = fabric.setup(exact.model())
optimizer = fabric.setup_optimizers(torch.optim.SGD(model.parameters(), lr=exact.RATE))
loader = fabric.setup_dataloaders(DataLoader(exact.dataset(), batch_size=exact.ROWS // DEVICES))

losses = []
for step, (inputs, targets) in enumerate(loader):
    report.begin(step)
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(inputs), targets)
    fabric.backward(loss)
    optimizer.step()
    losses.append(fabric.all_gather(loss.detach()).mean())
report.finish(losses, [parameter.full_tensor() for parameter in model.parameters()])
