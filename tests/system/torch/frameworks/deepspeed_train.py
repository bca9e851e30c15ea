"""DeepSpeed: ZeRO of the stage that is given."""

from __future__ import annotations

import sys

import deepspeed
import torch
import torch.distributed as dist

import exact
import report

deepspeed.init_distributed()
share = exact.ROWS // dist.get_world_size()
model = exact.model()
engine, *_ = deepspeed.initialize(
    model=model, optimizer=torch.optim.SGD(model.parameters(), lr=exact.RATE),
    config={"train_micro_batch_size_per_gpu": share, "zero_optimization": {"stage": int(sys.argv[1])},
            "gradient_clipping": 0.0, "zero_allow_untested_optimizer": True,
            "zero_force_ds_cpu_optimizer": False})
inputs, targets = exact.rows()

losses = []
for step in range(exact.STEPS):
    report.begin(step)
    begin = exact.ROWS * step + share * dist.get_rank()
    loss = torch.nn.functional.mse_loss(engine(inputs[begin:begin + share]), targets[begin:begin + share])
    engine.backward(loss)
    engine.step()
    total = loss.detach().clone()
    dist.all_reduce(total)
    losses.append(total / dist.get_world_size())
with deepspeed.zero.GatheredParameters(list(engine.module.parameters())):
    report.finish(losses, engine.module.parameters())
dist.destroy_process_group()
