"""Trains a small GPT on the Jargon File with tensor parallelism: DTensor over Sprat.

  mpirun -np 4 python tensor_parallel.py            (more ranks than cores: --oversubscribe)
  torchrun --nproc-per-node 4 tensor_parallel.py

Every rank works on the whole batch, with its share of each block's heads and hidden units, and of
the logits. The number of ranks divides the four heads.
"""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard
from torch.distributed.tensor.parallel import (ColwiseParallel, RowwiseParallel, loss_parallel,
                                               parallelize_module)

import gpt
import sprat.torch

# What goes into a column-wise layer is whole on every rank, and so is what comes out of the
# row-wise one after it, whose partial sums are added up over the ranks.
BLOCK = {"attention.query": ColwiseParallel(), "attention.key": ColwiseParallel(),
         "attention.value": ColwiseParallel(), "attention.out": RowwiseParallel(),
         "up": ColwiseParallel(), "down": RowwiseParallel()}
HEAD = {"logits": ColwiseParallel(output_layouts=Shard(-1), use_local_output=False)}


def main() -> None:
    options = gpt.parser(__doc__).parse_args()
    sprat.torch.launch_environment()  # under mpirun, what torchrun sets
    dist.init_process_group(options.backend)

    torch.manual_seed(1)  # the same first parameters on every rank
    model = gpt.GPT()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for block in model.blocks:
        parallelize_module(block, mesh, BLOCK)
    parallelize_module(model.head, mesh, HEAD)

    text = gpt.Text(options.text)
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.learning_rate, foreach=False)
    for step in range(options.steps):
        tokens, targets = text.batch(step, options.batch)
        with loss_parallel():  # the logits stay sharded
            loss = gpt.loss_of(model(tokens), targets)
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        gpt.report(step, loss.full_tensor(), options.steps)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
