"""Trains a small GPT on the Jargon File, sharded by PyTorch's FSDP2 over Sprat.

  mpirun -np 4 python fsdp2.py            (more ranks than cores: --oversubscribe)
  torchrun --nproc-per-node 4 fsdp2.py

Each rank keeps a quarter of every block's parameters, gradients and moments. A block's parameters
are gathered when it is used, and its gradients are reduced to the ranks that keep them.
"""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import gpt
import sprat.torch


def main() -> None:
    options = gpt.parser(__doc__).parse_args()
    sprat.torch.launch_environment()  # under mpirun, what torchrun sets
    dist.init_process_group(options.backend)
    rank, size = dist.get_rank(), dist.get_world_size()

    torch.manual_seed(1)  # the same first parameters on every rank
    model = gpt.GPT()
    mesh = init_device_mesh("cpu", (size,))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    if options.backend == "sprat":
        sprat.torch.overlap(model)  # gathers ahead of use and reduces while backward goes on

    text = gpt.Text(options.text)
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.learning_rate)
    for step in range(options.steps):
        tokens, targets = text.batch(step, options.batch, rank, size)
        loss = gpt.loss_of(model(tokens), targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        gpt.report(step, loss, options.steps)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
