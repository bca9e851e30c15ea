"""What each module of a model costs, from one forward, of shapes without numbers if it can be."""

from __future__ import annotations

import contextlib
import logging
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch._subclasses import FakeTensorMode
from torch.func import functional_call
from torch.utils import _pytree as pytree
from torch.utils.flop_counter import FlopCounterMode

from .split import ROOT

log = logging.getLogger(__name__)
Clock = Callable[[], float]


@dataclass(frozen=True)
class Traces:
    """What is measured by a true run, not derived from shapes."""

    execution_times: bool = False
    memory_usage: bool = False


class Costs:
    """By module name: in which order it was first called, and what one forward of it takes."""

    def __init__(self) -> None:
        self.first_call: dict[str, int] = {}
        self.work: dict[str, float] = {}  # FLOPs or seconds, of what is inside of it too
        self.output_bytes: dict[str, float] = {}
        self.kept_bytes: dict[str, float] = {}  # by autograd; of its own, where measured


def trace(module: nn.Module, args: tuple, kwargs: dict, traces: Traces = Traces()) -> Costs:
    """One forward of one micro-batch on fake tensors: nothing computed, no memory taken.

    Where the model asks for numbers, as one that chooses experts does, it is run once for true.
    ValueError names the module if that is not possible either.
    """
    if not (traces.execution_times or traces.memory_usage):
        try:
            return _run(module, args, kwargs, FakeTensorMode(allow_non_fake_inputs=True), traces)
        except _Untraceable as error:
            log.info("traced with numbers, since without %s", error)
    try:
        return _run(module, args, kwargs, None, traces)
    except _Untraceable as error:
        raise ValueError(
            f"{error}; set skip_tracing to true, which cuts by bytes of parameters, or "
            "auto_partition to false and cut by smp.partition"
        ) from error.__cause__


class _Untraceable(Exception):
    """Says in which module a trace ended, and why."""


def _run(module: nn.Module, args: tuple, kwargs: dict, mode: FakeTensorMode | None,
         traces: Traces) -> Costs:
    costs = Costs()
    counter = FlopCounterMode(display=False)
    clock = time.perf_counter if traces.execution_times else counter.get_total_flops
    stack: list[str] = []
    hooks = _watch(module, costs, clock, stack)

    def stand_in(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        if mode and leaf.is_meta:  # a parameter that waits for the split
            return torch.empty(leaf.shape, dtype=leaf.dtype)
        # Buffers may change in a forward; those of the model shall not.
        return mode.from_tensor(leaf) if mode else leaf.detach().clone()

    try:
        with torch.set_grad_enabled(traces.memory_usage), mode or contextlib.nullcontext():
            states = {name: stand_in(value) for name, value in module.named_buffers()}
            if mode:
                states |= {name: stand_in(value) for name, value in module.named_parameters()}
            args, kwargs = pytree.tree_map(stand_in, (args, kwargs))
            with counter, torch.random.fork_rng(devices=[]), _keeping(costs, stack, traces):
                functional_call(module, states, args, kwargs)
    except Exception as error:
        where = stack[-1] if stack else ROOT
        raise _Untraceable(
            f"module {where!r} cannot be traced: {type(error).__name__}: {error}"
        ) from error
    finally:
        for hook in hooks:
            hook.remove()
    return costs


def tree_of(module: nn.Module, costs: Costs | None = None) -> dict[str, Any]:
    """The model as docs/partition.md has modules in modules; without costs in the order made."""
    holders: dict[int, int] = {}
    for inside in module.modules():
        for parameter in inside.parameters(recurse=False):
            holders[id(parameter)] = holders.get(id(parameter), 0) + 1
    shared = {
        id(parameter): name
        for name, parameter in module.named_parameters()
        if holders[id(parameter)] > 1
    }
    return {"module": _piece("", module, costs, shared)}


def _piece(name: str, module: nn.Module, costs: Costs | None,
           shared: dict[int, str]) -> dict[str, Any]:
    own = list(module.parameters(recurse=False))
    children = [(f"{name}.{key}" if name else key, child) for key, child in module.named_children()]
    if costs is not None:
        children.sort(key=lambda child: _first_call(child[0], costs))
    parts = [_piece(key, child, costs, shared) for key, child in children]
    piece: dict[str, Any] = {
        "name": f"{ROOT}.{name}" if name else ROOT,
        "parameter_bytes": sum(_bytes(one) for one in own if id(one) not in shared),
    }
    if costs is not None:
        inside = sum(costs.work.get(key, 0.0) for key, _ in children)
        piece["time"] = max(0.0, costs.work.get(name, 0.0) - inside)
        piece["output_bytes"] = costs.output_bytes.get(name, 0)
        if costs.kept_bytes:
            piece["activation_bytes"] = costs.kept_bytes.get(name, 0)
        elif not children:
            piece["activation_bytes"] = costs.output_bytes.get(name, 0)
    common = {shared[id(one)]: _bytes(one) for one in own if id(one) in shared}
    if common:
        piece["shared"] = common
    if parts:
        piece["children"] = parts
    return piece


def _first_call(name: str, costs: Costs) -> float:
    """A list of modules, which itself is never called, stands where its first member does."""
    calls = [
        when for key, when in costs.first_call.items() if key == name or key.startswith(name + ".")
    ]
    return min(calls, default=math.inf)


def _watch(module: nn.Module, costs: Costs, clock: Clock, stack: list[str]) -> list:
    hooks = []
    for name, inside in module.named_modules():
        hooks.append(inside.register_forward_pre_hook(_enter(name, costs, clock, stack)))
        hooks.append(inside.register_forward_hook(_leave(name, costs, clock, stack)))
    return hooks


def _enter(name: str, costs: Costs, clock: Clock, stack: list[str]) -> Callable:
    def hook(*_: Any) -> None:
        costs.first_call.setdefault(name, len(costs.first_call))
        costs.work[name] = costs.work.get(name, 0.0) - clock()
        stack.append(name or ROOT)

    return hook


def _leave(name: str, costs: Costs, clock: Clock, stack: list[str]) -> Callable:
    def hook(_: Any, __: Any, output: Any) -> None:
        costs.work[name] += clock()
        costs.output_bytes[name] = costs.output_bytes.get(name, 0) + sum(
            _bytes(leaf) for leaf in pytree.tree_leaves(output) if isinstance(leaf, torch.Tensor)
        )
        stack.pop()

    return hook


@contextlib.contextmanager
def _keeping(costs: Costs, stack: list[str], traces: Traces) -> Iterator[None]:
    """Counts each storage that autograd keeps, once, for the module that keeps it first."""
    if not traces.memory_usage:
        yield
        return
    seen: set[int] = set()

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in seen and stack and not isinstance(tensor, nn.Parameter):
            seen.add(storage.data_ptr())
            name = "" if stack[-1] == ROOT else stack[-1]
            costs.kept_bytes[name] = costs.kept_bytes.get(name, 0) + storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        yield


def _bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()
