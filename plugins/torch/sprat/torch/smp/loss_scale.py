"""Loss scales of half precision: constant, or as large as gradients stay finite."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass
class LossScale:
    """What a loss is multiplied by. SMP's names and defaults of its dynamic scale.

    A step whose gradients are not finite divides the scale by scale_factor, down to min_scale, once
    delayed_shift such steps have come; scale_window steps without one multiply it. The count of
    such steps begins anew when the scale grows, with consecutive_hysteresis at each finite step.
    """

    scale: float = 1.0
    dynamic: bool = False
    scale_factor: float = 2.0
    scale_window: int = 1000
    min_scale: float = 1.0
    delayed_shift: int = 1
    consecutive_hysteresis: bool = False
    finite_steps: int = 0
    overflows_left: int = 1

    def update(self, finite: bool) -> None:
        """After a step."""
        if not self.dynamic:
            return
        if not finite:
            self.finite_steps = 0
            if self.overflows_left > 1:
                self.overflows_left -= 1
            else:
                self.scale = max(self.scale / self.scale_factor, self.min_scale)
            return
        if self.consecutive_hysteresis:
            self.overflows_left = self.delayed_shift
        self.finite_steps += 1
        if self.finite_steps % self.scale_window == 0:
            if not self.consecutive_hysteresis:
                self.overflows_left = self.delayed_shift
            self.scale *= self.scale_factor

    def state(self) -> dict[str, Any]:
        return asdict(self)

    def restore(self, state: dict[str, Any]) -> None:
        self.scale, self.finite_steps = state["scale"], state["finite_steps"]
        self.overflows_left = state["overflows_left"]


def loss_scale(static: float, dynamic: bool, arguments: dict[str, Any] | None) -> LossScale:
    """As DistributedOptimizer's arguments say. ValueError names one that makes no sense."""
    if not dynamic:
        if arguments:
            raise ValueError("dynamic_loss_args need dynamic_loss_scale=True")
        if not static > 0:
            raise ValueError(f"static_loss_scale = {static}: a scale is positive, as 1024.0")
        return LossScale(float(static))
    given = dict(arguments or {})
    initial = float(given.pop("init_scale", 2.0**32))
    known = ("scale_factor", "scale_window", "min_scale", "delayed_shift", "consecutive_hysteresis")
    for name, value in given.items():
        if name not in known:
            raise ValueError(
                f"dynamic_loss_args has no {name!r}: init_scale, {', '.join(known)}"
            )
        least = 1 if name in ("scale_window", "delayed_shift") else 0
        if name != "consecutive_hysteresis" and not value > 0 or value < least:
            raise ValueError(f"dynamic_loss_args: {name} = {value!r}: it is positive")
    scale = LossScale(initial, True, **given)
    scale.overflows_left = scale.delayed_shift
    return scale
