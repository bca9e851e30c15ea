"""SageMaker's model parallel library, version 2: FSDP over as many ranks as the estimator says."""

from __future__ import annotations

import os
import tempfile

import torch
import torch.distributed as dist
import torch.sagemaker as tsm
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.sagemaker.distributed.checkpoint.state_dict_loader import load
from torch.sagemaker.distributed.checkpoint.state_dict_saver import save
from torch.sagemaker.grad_norm import clip_grad_norm_

import exact
import report

dist.init_process_group("nccl")
tsm.init()
if tsm.state.hybrid_shard_degree != dist.get_world_size():
    raise AssertionError(f"the estimator's degree did not arrive: it is {tsm.state.hybrid_shard_degree}")
model = FSDP(tsm.transform(exact.model()), device_id=torch.device("cpu"), use_orig_params=True)
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
    clip_grad_norm_(model, 1e6)  # Above every norm here, so that it rounds nothing.
    optimizer.step()
    total = loss.detach()
    dist.all_reduce(total)
    losses.append(total / dist.get_world_size())

folder = [tempfile.mkdtemp()]
dist.broadcast_object_list(folder)
save({"losses": torch.stack(losses)}, checkpoint_id=os.path.join(folder[0], "step"))
again = {"losses": torch.zeros(exact.STEPS)}
load(again, checkpoint_id=os.path.join(folder[0], "step"))
with FSDP.summon_full_params(model):
    report.finish(again["losses"], list(model.parameters()))
dist.destroy_process_group()
