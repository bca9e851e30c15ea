"""SMP's distributed layers, as smp.nn has them."""

from typing import NoReturn

from torch.nn import LayerNorm as FusedLayerNorm  # its fused kernels are PyTorch's own by now

from .refused import refusal
from .tensor.distributed_module import DistributedModule
from .tensor.embedding import DistributedEmbedding
from .tensor.linear import DistributedLinear
from .tensor.transformer import (
    DistributedAttentionLayer,
    DistributedTransformer,
    DistributedTransformerLayer,
    DistributedTransformerLMHead,
    DistributedTransformerOutputLayer,
)

__all__ = [
    "DistributedAttentionLayer",
    "DistributedEmbedding",
    "DistributedLinear",
    "DistributedModule",
    "DistributedTransformer",
    "DistributedTransformerLMHead",
    "DistributedTransformerLayer",
    "DistributedTransformerOutputLayer",
    "FusedLayerNorm",
]


def __getattr__(name: str) -> NoReturn:
    raise refusal(f"nn.{name}")
