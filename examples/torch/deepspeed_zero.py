"""Trains a small GPT on the Jargon File with DeepSpeed's ZeRO over Sprat.

  mpirun -np 4 python deepspeed_zero.py --stage 3       (more ranks than cores: --oversubscribe)
  torchrun --nproc-per-node 4 deepspeed_zero.py --stage 3 --mics 2

Stage 1 shards the optimizer's moments, 2 also the gradients, 3 also the parameters. --mics N is
MiCS: groups of N ranks share one copy of the model, as in hybrid sharding.
Wants DeepSpeed: docs/pytorch.md tells how to install it, and which version MiCS needs.
"""

import os

import torch
import torch.distributed as dist

import gpt
import sprat.torch

os.environ.setdefault("DS_ACCELERATOR", "cpu")  # DeepSpeed reads it when it is imported
import deepspeed  # noqa: E402


def configuration(options, size: int) -> dict:
    """DeepSpeed's JSON."""
    zero = {"stage": options.stage, "stage3_param_persistence_threshold": 0}
    if options.mics:
        zero.update(stage=3, mics_shard_size=options.mics)
    return {"train_micro_batch_size_per_gpu": options.batch // size, "zero_optimization": zero,
            "gradient_clipping": 0.0}  # as in the other examples; DeepSpeed would clip at 1


def main() -> None:
    parser = gpt.parser(__doc__)
    parser.add_argument("--stage", type=int, default=3, choices=[1, 2, 3], help="default 3")
    parser.add_argument("--mics", type=int, metavar="N", help="ranks that share a copy; implies 3")
    options = parser.parse_args()
    sprat.torch.launch_environment()  # under mpirun, what torchrun sets
    deepspeed.init_distributed(dist_backend=options.backend)
    rank, size = dist.get_rank(), dist.get_world_size()
    config = configuration(options, size)

    torch.manual_seed(1)  # the same first parameters on every rank
    if options.mics:  # shards every module as it is made
        with deepspeed.zero.MiCS_Init(config_dict_or_path=config):
            model = gpt.GPT()
    else:
        model = gpt.GPT()
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.learning_rate)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)

    text = gpt.Text(options.text)
    for step in range(options.steps):
        tokens, targets = text.batch(step, options.batch, rank, size)
        loss = gpt.loss_of(engine(tokens), targets)
        engine.backward(loss)
        engine.step()
        gpt.report(step, loss, options.steps)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
