"""What a captured step took for granted: numbers in closures, globals and attributes, modes, shapes.

A program is played again only while all of this is as it was. What a function does beside computing, as printing
or counting, cannot be played, so such a step is the execution server's.
"""

from __future__ import annotations

import dis
import functools
import operator
import sys
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
# Compared at each step, so not more.
_MOST_ARRAY_BYTES = 1 << 16
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
        else _Walk().plain(leaf) for leaf in leaves)
    return (body.func, str(tree), arguments, torch.is_grad_enabled(), torch.get_default_dtype(),
            tuple(surroundings(body.func, module)))


def surroundings(function: Any, module: nn.Module) -> Iterator[Any]:
    """Plain values that the function and the model could read."""
    return _surroundings(function, module, _Walk())


def _surroundings(function: Any, module: nn.Module, walk: _Walk) -> Iterator[Any]:
    yield from walk.function(function)
    yield tuple((one.requires_grad, one.dtype) for one in module.parameters())
    for inside in module.modules():
        yield inside.training
        for key, value in vars(inside).items():
            if key not in _OF_MODULES:
                yield walk.plain(value)
        if not _of_library(type(inside)):
            yield from walk.function(type(inside).forward, type(inside))
            yield from walk.of_class(type(inside))


class Snapshot:
    """What stands around a step, to be compared and put back after the step was captured."""

    def __init__(self, function: Any, module: nn.Module):
        walk = _Walk()
        for _ in _surroundings(function, module, walk):
            pass
        holders: list[Any] = [*walk.holders, *(vars(inside) for inside in module.modules())]
        self._kept = [(holder, holder.copy()) for holder in holders]

    def changes(self) -> list[str]:
        """What is another thing now."""
        return [f"{name} outside of it" for name, _ in self._changes()]

    def changes_of_objects(self) -> list[str]:
        """As changes(), without plain values, which a first call may set for good."""
        return [f"{name} outside of it" for name, value in self._changes()
                if not isinstance(value, _SIMPLE)]

    def restore(self) -> None:
        for holder, kept in self._kept:
            if isinstance(holder, list):
                holder[:] = kept
            elif _is_array(holder):
                holder[...] = kept
            elif isinstance(holder, _Attributes):
                holder.put_back(kept)
            elif _differing(holder, kept):
                holder.clear()
                holder.update(kept)

    def _changes(self) -> Iterator[tuple[str, Any]]:
        for holder, kept in self._kept:
            if isinstance(holder, list):
                if len(holder) != len(kept) or not all(map(operator.is_, holder, kept)):
                    yield "a list", holder
            elif _is_array(holder):
                if holder.tobytes() != kept.tobytes():
                    yield "an array", holder
            else:
                now = holder.copy() if isinstance(holder, _Attributes) else holder
                yield from ((repr(key), now.get(key)) for key in _differing(now, kept))


def _differing(holder: dict, kept: dict) -> list[Any]:
    missing = object()
    return [key for key in {**kept, **holder}
            if not _same(holder.get(key, missing), kept.get(key, missing))]


def _same(one: Any, other: Any) -> bool:
    return one is other or (
        isinstance(one, _SIMPLE) and type(one) is type(other) and one == other)


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


class _Attributes:
    """Attributes of a class, or of an object with slots: no dict holds them that could be put back whole."""

    def __init__(self, owner: Any, names: list[str]):
        self._owner, self._names = owner, names

    def copy(self) -> dict[str, Any]:
        return {name: getattr(self._owner, name) for name in self._names if hasattr(self._owner, name)}

    def put_back(self, kept: dict[str, Any]) -> None:
        for name in _differing(self.copy(), kept):
            if name in kept:
                setattr(self._owner, name, kept[name])
            else:
                delattr(self._owner, name)


class _Thing:
    """A thing that equals itself alone. It keeps the thing, whose identity another one would get otherwise."""

    __slots__ = ("_thing",)

    def __init__(self, thing: Any):
        self._thing = thing

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Thing) and self._thing is other._thing

    def __hash__(self) -> int:
        return id(self._thing)


class _Walk:
    """Goes from what a function names to what that holds; each thing once."""

    def __init__(self) -> None:
        self._seen: dict[int, Any] = {}  # by identity; kept, so that no other thing gets the identity of one that is gone
        self.holders: list[Any] = []  # what could be changed while the step is captured

    def function(self, function: Any, owner: type | None = None) -> Iterator[Any]:
        """What it finds by its names: in its closure, in globals, as methods of its class."""
        function = getattr(function, "__func__", function)
        function = getattr(function, "__wrapped__", function)
        if not isinstance(function, types.FunctionType) or not self._is_new(function):
            return
        names = tuple(name for code in _codes(function.__code__) for name in code.co_names)
        for cell in function.__closure__ or ():
            try:
                yield from self._named(cell.cell_contents, names)
            except ValueError:  # not assigned yet
                yield None
        for code in _codes(function.__code__):
            for name in code.co_names:
                if name in function.__globals__:
                    yield from self._named(function.__globals__[name], code.co_names)
                elif owner is not None and isinstance(getattr(owner, name, None), types.FunctionType):
                    yield from self.function(getattr(owner, name), owner)

    def of_class(self, kind: type) -> Iterator[Any]:
        """Values that a class, and those that it is made of, hold for all objects of theirs."""
        for one in kind.__mro__:
            # Python's own classes hold what programs do not set: of all loggers, say.
            if _of_library(one) or _of_python(one) or not self._is_new(one):
                continue
            held = {name: value for name, value in vars(one).items()
                    if not name.startswith("__") and not callable(value) and not hasattr(value, "__get__")}
            self.holders.append(_Attributes(one, list(held)))
            for name, value in held.items():
                yield name, self.plain(value, 1)

    def plain(self, value: Any, depth: int = 0) -> Any:
        """A value that compares; of things that hold others, what they hold."""
        if isinstance(value, _SIMPLE):
            return value
        if isinstance(value, torch.Tensor):
            return (_Thing(value), value._version)
        if isinstance(value, nn.Module):  # those of the model are asked one by one
            return _Thing(value)
        if isinstance(value, types.FunctionType) and not _of_library(value):
            return (_Thing(value), *self.function(value))
        if isinstance(value, type):
            return (_Thing(value), *self.of_class(value))
        if _is_array(value):
            contents = _contents(value)
            self.holders.append(value)
            return contents
        if depth == _DEPTH or not self._is_new(value):
            return _Thing(value)
        if isinstance(value, functools.partial):
            return tuple(self.plain(one, depth + 1) for one in (value.func, value.args, value.keywords))
        if isinstance(value, (tuple, list, set, frozenset)):
            if isinstance(value, list):
                self.holders.append(value)
            return (len(value), *(self.plain(one, depth + 1) for one in list(value)[:_LENGTH]))
        held = value if isinstance(value, dict) else getattr(value, "__dict__", None)
        slots = _slots(value)
        if (type(held) is not dict and not slots) or isinstance(value, types.FunctionType):
            return _Thing(value)
        if type(held) is dict:
            self.holders.append(held)
        if slots:
            self.holders.append(_Attributes(value, list(slots)))
        items = [*(held.items() if type(held) is dict else ()), *slots.items()]
        of_class = () if isinstance(value, dict) else self.of_class(type(value))
        return (len(items), *((str(key), self.plain(one, depth + 1)) for key, one in items[:_LENGTH]), *of_class)

    def _named(self, value: Any, names: tuple[str, ...], depth: int = 0) -> Iterator[Any]:
        if isinstance(value, types.ModuleType):
            if not _of_library(value) and depth < _DEPTH:
                held = vars(value)
                for one in (held[name] for name in names if name in held):
                    yield from self._named(one, names, depth + 1)
        elif isinstance(value, types.FunctionType):
            if not _of_library(value):
                yield from self.function(value)
        elif isinstance(value, types.MethodType):
            yield self.plain(value.__self__, 1)
            yield from self.function(value, type(value.__self__))
        elif isinstance(value, types.BuiltinFunctionType):
            yield _Thing(value)
        else:
            yield self.plain(value)

    def _is_new(self, value: Any) -> bool:
        known = id(value) in self._seen
        self._seen[id(value)] = value
        return not known


def _of_python(kind: type) -> bool:
    return str(kind.__module__).partition(".")[0] in sys.stdlib_module_names


def _is_array(value: Any) -> bool:
    return any(one.__name__ == "ndarray" and one.__module__ == "numpy" for one in type(value).__mro__)


def _contents(array: Any) -> tuple:
    """An array may be changed in place, and does not tell."""
    if array.nbytes > _MOST_ARRAY_BYTES or array.dtype.hasobject:
        raise Unservable(f"the step may read an array of numpy of {array.nbytes} bytes")
    return (array.shape, str(array.dtype), array.tobytes())


def _slots(value: Any) -> dict[str, Any]:
    """Of an object whose class names them."""
    names = []
    for one in type(value).__mro__:
        if not _of_library(one):
            slots = vars(one).get("__slots__", ())
            names += [_mangled(name, one) for name in ([slots] if isinstance(slots, str) else slots)]
    return {name: getattr(value, name) for name in names
            if name not in ("__dict__", "__weakref__") and hasattr(value, name)}


def _mangled(name: str, kind: type) -> str:
    """As Python stores a private name of the class."""
    private = name.startswith("__") and not name.endswith("__")
    return f"_{kind.__name__.lstrip('_')}{name}" if private else name


def _of_library(value: Any) -> bool:
    name = getattr(value, "__module__", None) or getattr(value, "__name__", "")
    return str(name).partition(".")[0] in _LIBRARIES
