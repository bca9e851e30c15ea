"""SageMaker's data parallel library: DDP over the backend smddp."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

import exact
import report

import smdistributed.dataparallel.torch.torch_smddp  # noqa: F401

dist.init_process_group(backend="smddp")
model = DDP(exact.model())
optimizer = torch.optim.SGD(model.parameters(), lr=exact.RATE)
inputs, targets = exact.rows()

losses = []
for step in range(exact.STEPS):
    report.begin(step)
    share = exact.ROWS // dist.get_world_size()
    begin = exact.ROWS * step + share * dist.get_rank()
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(inputs[begin:begin + share]), targets[begin:begin + share])
    loss.backward()
    optimizer.step()
    total = loss.detach()
    dist.all_reduce(total)
    losses.append(total / dist.get_world_size())
report.finish(losses, model.parameters())
dist.destroy_process_group()
