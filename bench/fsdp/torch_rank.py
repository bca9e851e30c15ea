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


class Attention(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
                             for part in self.c_attn(x).chunk(3, dim=-1))
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.c_proj(mixed.transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.c_fc, self.c_proj = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.c_proj(functional.gelu(self.c_fc(x), approximate="tanh"))


class Block(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.ln_1, self.attn = nn.LayerNorm(width), Attention(width, heads)
        self.ln_2, self.mlp = nn.LayerNorm(width), FeedForward(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Gpt(nn.Module):
    """The trainer's GPT (train/model/gpt.hpp), with its names."""

    def __init__(self, layers: int, width: int, heads: int, context: int):
        super().__init__()
        self.wte = nn.Embedding(gpt_numpy.VOCABULARY, width)
        self.wpe = nn.Embedding(context, width)
        self.h = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.wte(tokens) + self.wpe.weight
        for block in self.h:
            x = block(x)
        return functional.linear(self.ln_f(x), self.wte.weight)


def initialised(config: dict) -> Gpt:
    model = Gpt(**config["model"])
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            value = gpt_numpy.initial_value(name, tuple(parameter.shape), config["model"]["layers"],
                                            config["train"]["seed"])
            parameter.copy_(torch.from_numpy(value))
    return model


class Training:
    """A model sharded over one group, its optimizer, and its place in the text."""

    def __init__(self, config: dict, group: dist.ProcessGroup):
        self.config, self.batches, self.steps = config, gpt_numpy.Batches(config), 0
        self.model = initialised(config)
        mesh = DeviceMesh.from_group(group, "cpu")
        for block in self.model.h:
            fully_shard(block, mesh=mesh)
        fully_shard(self.model, mesh=mesh)
        train = config["train"]
        adamw = train["optimizer"]
        matrices = [one for one in self.model.parameters() if one.ndim > 1]
        vectors = [one for one in self.model.parameters() if one.ndim == 1]
        self.optimizer = torch.optim.AdamW(
            [{"params": matrices, "weight_decay": adamw["weight_decay"]},
             {"params": vectors, "weight_decay": 0.0}],
            lr=train["learning_rate"], betas=(adamw["beta1"], adamw["beta2"]), eps=1e-8, fused=True)

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
