"""Trains a small GPT on the Jargon File with hybrid sharding: FSDP2 over a mesh of two dimensions.

  mpirun -np 4 python hsdp.py --shard 2            (more ranks than cores: --oversubscribe)
  torchrun --nproc-per-node 4 hsdp.py --shard 2

Groups of --shard ranks share one copy of the model; the groups are replicas of each other, whose
gradients are averaged. On several hosts, a group in each host keeps gathers off the wires.
"""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import gpt
import sprat.torch


def main() -> None:
    parser = gpt.parser(__doc__)
    parser.add_argument("--shard", type=int, default=2, help="ranks that share a copy (default 2)")
    options = parser.parse_args()
    sprat.torch.launch_environment()  # under mpirun, what torchrun sets
    dist.init_process_group(options.backend)
    rank, size = dist.get_rank(), dist.get_world_size()
    if size % options.shard:
        raise SystemExit(f"{size} ranks are no whole number of groups of {options.shard}; choose "
                         "--shard to divide the ranks.")

    torch.manual_seed(1)  # the same first parameters on every rank
    model = gpt.GPT()
    mesh = init_device_mesh("cpu", (size // options.shard, options.shard),
                            mesh_dim_names=("replica", "shard"))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)

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
