"""Lightning's Fabric: a loop of one's own, DDP."""

from __future__ import annotations

import os

import torch
from lightning.fabric import Fabric
from torch.utils.data import DataLoader

import exact
import report

DEVICES = int(os.environ.get("WORLD_SIZE", "1"))

fabric = Fabric(accelerator="cpu", devices=DEVICES, strategy="ddp" if DEVICES > 1 else "auto")
fabric.launch()
model = exact.model()
model, optimizer = fabric.setup(model, torch.optim.SGD(model.parameters(), lr=exact.RATE))
loader = fabric.setup_dataloaders(DataLoader(exact.dataset(), batch_size=exact.ROWS // DEVICES))

losses = []
for step, (inputs, targets) in enumerate(loader):
    report.begin(step)
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(inputs), targets)
    fabric.backward(loss)
    optimizer.step()
    losses.append(fabric.all_gather(loss.detach()).mean())
report.finish(losses, model.parameters())
