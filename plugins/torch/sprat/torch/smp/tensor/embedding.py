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
    """SMP's: cut along embedding_dim; every rank gets whole vectors, with _skip_allgather its slice.

    inside: whole, gives the values; else _weight, or normal ones of deviation initializer_range.
    _skip_scatter_and_merge: taken; nothing is scattered. ValueError: max_norm, sparse.
    """

    def __init__(self, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None,
                 max_norm: float | None = None, norm_type: float = 2.0,
                 scale_grad_by_freq: bool = False, sparse: bool = False,
                 _weight: torch.Tensor | None = None, initializer_range: float = 0.02,
                 _skip_allgather: bool = False, _skip_scatter_and_merge: bool = False,
                 inside: nn.Embedding | None = None):
        super().__init__()
        if max_norm is not None or sparse:
            raise ValueError(
                f"max_norm = {max_norm}, sparse = {sparse}: a rank has no whole vectors to take "
                f"norms (norm_type = {norm_type}) of, and its gradients are dense: leave both out"
            )
        self.skips_gather, self.scale_grad_by_freq = _skip_allgather, scale_grad_by_freq
        require_divides("embedding_dim", embedding_dim)
        if inside is None:
            inside = nn.Embedding(num_embeddings, embedding_dim, padding_idx, _weight=_weight)
            if _weight is None:
                nn.init.normal_(inside.weight, std=initializer_range)
                inside._fill_padding_idx_with_zero()
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.padding_idx = inside.padding_idx
        self.weight = cut(inside.weight, 1)

    def forward(self, numbers: torch.Tensor) -> torch.Tensor:
        own = functional.embedding(numbers, self.weight, self.padding_idx,
                                   scale_grad_by_freq=self.scale_grad_by_freq)
        return own if self.skips_gather else regions.whole(own)

    def reset_parameters(self) -> None:
        nn.Embedding.reset_parameters(self)

    def _fill_padding_idx_with_zero(self) -> None:
        nn.Embedding._fill_padding_idx_with_zero(self)
