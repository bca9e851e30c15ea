"""One rank of the DeepSpeed test: trains each variant and, on rank 0, writes what came out.

  torchrun --nproc-per-node 4 worker.py BACKEND FILE
"""

import json
import os
import pathlib
import sys

import torch
import torch.distributed as dist

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "examples" / "torch"))
import gpt  # noqa: E402  (the examples' model)

import deepspeed  # noqa: E402

STEPS, BATCH = 20, 16
# MiCS gathers in two levels only where a copy of the model spans several nodes; DeepSpeed takes
# every NDEV_PER_NODE ranks for a node.
VARIANTS = {
    "ZeRO-1": {"stage": 1},
    "ZeRO-2": {"stage": 2},
    "ZeRO-3": {"stage": 3},
    "MiCS, copies on 2 ranks": {"stage": 3, "mics_shard_size": 2},
    "MiCS, hierarchical gather, 2 x 2": {"stage": 3, "mics_shard_size": 4,
                                         "mics_hierarchical_params_gather": True},
}


def new_model() -> gpt.GPT:
    torch.manual_seed(1)
    return gpt.GPT(layers=2, width=64, heads=2, context=64)


def optimizer_of(model: torch.nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=3e-3)


def one_rank(text: gpt.Text) -> list[float]:
    """The losses of plain PyTorch, without ranks."""
    model = new_model()
    optimizer, losses = optimizer_of(model), []
    for step in range(STEPS):
        tokens, targets = text.batch(step, BATCH)
        loss = gpt.loss_of(model(tokens), targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def trained(zero: dict, text: gpt.Text) -> list[float]:
    """The mean over ranks of the losses, step by step."""
    rank, size = dist.get_rank(), dist.get_world_size()
    config = {"train_micro_batch_size_per_gpu": BATCH // size, "gradient_clipping": 0.0,
              "zero_optimization": {"stage3_param_persistence_threshold": 0, **zero}}
    if "mics_shard_size" in zero:
        with deepspeed.zero.MiCS_Init(config_dict_or_path=config):
            model = new_model()
    else:
        model = new_model()
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer_of(model), config=config)
    losses = torch.zeros(STEPS, dtype=torch.float64)
    for step in range(STEPS):
        tokens, targets = text.batch(step, BATCH, rank, size)
        loss = gpt.loss_of(engine(tokens), targets)
        engine.backward(loss)
        engine.step()
        losses[step] = loss.item()
    dist.all_reduce(losses)
    engine.destroy()
    return (losses / size).tolist()


def main() -> None:
    backend, path = sys.argv[1:]
    if backend == "sprat":
        import sprat.torch.mics  # registers the backend too
        sprat.torch.mics.mend()
    deepspeed.init_distributed(dist_backend=backend)
    os.environ["NDEV_PER_NODE"] = str(dist.get_world_size() // 2)
    text = gpt.Text(gpt.TEXT, context=64)
    expected = one_rank(text)
    for name, zero in VARIANTS.items():
        row = {"variant": name}
        try:
            row["losses"] = trained(zero, text)
            row["differences"] = [abs(ours - one) / one
                                  for ours, one in zip(row["losses"], expected)]
        except Exception as error:  # one that all ranks raise; the next variant makes new groups
            row["error"] = f"{type(error).__name__}: {str(error).splitlines()[0]}"
        if dist.get_rank() == 0:
            with open(path, "a") as file:
                file.write(json.dumps(row) + "\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
