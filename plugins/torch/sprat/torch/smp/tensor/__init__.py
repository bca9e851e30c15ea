"""Tensor parallelism: layers that the ranks of a group have parts of."""

from .marks import (
    distribute,
    set_tensor_parallelism,
    tensor_parallelism,
    tp_register,
    tp_register_with_module,
)

__all__ = [
    "distribute",
    "set_tensor_parallelism",
    "tensor_parallelism",
    "tp_register",
    "tp_register_with_module",
]
