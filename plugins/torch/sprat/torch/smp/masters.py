"""Parameters in half precision that an optimizer updates in f32."""

from __future__ import annotations

import torch
from torch import nn


class Masters:
    """An f32 copy of each 16-bit parameter. The optimizer has the copies, the model the rounded ones."""

    def __init__(self, parameters: list[nn.Parameter]):
        self.pairs = [(one, nn.Parameter(one.detach().float())) for one in parameters]

    def take_gradients(self, scale: float) -> bool:
        """The copies' .grad: the parameters', divided by the scale. Whether all are finite."""
        finite = True
        for parameter, master in self.pairs:
            master.grad = None
            if parameter.grad is not None:
                master.grad = parameter.grad.float() / scale
                finite = finite and bool(torch.isfinite(master.grad).all())
        return finite

    @torch.no_grad()
    def give_values(self) -> None:
        """After an update: rounds the copies into the parameters."""
        for parameter, master in self.pairs:
            parameter.copy_(master)

    @torch.no_grad()
    def take_values(self) -> None:
        """After the parameters have been loaded."""
        for parameter, master in self.pairs:
            master.copy_(parameter)
