"""The model, the text and the options that the examples beside this file share."""

import argparse
import gzip
import pathlib

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional

TEXT = "/usr/share/doc/jargon-text/jargon.txt.gz"  # Debian package jargon-text
VOCABULARY = 256  # a token is a byte


class Attention(nn.Module):
    """Causal self-attention over as many heads as its projections have, all of them or a slice."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.head_width = width // heads
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.out = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = (project(x).unflatten(-1, (-1, self.head_width)).transpose(1, 2)
                             for project in (self.query, self.key, self.value))
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.out(mixed.transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.attention_norm, self.attention = nn.LayerNorm(width), Attention(width, heads)
        self.feed_norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.attention_norm(x))
        return x + self.down(functional.gelu(self.up(self.feed_norm(x))))


class Embedding(nn.Module):
    def __init__(self, width: int, context: int):
        super().__init__()
        self.token, self.position = nn.Embedding(VOCABULARY, width), nn.Embedding(context, width)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.token(tokens) + self.position(torch.arange(tokens.shape[1]))


class Head(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.norm, self.logits = nn.LayerNorm(width), nn.Linear(width, VOCABULARY, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.logits(self.norm(x))


class GPT(nn.Module):
    """From tokens to logits; a pipeline's stage is one whose embedding or head is None."""

    def __init__(self, layers: int = 4, width: int = 128, heads: int = 4, context: int = 128):
        super().__init__()
        self.embedding = Embedding(width, context)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.head = Head(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.embedding is not None:
            x = self.embedding(x)
        for block in self.blocks:
            x = block(x)
        return x if self.head is None else self.head(x)


def loss_of(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """In nats per byte."""
    return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


class Text:
    """Cuts batches out of a text; the batch of a step is the same however many ranks share it."""

    def __init__(self, path: str, context: int = 128):
        if not pathlib.Path(path).exists():
            raise SystemExit(f"There is no text at {path}; apt-get install jargon-text, or give "
                             "another with --text.")
        raw = gzip.open(path).read() if path.endswith(".gz") else pathlib.Path(path).read_bytes()
        self.bytes = torch.frombuffer(bytearray(raw), dtype=torch.uint8)
        self.context = context

    def batch(self, step: int, sequences: int, part: int = 0,
              parts: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
        """Tokens and targets of the `part`-th of `parts` equal parts of a step's sequences."""
        if sequences % parts:
            raise ValueError(f"a batch of {sequences} sequences is not cut into {parts} equal "
                             "parts; choose --batch a multiple of the ranks that share it")
        generator = torch.Generator().manual_seed(step)
        starts = torch.randint(len(self.bytes) - self.context, (sequences,), generator=generator)
        lines = torch.stack([self.bytes[start:start + self.context + 1].long()
                             for start in starts.chunk(parts)[part]])
        return lines[:, :-1].contiguous(), lines[:, 1:].contiguous()


def parser(description: str) -> argparse.ArgumentParser:
    """The options of every example."""
    options = argparse.ArgumentParser(description=description,
                                      formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--backend", default="sprat",
                         help="of torch.distributed: sprat, or gloo to compare (default sprat)")
    options.add_argument("--steps", type=int, default=100, help="default 100")
    options.add_argument("--batch", type=int, default=16,
                         help="sequences a step, over all ranks (default 16)")
    options.add_argument("--learning-rate", type=float, default=3e-3, help="default 0.003")
    options.add_argument("--text", default=TEXT, help=f"default {TEXT}")
    return options


def report(step: int, loss: torch.Tensor, steps: int) -> None:
    """Prints on rank 0 the mean of all ranks' losses, at every tenth step and the last."""
    if step % 10 and step != steps - 1:
        return
    mean = loss.detach().clone()
    dist.all_reduce(mean, op=dist.ReduceOp.AVG)
    if dist.get_rank() == 0:
        print(f"step {step:4}  loss {mean.item():.4f} nats per byte", flush=True)
