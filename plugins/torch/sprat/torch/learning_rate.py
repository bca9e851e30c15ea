"""The linear scaling rule with gradual warm-up (Goyal et al. 2017, arXiv 1706.02677, section 2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.optim import Optimizer
    from torch.optim.lr_scheduler import LambdaLR


def scaled_learning_rate(
    base: float, base_batch: int, batch: int, *, warmup_steps: int = 0, step: int | None = None
) -> float:
    """The learning rate for a global batch, given a rate that suits another one.

    The target is base * batch / base_batch. During the first `warmup_steps` steps the rate grows
    from `base` to the target by the same amount each step:
    base + (target - base) * step / warmup_steps. A target below `base` needs no warm-up.
    `step` counts from 0; without it, the target is returned. Batches count samples over all ranks.
    """
    if (
        base <= 0
        or base_batch < 1
        or batch < 1
        or warmup_steps < 0
        or (step is not None and step < 0)
    ):
        raise ValueError(
            f"base {base}, base_batch {base_batch}, batch {batch}, warmup_steps {warmup_steps}, "
            f"step {step}: rates and batches must be positive, steps at least 0"
        )
    target = base * batch / base_batch
    if step is None or step >= warmup_steps or target <= base:
        return target
    return base + (target - base) * step / warmup_steps


def scaled_learning_rate_scheduler(
    optimizer: Optimizer, base_batch: int, batch: int, *, warmup_steps: int = 0
) -> LambdaLR:
    """A scheduler for an optimizer made with the base rate; call its step() after each step."""
    from torch.optim.lr_scheduler import LambdaLR

    return LambdaLR(
        optimizer,
        lambda step: scaled_learning_rate(
            1.0, base_batch, batch, warmup_steps=warmup_steps, step=step
        ),
    )
