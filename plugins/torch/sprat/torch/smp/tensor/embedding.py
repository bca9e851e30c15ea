"""An embedding of which each rank has a slice of every vector."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from . import regions
from .cut_parameters import cut
from .distributed_module import DistributedModule
from .linear import require_divides


class DistributedEmbedding(DistributedModule):
    """SMP's: cut along embedding_dim; every rank gets whole vectors, without `gathers` its slice."""

    def __init__(self, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None,
                 inside: nn.Embedding | None = None, gathers: bool = True):
        super().__init__()
        self.gathers = gathers
        require_divides("embedding_dim", embedding_dim)
        inside = inside or nn.Embedding(num_embeddings, embedding_dim, padding_idx)
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.padding_idx = inside.padding_idx
        self.weight = cut(inside.weight, 1)

    def forward(self, numbers: torch.Tensor) -> torch.Tensor:
        own = functional.embedding(numbers, self.weight, self.padding_idx)
        return regions.whole(own) if self.gathers else own

    def reset_parameters(self) -> None:
        nn.Embedding.reset_parameters(self)

    def _fill_padding_idx_with_zero(self) -> None:
        nn.Embedding._fill_padding_idx_with_zero(self)
