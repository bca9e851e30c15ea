"""Mixed precision under autocast: a GradScaler whose overflows all ranks see."""

from __future__ import annotations

from typing import Any

import torch
from torch.amp.grad_scaler import GradScaler as _OfOneRank

from .faults.agreement import any_has
from .state import state


class GradScaler(_OfOneRank):
    """torch.amp.GradScaler for a model over many ranks, with its arguments.

    scale(loss) in the step's function; step(optimizer) and update() on every rank: a gradient that
    is not finite on one makes all leave the step out, so scales stay equal.
    """

    def __init__(
        self,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ):
        device = state.mesh.device_type
        super().__init__(device, init_scale, growth_factor, backoff_factor, growth_interval, enabled)

    def unscale_(self, optimizer: torch.optim.Optimizer) -> None:
        """Divides this rank's gradients by the scale; collective over the model's ranks."""
        if not self.is_enabled():
            return
        device = self._with_scale()
        super().unscale_(optimizer)
        found = self._per_optimizer_states[id(optimizer)]["found_inf_per_device"]
        if not found:  # a rank without gradients
            found[device] = torch.zeros((), dtype=torch.float32, device=device)
        worst = float(any_has(any(bool(one.item()) for one in found.values())))
        for one in found.values():
            one.fill_(worst)

    def step(self, optimizer: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> Any:
        """optimizer.step(), unless a gradient of any rank is not finite."""
        self._with_scale()
        return super().step(optimizer, *args, **kwargs)

    def _with_scale(self) -> torch.device:
        """The loss is computed on one rank of a pipeline; the others begin with the same scale."""
        device = torch.device(self._device)
        if self.is_enabled() and self._scale is None:
            self._lazy_init_scale_growth_tracker(device)
        return device
