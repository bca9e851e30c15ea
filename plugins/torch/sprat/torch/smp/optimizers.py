"""FusedLamb and FusedNovoGrad under SMP's names and defaults, in plain operations of PyTorch.

LAMB: You et al., Large Batch Optimization for Deep Learning (arXiv 1904.00962), Algorithm 2.
NovoGrad: Ginsburg et al., Stochastic Gradient Methods with Layer-wise Adaptive Moments (1905.11286).
Under DistributedOptimizer results do not depend on how a pipeline is cut; parameters that tensor
parallel ranks or replicas have parts of are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import nn


class FusedLamb(torch.optim.Optimizer):
    """Adam whose step of each parameter is as long as the parameter, times the learning rate.

    Gradients are scaled down to the L2 norm max_grad_norm of the whole model before; 0: they are
    not. use_nvlamb: also where there is no weight decay. adam_w_mode, grad_averaging, set_grad_none,
    amsgrad as in Apex: without amsgrad.
    """

    def __init__(self, params: Iterable, lr: float = 1e-3, bias_correction: bool = True,
                 betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-6,
                 weight_decay: float = 0.01, amsgrad: bool = False, adam_w_mode: bool = True,
                 grad_averaging: bool = True, set_grad_none: bool = True,
                 max_grad_norm: float = 1.0, use_nvlamb: bool = False):
        if amsgrad:
            raise ValueError("FusedLamb has no amsgrad: leave it out")
        self.gradient_norm: Callable[[], float] | None = None  # of the whole model, where it is cut
        super().__init__(params, dict(
            lr=lr, bias_correction=bias_correction, betas=betas, eps=eps, weight_decay=weight_decay,
            adam_w_mode=adam_w_mode, grad_averaging=grad_averaging, max_grad_norm=max_grad_norm,
            use_nvlamb=use_nvlamb))
        self.set_grad_none = set_grad_none

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = _called(closure)
        norm = self.gradient_norm() if self.gradient_norm else _norm_of(self)
        for group, one in _with_gradients(self):
            most = group["max_grad_norm"]
            gradient = one.grad * (most / norm) if 0 < most < norm else one.grad
            self._update(group, one, gradient)
        return loss

    def _update(self, group: dict[str, Any], one: nn.Parameter, gradient: torch.Tensor) -> None:
        (first, second), decay = group["betas"], group["weight_decay"]
        kept = self.state[one]
        if not kept:
            kept.update(step=0, exp_avg=torch.zeros_like(one), exp_avg_sq=torch.zeros_like(one))
        kept["step"] += 1
        if decay and not group["adam_w_mode"]:
            gradient = gradient + decay * one
        kept["exp_avg"].mul_(first).add_(gradient, alpha=1 - first if group["grad_averaging"] else 1)
        kept["exp_avg_sq"].mul_(second).addcmul_(gradient, gradient, value=1 - second)
        corrected = group["bias_correction"]
        mean = kept["exp_avg"] / (1 - first ** kept["step"] if corrected else 1)
        square = kept["exp_avg_sq"] / (1 - second ** kept["step"] if corrected else 1)
        update = mean / (square.sqrt() + group["eps"])
        if decay and group["adam_w_mode"]:
            update += decay * one
        ratio = 1.0
        if decay or group["use_nvlamb"]:
            length, change = float(one.norm()), float(update.norm())
            ratio = length / change if length > 0 and change > 0 else 1.0
        one.sub_(update, alpha=group["lr"] * ratio)


class FusedNovoGrad(torch.optim.Optimizer):
    """Adam with one second moment a parameter: that of its gradient's norm.

    norm_type: 2, or 0 for the largest element. init_zero: the norm's mean starts at 0, else at the
    first norm. reg_inside_moment: weight decay goes into the first moment, else beside it. The rest
    as in Apex, without amsgrad.
    """

    def __init__(self, params: Iterable, lr: float = 1e-3, bias_correction: bool = True,
                 betas: tuple[float, float] = (0.95, 0.98), eps: float = 1e-8,
                 weight_decay: float = 0.0, amsgrad: bool = False, reg_inside_moment: bool = False,
                 grad_averaging: bool = True, norm_type: int = 2, init_zero: bool = False,
                 set_grad_none: bool = True):
        if amsgrad:
            raise ValueError("FusedNovoGrad has no amsgrad: leave it out")
        if norm_type not in (0, 2):
            raise ValueError(f"norm_type = {norm_type}: 2, or 0 for the largest element")
        super().__init__(params, dict(
            lr=lr, bias_correction=bias_correction, betas=betas, eps=eps, weight_decay=weight_decay,
            reg_inside_moment=reg_inside_moment, grad_averaging=grad_averaging,
            norm_type=norm_type, init_zero=init_zero))
        self.set_grad_none = set_grad_none

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = _called(closure)
        for group, one in _with_gradients(self):
            self._update(group, one, one.grad)
        return loss

    def _update(self, group: dict[str, Any], one: nn.Parameter, gradient: torch.Tensor) -> None:
        (first, second), decay = group["betas"], group["weight_decay"]
        norm = gradient.norm() if group["norm_type"] == 2 else gradient.abs().max()
        kept = self.state[one]
        if not kept:
            start = torch.zeros_like(norm) if group["init_zero"] else norm
            kept.update(step=0, exp_avg=torch.zeros_like(one), exp_avg_norm=start.clone())
        kept["step"] += 1
        if group["norm_type"] == 2:  # the mean is of squares, and its root is kept
            squares = second * kept["exp_avg_norm"] ** 2 + (1 - second) * norm**2
            kept["exp_avg_norm"] = squares.sqrt()
        else:
            kept["exp_avg_norm"] = second * kept["exp_avg_norm"] + (1 - second) * norm
        corrected = group["bias_correction"]
        second_correction = (1 - second ** kept["step"]) ** 0.5 if corrected else 1
        scaled = gradient / (kept["exp_avg_norm"] / second_correction + group["eps"])
        if group["reg_inside_moment"]:
            scaled = scaled + decay * one
        kept["exp_avg"].mul_(first).add_(scaled, alpha=1 - first if group["grad_averaging"] else 1)
        update = kept["exp_avg"] / (1 - first ** kept["step"] if corrected else 1)
        if not group["reg_inside_moment"]:
            update = update + decay * one
        one.sub_(update, alpha=group["lr"])


def _called(closure: Callable[[], Any] | None) -> Any:
    if closure is None:
        return None
    with torch.enable_grad():
        return closure()


def _with_gradients(optimizer: torch.optim.Optimizer) -> Iterator[tuple[dict, nn.Parameter]]:
    for group in optimizer.param_groups:
        for one in group["params"]:
            if one.grad is not None:
                yield group, one


def _norm_of(optimizer: torch.optim.Optimizer) -> float:
    squares = [torch.linalg.vector_norm(one.grad, dtype=torch.float64) ** 2
               for _, one in _with_gradients(optimizer)]
    return float(torch.stack(squares).sum().sqrt()) if squares else 0.0
