"""Trains a small GPT on the Jargon File as a pipeline: torch.distributed.pipelining over Sprat.

  mpirun -np 4 python pipeline.py            (more ranks than cores: --oversubscribe)
  torchrun --nproc-per-node 4 pipeline.py

Each rank keeps some consecutive blocks, the first also the embedding, the last also the head. A
batch goes through as micro-batches, one forward and one backward in turn (1F1B).
"""

import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

import gpt
import sprat.torch


def stage_of(model: gpt.GPT, rank: int, size: int) -> gpt.GPT:
    """What of `model` rank `rank` of `size` computes."""
    first, last = len(model.blocks) * rank // size, len(model.blocks) * (rank + 1) // size
    model.blocks = model.blocks[first:last]
    if rank > 0:
        model.embedding = None
    if rank < size - 1:
        model.head = None
    return model


def main() -> None:
    parser = gpt.parser(__doc__)
    parser.add_argument("--micro-batches", type=int, default=8, help="of a batch (default 8)")
    options = parser.parse_args()
    sprat.torch.launch_environment()  # under mpirun, what torchrun sets
    dist.init_process_group(options.backend)
    rank, size = dist.get_rank(), dist.get_world_size()

    torch.manual_seed(1)
    model = stage_of(gpt.GPT(), rank, size)
    stage = PipelineStage(model, rank, size, torch.device("cpu"))
    schedule = Schedule1F1B(stage, options.micro_batches, loss_fn=gpt.loss_of)

    text = gpt.Text(options.text)
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.learning_rate)
    for step in range(options.steps):
        tokens, targets = text.batch(step, options.batch)
        losses: list[torch.Tensor] = []
        schedule.step(*([tokens] if rank == 0 else []),
                      **({"target": targets, "losses": losses} if rank == size - 1 else {}))
        optimizer.step()
        optimizer.zero_grad()
        loss = torch.stack(losses).mean() if losses else torch.zeros(())
        dist.broadcast(loss, src=size - 1)  # only the last stage knows it
        gpt.report(step, loss, options.steps)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
