"""Autograd's step onto another rank: a module's forward and backward, asked of its owner."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from .modes import modes_here

if TYPE_CHECKING:
    from .server import Server


class Call:
    """One forward that this rank asks for: what autograd needs to know of its answer."""

    def __init__(self, server: Server, module: str, args: tuple, kwargs: dict):
        self.server = server
        self.module = module
        self.leaves, self.tree = pytree.tree_flatten((args, kwargs))
        self.places = [i for i, leaf in enumerate(self.leaves) if isinstance(leaf, torch.Tensor)]
        self.modes = modes_here()  # here, since gradients are off inside of a Function
        self.number = (-1, -1)
        self.answer: list[Any] = []  # the output's leaves
        self.answer_tree: Any = None
        self.outputs: list[int] = []  # places of tensors among them


class Remote(torch.autograd.Function):
    """Forward waits for the owner's outputs, backward for the gradients of its inputs."""

    @staticmethod
    def forward(ctx: Any, call: Call, anchor: torch.Tensor, *tensors: torch.Tensor) -> Any:
        ctx.set_materialize_grads(False)
        ctx.call = call
        # The first two arguments are no inputs of the module.
        for place, tensor, needed in zip(call.places, tensors, ctx.needs_input_grad[2:]):
            call.leaves[place] = tensor.detach().requires_grad_(needed)
        call.server.ask_forward(call)
        outputs = [call.answer[place] for place in call.outputs]
        fresh = tuple(tensor.detach() for tensor in outputs)
        ctx.mark_non_differentiable(
            *(new for new, old in zip(fresh, outputs) if not old.requires_grad)
        )
        return fresh

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor | None) -> Any:
        call = ctx.call
        if all(gradient is None for gradient in gradients):
            return (None, None, *(None for _ in call.places))
        return (None, None, *call.server.ask_backward(call, gradients))


def run_remotely(server: Server, module: str, args: tuple, kwargs: dict) -> Any:
    """What the module returns on its owner, connected to this rank's autograd."""
    call = Call(server, module, args, kwargs)
    tensors = [call.leaves[place] for place in call.places]
    # Without inputs that need gradients, as of an embedding, the module's parameters still may.
    anchor = torch.empty(0, requires_grad=torch.is_grad_enabled())
    outputs = Remote.apply(call, anchor, *tensors)
    for place, tensor in zip(call.outputs, outputs):
        call.answer[place] = tensor
    return pytree.tree_unflatten(call.answer, call.answer_tree)
