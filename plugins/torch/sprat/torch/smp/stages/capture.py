"""The body of a step as a Program: torch.export of the model's call, the loss and what is returned.

Non-strict, without decomposition: the same ATen operations as eager, and so the same bits.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import pickle
import random
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NoReturn

import torch
from torch import fx, nn
from torch.nn.utils import stateless
from torch.utils import _pytree as pytree

from ..cutting import own_forwards
from .constants import knowing_constants
from .program import (
    BUFFER,
    CONSTANT,
    GETITEM,
    INPUT,
    PARAMETER,
    Form,
    Operation,
    Program,
    Source,
    Unservable,
    Use,
    form_of,
    function_of,
    with_values,
)
from .surroundings import Snapshot

if TYPE_CHECKING:
    from ..model import DistributedModel

MOST_CONSTANT_BYTES = 2**24
_ASSERTIONS = ("aten._assert_tensor_metadata.default", "aten._assert_scalar.default")


class Recorder:
    """Stands at the model while its step is captured."""

    def __init__(self, model: DistributedModel):
        self._model = model
        self.loss: torch.Tensor | None = None
        self.result: Any = None  # the body's, with Use in the place of tensors

    def call(self, args: tuple, kwargs: dict) -> Any:
        return self._model.compute(args, kwargs)

    def backward(self, loss: Any, gradients: Any = None) -> None:
        if self.loss is not None:
            raise Unservable("the function with @smp.step calls model.backward twice")
        if gradients is not None:
            raise Unservable("model.backward got gradients of its own")
        if not isinstance(loss, torch.Tensor):
            raise Unservable(f"model.backward got a {type(loss).__name__}")
        if loss.numel() != 1:
            raise Unservable(f"model.backward got a tensor of shape {tuple(loss.shape)}, and a loss is one number")
        self.loss = loss


class Captured:
    """A program, and the forms of its sources."""

    def __init__(self, program: Program, forms: list[Form]):
        self.program = program
        self.forms = forms


def tensors_of(body: functools.partial) -> list[torch.Tensor]:
    """The tensors among the arguments of a micro-batch's body, in order."""
    leaves = pytree.tree_leaves((body.args, body.keywords))
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]


def capture(model: DistributedModel, body: functools.partial) -> Captured:
    """Runs the body once without numbers. Unservable says why it cannot be a program."""
    inputs = tensors_of(body)
    if any(one.requires_grad for one in inputs):
        raise Unservable("a tensor of the batch needs a gradient")
    parameters = {name: _with_shape(one) for name, one in model.module.named_parameters()}
    buffers = {name: _with_shape(one) for name, one in model.module.named_buffers()}
    recorder = Recorder(model)
    trace = _Trace(model, body, recorder, list(parameters), list(buffers))
    with own_forwards(model.module), _no_other_random_numbers():
        around = Snapshot(body.func, model.module)
        try:
            with _quiet(), _only_plain_autograd(), torch.random.fork_rng(devices=[]):
                exported = torch.export.export(
                    trace, (list(parameters.values()), list(buffers.values()), inputs),
                    strict=False)
        except Exception as error:
            around.restore()
            if isinstance(error, Unservable):
                raise
            raise Unservable(f"torch.export: {type(error).__name__}: {_first_lines(error)}") from error
        if left := around.changes_of_objects():
            around.restore()
            raise Unservable(f"the step changes {left[0]}")
    given = [*(Source(PARAMETER, name) for name in parameters),
             *(Source(BUFFER, name) for name in buffers),
             *(Source(INPUT, str(number)) for number in range(len(inputs)))]
    forms = [form_of(one) for one in (*parameters.values(), *buffers.values(), *inputs)]
    return _Reader(given, forms, exported).read(recorder.result, recorder.loss is not None)


class _Trace(nn.Module):
    """The body as a function of parameters, buffers and the batch's tensors."""

    def __init__(self, model: DistributedModel, body: functools.partial, recorder: Recorder,
                 parameters: list[str], buffers: list[str]):
        super().__init__()
        # In a tuple, so that the model is not a module of this one.
        self._held = (model, body, recorder)
        self._names = [*parameters, *buffers]

    def forward(self, parameters: list, buffers: list, inputs: list) -> list[torch.Tensor]:
        model, body, recorder = self._held
        leaves, tree = pytree.tree_flatten((body.args, body.keywords))
        rest = iter(inputs)
        leaves = [next(rest) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        args, keywords = pytree.tree_unflatten(leaves, tree)
        values = dict(zip(self._names, [*parameters, *buffers]))
        model.recorder = recorder
        try:
            with _as_eager(), knowing_constants(), stateless._reparametrize_module(
                    model.module, values, tie_weights=True):
                result = body.func(*args, **keywords)
                self._require_kept(model.module, values)
        finally:
            model.recorder = None
        outputs = [] if recorder.loss is None else [recorder.loss]

        def placed(leaf: Any) -> Any:
            if not isinstance(leaf, torch.Tensor):
                return leaf
            outputs.append(leaf)
            return Use(len(outputs) - 1)

        # Not in this module, which export puts a stand-in in the place of.
        recorder.result = pytree.tree_map(placed, result)
        return outputs

    def _require_kept(self, module: nn.Module, values: dict[str, torch.Tensor]) -> None:
        for name, one in (*module.named_parameters(), *module.named_buffers()):
            if name in values and one is not values[name]:
                raise Unservable(f"the model puts another tensor in the place of {name!r}")


class _Reader:
    """Turns an exported graph into a Program."""

    def __init__(self, given: list[Source], forms: list[Form], exported: Any):
        self._exported = exported
        self._sources, self._forms = list(given), list(forms)
        self._constants: dict[str, torch.Tensor] = {}
        self._operations: list[Operation] = []
        self._values: dict[fx.Node, Any] = {}  # Use, or a plain value
        self._given = len(given)

    def read(self, result: Any, has_loss: bool) -> Captured:
        graph = self._exported.graph_module.graph
        self._take_placeholders(graph)
        outputs = self._take(self._exported.graph_module, graph, True)
        used = [one if isinstance(one, Use) else None for one in outputs]
        results = pytree.tree_map(
            lambda leaf: _returned(used[leaf.value], self._sources) if isinstance(leaf, Use) else leaf,
            result)
        try:
            pickle.dumps(results)
        except Exception as error:
            raise Unservable(f"what the step returns does not pickle: {error}") from error
        loss = used[0].value if has_loss else None
        program = Program(tuple(self._sources), tuple(self._operations), loss, results,
                          self._constants)
        return Captured(_without_dead(program), self._forms)

    def _take_placeholders(self, graph: fx.Graph) -> None:
        signature = self._exported.graph_signature
        given = iter(range(self._given))
        nodes = {node.name: node for node in graph.nodes if node.op == "placeholder"}
        for spec in signature.input_specs:
            kind, node = spec.kind.name, nodes.get(getattr(spec.arg, "name", ""))
            if kind == "USER_INPUT":
                number = next(given)
                if node is not None:
                    self._values[node] = Use(number)
            elif kind == "CONSTANT_TENSOR" or kind == "BUFFER":
                tensor = self._exported.constants.get(spec.target)
                if tensor is None:
                    tensor = self._exported.state_dict[spec.target]
                if node is not None:
                    self._values[node] = self._constant(tensor)
            else:
                raise Unservable(f"torch.export has an input of kind {kind}")

    def _constant(self, tensor: torch.Tensor) -> Use:
        if tensor.numel() * tensor.element_size() > MOST_CONSTANT_BYTES:
            raise Unservable(f"the step uses a tensor of shape {tuple(tensor.shape)} that is neither "
                             "the model's nor an argument: make it a buffer or pass it")
        if tensor.requires_grad:
            raise Unservable("the step uses a tensor that needs a gradient and is not the model's")
        name = str(len(self._constants))
        self._constants[name] = tensor.detach().contiguous().clone()
        number = len(self._sources)
        self._sources.append(Source(CONSTANT, name))
        self._forms.append(form_of(self._constants[name]))
        return Use(number)

    def _take(self, module: fx.GraphModule, graph: fx.Graph, gradients: bool) -> list[Any]:
        """Appends the operations of a graph whose placeholders have values; its outputs."""
        for node in graph.nodes:
            if node.op == "placeholder":
                if node not in self._values:
                    raise Unservable(f"the graph has an input {node.name} that nothing gives")
            elif node.op == "get_attr":
                self._values[node] = _attribute(module, node.target)
                if isinstance(self._values[node], torch.Tensor):
                    raise Unservable(f"the graph has a constant {node.target!r} inside")
            elif node.op == "output":
                return [self._argument(one) for one in pytree.tree_leaves(
                    node.args, is_leaf=lambda leaf: isinstance(leaf, fx.Node))]
            elif node.op == "call_function":
                self._call(module, node, gradients)
            else:
                raise Unservable(f"the graph has a {node.op}")
        return []

    def _call(self, module: fx.GraphModule, node: fx.Node, gradients: bool) -> None:
        target = node.target
        if getattr(target, "__name__", "") == "getitem":
            made, index = self._argument(node.args[0]), node.args[1]
            if isinstance(made, list):  # of a graph within the graph
                self._values[node] = made[index]
            else:
                self._append(node, Operation(node.name, GETITEM, (made, index), {}, gradients))
        elif isinstance(target, torch._ops.OpOverload):
            self._overload(node, target, gradients)
        elif "wrap_with_set_grad_enabled" in str(target):
            enabled, inner, *args = (self._argument(one) for one in node.args)
            if enabled and not (gradients and torch.is_grad_enabled()):
                raise Unservable("the step turns gradients on where they are off")
            self._values[node] = self._inner(inner, args, gradients and enabled)
        elif "wrap_with_autocast" in str(target):
            _, _, enabled, _, inner, *args = (self._argument(one) for one in node.args)
            if enabled:
                raise Unservable("the step turns autocast on")
            self._values[node] = self._inner(inner, args, gradients)
        else:
            raise Unservable(f"the graph calls {target}")

    def _inner(self, module: fx.GraphModule, args: list[Any], gradients: bool) -> list[Any]:
        places = [node for node in module.graph.nodes if node.op == "placeholder"]
        self._values.update(zip(places, args))
        return self._take(module, module.graph, gradients)

    def _overload(self, node: fx.Node, target: torch._ops.OpOverload, gradients: bool) -> None:
        name = str(target)
        if name in _ASSERTIONS:
            return
        args = tuple(self._argument(one) for one in node.args)
        kwargs = {key: self._argument(one) for key, one in node.kwargs.items()}
        try:
            known = function_of(name) is target
        except (AttributeError, ValueError):
            known = False
        if not known:
            raise Unservable(f"the graph calls {name}, which has no name of its own")
        writes = tuple(one.value for one in _written(target, args, kwargs))
        self._append(node, Operation(node.name, name, args, kwargs, gradients,
                                     _draws(target, args, kwargs), writes))

    def _append(self, node: fx.Node, operation: Operation) -> None:
        # Placeholders come first, so all sources are known.
        self._values[node] = Use(len(self._sources) + len(self._operations))
        self._operations.append(operation)

    def _argument(self, argument: Any) -> Any:
        if isinstance(argument, fx.Node):
            return self._values[argument]
        if isinstance(argument, (list, tuple)):
            made = [self._argument(one) for one in argument]
            return made if isinstance(argument, list) else tuple(made)
        if isinstance(argument, dict):
            return {key: self._argument(one) for key, one in argument.items()}
        if isinstance(argument, slice):
            return slice(*(self._argument(one) for one in (argument.start, argument.stop, argument.step)))
        if isinstance(argument, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            raise Unservable(f"a size depends on numbers: {argument}")
        return argument


def _returned(used: Use | None, sources: list[Source]) -> Use:
    if used is None:
        raise Unservable("the step returns a tensor that it does not compute")
    if used.value < len(sources) and sources[used.value].kind != INPUT:
        source = sources[used.value]
        raise Unservable(f"the step returns {source.kind} {source.name!r}")
    return used


def _attribute(module: nn.Module, path: str) -> Any:
    for name in path.split("."):
        module = getattr(module, name)
    return module


def _draws(target: torch._ops.OpOverload, args: tuple, kwargs: dict) -> bool:
    """Whether it takes random numbers: dropout that is off does not."""
    if torch.Tag.nondeterministic_seeded not in target.tags:
        return False
    given = _named_arguments(target, args, kwargs)
    off = given.get("train") is False or given.get("training") is False
    probability = given.get("dropout_p", given.get("p"))
    return not off and probability not in (0, 0.0)


def _written(target: torch._ops.OpOverload, args: tuple, kwargs: dict) -> list[Use]:
    """The values that it changes in place."""
    given = _named_arguments(target, args, kwargs)
    written = [given[one.name] for one in target._schema.arguments
               if one.alias_info is not None and one.alias_info.is_write and one.name in given]
    # Their schemas do not say so.
    if given.get("training") or given.get("use_input_stats"):
        written += [given[key] for key in ("running_mean", "running_var") if given.get(key) is not None]
    if not all(isinstance(one, Use) for one in written):
        raise Unservable(f"{target} changes several tensors in place")
    return written


def _named_arguments(target: torch._ops.OpOverload, args: tuple, kwargs: dict) -> dict[str, Any]:
    names = [one.name for one in target._schema.arguments]
    defaults = {one.name: one.default_value for one in target._schema.arguments
                if one.has_default_value()}
    return {**defaults, **dict(zip(names, args)), **kwargs}


def _without_dead(program: Program) -> Program:
    """Without operations whose values nobody takes; values are numbered anew."""
    needed = set(program.result_values())
    live: list[int] = []
    for number in reversed(range(len(program.operations))):
        operation = program.operations[number]
        if program.value_of(number) in needed or operation.draws or operation.writes:
            live.append(number)
            needed |= set(operation.uses())
    first = len(program.sources)
    places = {value: value for value in range(first)}
    places |= {first + old: first + new for new, old in enumerate(reversed(live))}
    return renumbered(program, [program.operations[one] for one in reversed(live)],
                      program.sources, places)


def renumbered(program: Program, operations: list[Operation], sources: tuple[Source, ...],
               places: dict[int, int]) -> Program:
    """With these operations and sources, and values where `places` says."""
    def moved(value: int) -> Use:
        return Use(places[value])

    changed = tuple(
        Operation(one.name, one.target, with_values(one.args, moved), with_values(one.kwargs, moved),
                  one.gradients, one.draws, tuple(places[value] for value in one.writes))
        for one in operations)
    results = pytree.tree_map(lambda leaf: moved(leaf.value) if isinstance(leaf, Use) else leaf,
                              program.results)
    loss = None if program.loss is None else places[program.loss]
    return Program(sources, changed, loss, results, program.constants)


def _with_shape(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, or one of its shape if its numbers are elsewhere: untouched memory costs nothing."""
    if tensor.is_meta or any(step == 0 for step, size in zip(tensor.stride(), tensor.shape) if size > 1):
        made = torch.empty(tensor.shape, dtype=tensor.dtype)
        return made.requires_grad_(tensor.requires_grad)
    return tensor


@contextlib.contextmanager
def _no_other_random_numbers() -> Iterator[None]:
    """Unservable if the body draws from Python's or numpy's."""
    states = _other_random_states()
    yield
    if states != _other_random_states():
        raise Unservable("the step draws random numbers that are not PyTorch's")


def _other_random_states() -> list[Any]:
    states: list[Any] = [random.getstate()]
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        kind, keys, *rest = numpy.random.get_state()
        states.append((kind, keys.tobytes(), *rest))
    return states


@contextlib.contextmanager
def _as_eager() -> Iterator[None]:
    """Models that ask whether they are traced take the way that they take when they are not.

    The other way, as without a mask that is all ones, has other bits.
    """
    compiler = torch.compiler
    kept = (compiler._is_compiling_flag, compiler._is_exporting_flag)
    compiler._is_compiling_flag = compiler._is_exporting_flag = False
    asks = sys.modules.get("transformers.utils.import_utils")
    asked = getattr(asks, "is_fake_tensor", None)
    if asked is not None:
        asks.is_fake_tensor = lambda value: False
    try:
        yield
    finally:
        compiler._is_compiling_flag, compiler._is_exporting_flag = kept
        if asked is not None:
            asks.is_fake_tensor = asked


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Export warns of what it decides itself."""
    loggers = [logging.getLogger(name) for name in ("torch.export", "torch.fx", "torch._export")]
    levels = [one.level for one in loggers]
    for one in loggers:
        one.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for one, level in zip(loggers, levels):
            one.setLevel(level)


@contextlib.contextmanager
def _only_plain_autograd() -> Iterator[None]:
    """Unservable for what a graph of operations has no place for, and export would leave out."""

    def refuses(what: str) -> Callable[..., NoReturn]:
        def refuse(*_: Any, **__: Any) -> NoReturn:
            raise Unservable(what)

        return refuse

    def apply(cls: type, *_: Any, **__: Any) -> NoReturn:
        recomputes = cls.__module__ == "torch.utils.checkpoint"
        raise Unservable(stored if recomputes else f"{cls.__name__} is a function of autograd with a "
                                                   "backward of its own")

    saved, stored = torch.autograd.graph.saved_tensors_hooks, "activations are recomputed or stored elsewhere"
    places = [
        (torch.autograd.Function, "apply", classmethod(apply)),
        (saved, "__enter__", refuses(stored)),
        (torch.Tensor, "register_hook", refuses("a hook on a tensor")),
        (torch.Tensor, "retain_grad", refuses("a gradient that is kept of a value")),
        (torch.Tensor, "backward", refuses("a backward that is not model.backward")),
        (torch.autograd, "grad", refuses("a gradient inside of the step")),
    ]
    kept = [(owner, name, vars(owner).get(name)) for owner, name, _ in places]
    for owner, name, refuse in places:
        setattr(owner, name, refuse)
    try:
        yield
    finally:
        for owner, name, before in kept:
            delattr(owner, name) if before is None else setattr(owner, name, before)


def _first_lines(error: Exception, count: int = 2) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines[:count])
