"""What a captured step took for granted: numbers in closures, globals and attributes, modes, shapes.

A program is played again only while all of this is as it was. What a function does beside computing, as printing
or counting, cannot be played, so such a step is the execution server's.
"""

from __future__ import annotations

import dis
import functools
import types
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as nn_module
from torch.utils import _pytree as pytree

from .program import Unservable

# Deeper or longer things count by their identity.
_DEPTH, _LENGTH = 3, 64
_LIBRARIES = ("torch", "transformers", "sprat", "numpy", "builtins")
_SIMPLE = (bool, int, float, str, bytes, type(None), torch.dtype, torch.device)
_OF_MODULES = frozenset(vars(nn.Module())) - {"training"}
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_GLOBAL_HOOKS = ("_global_forward_hooks", "_global_forward_pre_hooks", "_global_backward_hooks",
                 "_global_backward_pre_hooks")


def key_of(body: functools.partial, module: nn.Module) -> tuple:
    """Equal where a program of the one step is one of the other."""
    leaves, tree = pytree.tree_flatten((body.args, body.keywords))
    arguments = tuple(
        (tuple(leaf.shape), tuple(leaf.stride()), leaf.dtype) if isinstance(leaf, torch.Tensor)
        else _plain(leaf, 0, {}) for leaf in leaves)
    return (body.func, str(tree), arguments, torch.is_grad_enabled(), torch.get_default_dtype(),
            tuple(surroundings(body.func, module)))


def surroundings(function: Any, module: nn.Module) -> Iterator[Any]:
    """Plain values that the function and the model could read."""
    seen: dict[int, int] = {}
    yield from _of_function(function, seen)
    yield tuple((one.requires_grad, one.dtype) for one in module.parameters())
    for inside in module.modules():
        yield inside.training
        yield from _of_attributes(inside, seen)
        if not _of_library(type(inside)):
            yield from _of_function(type(inside).forward, seen, type(inside))


def refusal_here(module: nn.Module) -> str:
    """Why this rank's modules cannot be played now; empty if they can."""
    if torch.is_autocast_enabled("cpu"):
        return "autocast is on"
    if any(getattr(nn_module, name) for name in _GLOBAL_HOOKS):
        return "there are hooks on all modules"
    for name, inside in module.named_modules():
        if any(getattr(inside, hooks) for hooks in _HOOKS):
            return f"module {name!r} has hooks"
    for name, one in module.named_parameters():
        if one._backward_hooks:
            return f"parameter {name!r} has a hook"
    return ""


def require_only_computes(function: Any) -> None:
    """Unservable if the function prints or assigns what outlives it."""
    for code in _codes(getattr(function, "__code__", None)):
        if "print" in code.co_names:
            raise Unservable("the function with @smp.step prints")
        for one in dis.get_instructions(code):
            if one.opname == "STORE_GLOBAL" or (
                    one.opname == "STORE_DEREF" and one.argval in code.co_freevars):
                raise Unservable(f"the function with @smp.step assigns {one.argval!r} outside of it")


def _codes(code: types.CodeType | None) -> Iterator[types.CodeType]:
    if code is not None:
        yield code
        for inside in code.co_consts:
            if isinstance(inside, types.CodeType):
                yield from _codes(inside)


def _of_function(function: Any, seen: dict[int, int], owner: type | None = None) -> Iterator[Any]:
    """What it finds by its names: in its closure, in globals, as methods of its class."""
    function = getattr(function, "__func__", function)
    function = getattr(function, "__wrapped__", function)
    if not isinstance(function, types.FunctionType) or id(function) in seen:
        return
    seen[id(function)] = len(seen)
    for cell in function.__closure__ or ():
        try:
            yield from _of_name(cell.cell_contents, seen, ())
        except ValueError:  # not assigned yet
            yield None
    for code in _codes(function.__code__):
        for name in code.co_names:
            if name in function.__globals__:
                yield from _of_name(function.__globals__[name], seen, code.co_names)
            elif owner is not None and isinstance(getattr(owner, name, None), types.FunctionType):
                yield from _of_function(getattr(owner, name), seen, owner)


def _of_name(value: Any, seen: dict[int, int], names: tuple[str, ...]) -> Iterator[Any]:
    if isinstance(value, types.ModuleType):
        if not _of_library(value):
            for name in names:
                if isinstance(vars(value).get(name), _SIMPLE):
                    yield vars(value)[name]
    elif isinstance(value, types.FunctionType):
        if not _of_library(value):
            yield from _of_function(value, seen)
    elif isinstance(value, types.MethodType):
        yield _plain(value.__self__, 1, seen)
        yield from _of_function(value, seen, type(value.__self__))
    elif isinstance(value, (type, types.BuiltinFunctionType)):
        yield id(value)
    else:
        yield _plain(value, 0, seen)


def _of_attributes(module: nn.Module, seen: dict[int, int]) -> Iterator[Any]:
    for key, value in vars(module).items():
        if key not in _OF_MODULES:
            yield _plain(value, 0, seen)


def _plain(value: Any, depth: int, seen: dict[int, int]) -> Any:
    """A value that compares; of things that hold others, what they hold."""
    if isinstance(value, _SIMPLE):
        return value
    if isinstance(value, torch.Tensor):
        return (id(value), value._version)
    if isinstance(value, nn.Module):  # those of the model are asked one by one
        return id(value)
    if id(value) in seen or depth == _DEPTH:
        return id(value)
    if isinstance(value, (tuple, list, set, frozenset)):
        seen[id(value)] = len(seen)
        return (len(value), *(_plain(one, depth + 1, seen) for one in list(value)[:_LENGTH]))
    held = value if isinstance(value, dict) else getattr(value, "__dict__", None)
    if not isinstance(held, dict) or callable(value):
        return id(value)
    seen[id(value)] = len(seen)
    return (len(held), *((str(key), _plain(one, depth + 1, seen))
                         for key, one in list(held.items())[:_LENGTH]))


def _of_library(value: Any) -> bool:
    name = getattr(value, "__module__", None) or getattr(value, "__name__", "")
    return str(name).partition(".")[0] in _LIBRARIES
