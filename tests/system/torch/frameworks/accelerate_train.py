"""Hugging Face accelerate: a training loop as its tutorial has it."""

from __future__ import annotations

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader

import exact
import report

accelerator = Accelerator(cpu=True)
model = exact.model()
optimizer = torch.optim.SGD(model.parameters(), lr=exact.RATE)
loader = DataLoader(exact.dataset(), batch_size=exact.ROWS // accelerator.num_processes)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

losses = []
for step, (inputs, targets) in enumerate(loader):
    report.begin(step)
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(inputs), targets)
    accelerator.backward(loss)
    optimizer.step()
    losses.append(accelerator.gather(loss.detach()).mean())
report.finish(losses, model.parameters())
accelerator.end_training()
