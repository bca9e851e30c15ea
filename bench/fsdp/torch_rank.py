"""One rank of PyTorch's side: FSDP2 on gloo, and on collectives that return at once, a few steps at a time."""

import json
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.nn import functional
from torch.testing._internal.distributed import fake_pg  # noqa: F401  (registers "fake")

import gpt_numpy
import gpt_torch


class Training:
    """A model sharded over one group, its optimizer, and its place in the text."""

    def __init__(self, config: dict, group: dist.ProcessGroup):
        self.config, self.batches, self.steps = config, gpt_numpy.Batches(config), 0
        self.model = gpt_torch.Gpt(**config["model"])
        gpt_torch.initialise(self.model, config)
        mesh = DeviceMesh.from_group(group, "cpu")
        for block in self.model.h:
            fully_shard(block, mesh=mesh)
        fully_shard(self.model, mesh=mesh)
        self.optimizer = gpt_torch.adamw(self.model, config)

    def step(self) -> float:
        """The mean loss of this rank's samples."""
        lines = self.batches.of(self.steps, dist.get_rank(), dist.get_world_size())
        lines = torch.from_numpy(lines.astype("int64"))
        self.steps += 1
        logits = self.model(lines[:, :-1])
        loss = functional.cross_entropy(logits.flatten(0, 1), lines[:, 1:].flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), self.config["train"]["clip_norm"])
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.item()


def main() -> None:
    with open(sys.argv[1]) as file:
        config = json.load(file)
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)  # what "nothing" computes with is whatever its buffers hold
    dist.init_process_group("gloo")
    training = {"gloo": Training(config, dist.group.WORLD),
                "nothing": Training(config, dist.new_group(backend="fake"))}
    for line in sys.stdin:
        way, count = line.split()
        seconds, losses = [], []
        for _ in range(int(count)):
            begin = time.perf_counter()
            losses.append(training[way].step())
            seconds.append(time.perf_counter() - begin)
        print(json.dumps({"seconds": seconds, "losses": losses}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
