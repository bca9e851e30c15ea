"""SMP v2's clipping of gradients."""

from __future__ import annotations

import torch
from torch import nn


def clip_grad_norm_(model: nn.Module, max_norm: float, norm_type: float = 2.0) -> torch.Tensor:
    """Scales gradients down to max_norm over all ranks; returns the norm that they had.

    Every rank calls it. FSDP's first form has its own; DTensors, those of the second, know theirs.
    """
    if hasattr(model, "clip_grad_norm_"):
        return model.clip_grad_norm_(max_norm, norm_type)
    norm = nn.utils.clip_grad_norm_(model.parameters(), max_norm, norm_type)
    return norm.full_tensor() if hasattr(norm, "full_tensor") else norm
