"""The trainer's GPT, its first values and its optimizer, in PyTorch."""

import torch
from torch import nn
from torch.nn import functional

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


def initialise(model: nn.Module, config: dict) -> None:
    """Of a model, or of a part whose parameters have the whole one's names."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            value = gpt_numpy.initial_value(name, tuple(parameter.shape), config["model"]["layers"],
                                            config["train"]["seed"])
            parameter.copy_(torch.from_numpy(value))


def adamw(model: nn.Module, config: dict) -> torch.optim.AdamW:
    """Norms and biases do not decay."""
    numbers = config["train"]["optimizer"]
    matrices = [one for one in model.parameters() if one.ndim > 1]
    vectors = [one for one in model.parameters() if one.ndim == 1]
    return torch.optim.AdamW(
        [{"params": matrices, "weight_decay": numbers["weight_decay"]},
         {"params": vectors, "weight_decay": 0.0}],
        lr=config["train"]["learning_rate"], betas=(numbers["beta1"], numbers["beta2"]), eps=1e-8,
        fused=True)
