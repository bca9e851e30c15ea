"""Models that the split is tried on: of transformers' configurations and two of our own, all tiny.

Each entry makes a model, a batch by number, and says how the model's loss is computed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import nn

VOCABULARY, LENGTH, BATCH = 53, 12, 8


class Family(NamedTuple):
    make: Callable[[], nn.Module]
    batch: Callable[[int], dict[str, torch.Tensor]]
    loss: Callable[[nn.Module, dict[str, torch.Tensor]], torch.Tensor]


def _tokens(number: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(number)
    ids = torch.randint(VOCABULARY, (BATCH, LENGTH), generator=generator)
    return {"input_ids": ids, "labels": ids.clone()}


def _two_texts(number: int) -> dict[str, torch.Tensor]:
    first, second = _tokens(2 * number), _tokens(2 * number + 1)
    return {"input_ids": first["input_ids"], "labels": second["labels"][:, : LENGTH // 2].contiguous()}


def _images(number: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(number)
    return {
        "pixel_values": torch.randn(BATCH, 3, 16, 16, generator=generator),
        "labels": torch.randint(5, (BATCH,), generator=generator),
    }


def _own_loss(model: nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """The one that a model of transformers computes."""
    return model(**batch).loss


def _gpt2() -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(
        GPT2Config(n_layer=4, n_embd=32, n_head=2, vocab_size=VOCABULARY, n_positions=32)
    )


def _llama() -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(
        LlamaConfig(num_hidden_layers=4, hidden_size=32, intermediate_size=64,
                    num_attention_heads=4, num_key_value_heads=2, vocab_size=VOCABULARY,
                    max_position_embeddings=32)
    )


def _bert() -> nn.Module:
    from transformers import BertConfig, BertForMaskedLM

    return BertForMaskedLM(
        BertConfig(num_hidden_layers=4, hidden_size=32, intermediate_size=64,
                   num_attention_heads=2, vocab_size=VOCABULARY, max_position_embeddings=32)
    )


def _t5() -> nn.Module:
    from transformers import T5Config, T5ForConditionalGeneration

    return T5ForConditionalGeneration(
        T5Config(num_layers=2, d_model=32, d_ff=64, d_kv=8, num_heads=4, vocab_size=VOCABULARY,
                 decoder_start_token_id=0, pad_token_id=0)
    )


def _vit() -> nn.Module:
    from transformers import ViTConfig, ViTForImageClassification

    return ViTForImageClassification(
        ViTConfig(num_hidden_layers=4, hidden_size=32, intermediate_size=64,
                  num_attention_heads=2, image_size=16, patch_size=4, num_labels=5)
    )


class Unet(nn.Module):
    """Down, through and up again; what goes down is added on the way up."""

    def __init__(self, width: int = 8):
        super().__init__()
        self.enter = nn.Conv2d(3, width, 3, padding=1)
        self.down = nn.ModuleList(
            nn.Sequential(nn.Conv2d(width, width, 3, stride=2, padding=1), nn.GELU())
            for _ in range(2)
        )
        self.bottom = nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.GELU())
        self.up = nn.ModuleList(
            nn.Sequential(nn.ConvTranspose2d(width, width, 2, stride=2), nn.GELU())
            for _ in range(2)
        )
        self.leave = nn.Conv2d(width, 3, 1)

    def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
        x, kept = self.enter(pixel_values), []
        for down in self.down:
            kept.append(x)
            x = down(x)
        x = self.bottom(x)
        for up in self.up:
            x = up(x) + kept.pop()
        return self.leave(x)


class Mixture(nn.Module):
    """Experts that each take the tokens that chose them; which run differs by micro-batch."""

    def __init__(self, width: int = 16, experts: int = 4):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        self.router = nn.Linear(width, experts)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width))
            for _ in range(experts)
        )
        self.head = nn.Linear(width, VOCABULARY)

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        x = self.embedding(input_ids).flatten(0, 1)
        weights, chosen = self.router(x).softmax(-1).max(-1)
        parts = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            rows = (chosen == number).nonzero().flatten()
            if len(rows) > 0:
                parts = parts.index_add(0, rows, expert(x[rows]) * weights[rows, None])
        return self.head(x + parts).unflatten(0, input_ids.shape)


def _unet_loss(model: nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    return nn.functional.mse_loss(model(batch["pixel_values"]), batch["pixel_values"])


def _mixture_loss(model: nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    output = model(batch["input_ids"])
    return nn.functional.cross_entropy(output.flatten(0, 1), batch["labels"].flatten())


FAMILIES = {
    "gpt2": Family(_gpt2, _tokens, _own_loss),
    "llama": Family(_llama, _tokens, _own_loss),
    "bert": Family(_bert, _tokens, _own_loss),
    "t5": Family(_t5, _two_texts, _own_loss),
    "vit": Family(_vit, _images, _own_loss),
    "unet": Family(Unet, _images, _unet_loss),
    "mixture": Family(Mixture, _tokens, _mixture_loss),
}
