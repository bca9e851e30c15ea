"""Trains a small GPT on the Jargon File with DistributedDataParallel over Sprat.

  mpirun -np 4 python ddp.py            (more ranks than cores: --oversubscribe)
  torchrun --nproc-per-node 4 ddp.py

Every rank keeps the whole model and works on its part of the batch; gradients are averaged in
buckets while backward goes on.
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import gpt
import sprat.torch


def main() -> None:
    options = gpt.parser(__doc__).parse_args()
    sprat.torch.launch_environment()  # under mpirun, what torchrun sets
    dist.init_process_group(options.backend)
    rank, size = dist.get_rank(), dist.get_world_size()

    torch.manual_seed(1)
    model = DistributedDataParallel(gpt.GPT(), gradient_as_bucket_view=True)

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
