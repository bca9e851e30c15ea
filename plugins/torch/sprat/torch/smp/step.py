"""@smp.step: a function that runs once for each micro-batch, over the ranks of a pipeline."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

import torch
from torch.utils import _pytree as pytree

from .faults.interrupts import held_back
from .model import DistributedModel, latest_model
from .server.messages import Message
from .server.modes import modes_here, with_modes
from .stages.runner import Call


class StepOutput:
    """What a step returned: `outputs` has it of each micro-batch, in order, without gradients."""

    def __init__(self, outputs: Sequence[Any]):
        self.outputs = list(outputs)

    def reduce_sum(self) -> Any:
        """The sum over micro-batches, tensor by tensor."""
        return self._join(lambda parts: functools.reduce(torch.add, parts))

    def reduce_mean(self) -> Any:
        """The mean over micro-batches, tensor by tensor."""
        return self._join(lambda parts: functools.reduce(torch.add, parts) / len(parts))

    def concat(self) -> Any:
        """Micro-batches one after another along the first axis."""
        return self._join(torch.cat)

    def stack(self) -> Any:
        """Micro-batches along a new first axis."""
        return self._join(torch.stack)

    def merge(self) -> Any:
        """As concat(); TensorFlow's name for it."""
        return self.concat()

    def accumulate(self, method: str = "variable", var: Any = None) -> Any:
        """As reduce_mean(); TensorFlow's name for it. method, var: taken."""
        return self.reduce_mean()

    def __getitem__(self, key: Any) -> StepOutput:
        """Of outputs that are tuples or dicts: that member of each."""
        return StepOutput([output[key] for output in self.outputs])

    def __len__(self) -> int:
        return len(self.outputs)

    def _join(self, join: Callable[[list[torch.Tensor]], torch.Tensor]) -> Any:
        def joined(*parts: Any) -> Any:
            return join(list(parts)) if isinstance(parts[0], torch.Tensor) else parts[0]

        return pytree.tree_map(joined, self.outputs[0], *self.outputs[1:])


def step(function: Callable | None = None, *, non_split_inputs: Sequence[str] = (),
         input_split_axes: dict[str, int] | None = None, detach_outputs: bool = True) -> Callable:
    """Decorates a training step: forward, model.backward(loss), what it returns.

    Tensor arguments, also in lists, tuples, dicts and sets, are cut along axis 0, or that of
    input_split_axes, into `microbatches` equal parts, but for those of non_split_inputs; objects
    with smp_slice(parts, part, axis) cut themselves. The function runs once for each part, where the model's root is (pp_rank 0); the
    other ranks of the pipeline run their modules, and every rank gets what it returned.
    detach_outputs: taken; what goes to other ranks never has gradients.
    """
    if function is None:
        return functools.partial(step, non_split_inputs=non_split_inputs,
                                 input_split_axes=input_split_axes, detach_outputs=detach_outputs)
    axes = dict(input_split_axes or {})

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> StepOutput:
        given = (one for one in (*args, *kwargs.values()) if isinstance(one, DistributedModel))
        model = next(given, None) or latest_model()
        try:
            parts = _cut(function, args, kwargs, model.microbatches, set(non_split_inputs), axes)
        except Exception as error:  # of smp_slice, whatever it raises
            refuse_step(model, error)
        return StepOutput(run_step(model, [functools.partial(function, *one.args, **one.kwargs)
                                           for one in parts], _forms(parts[0]),
                                   trains=torch.is_grad_enabled()))

    return run


def evaluate(model: DistributedModel, args: tuple, kwargs: dict) -> Any:
    """The model's output for one batch, on every rank of the pipeline."""
    body = functools.partial(model, *args, **kwargs)
    return run_step(model, [body], _forms_of((args, kwargs)), trains=False)[0]


def refuse_step(model: DistributedModel, error: Exception) -> NoReturn:
    """Instead of run_step() on a rank that cannot take part: raises on all, which else would wait."""
    with held_back():
        model.refuse_split(error)
        with _whole_or_not_at_all(model, trains=torch.is_grad_enabled()):
            model.begin_step(torch.is_grad_enabled(), error)
    raise AssertionError("begin_step raises what it is given")


def run_step(model: DistributedModel, bodies: list[Callable[[], Any]], forms: Any,
             trains: bool = True) -> list[Any]:
    """One step over the pipeline; the bodies run on its first rank."""
    with held_back():
        model.split(bodies[0])
        with _whole_or_not_at_all(model, trains):
            number = model.begin_step(trains)
            seed = int(torch.randint(2**62, ()))
            after = torch.get_rng_state()
            call = Call(number, len(bodies), forms, trains, model.module.training, seed)
            engine = model.stages.agree(bodies, call, _difference) if model.stages else None
            if engine is not None:
                results = model.stages.play(engine, bodies)
            else:
                results = _by_server(model, bodies, call)
            torch.set_rng_state(after)
    return results


@contextlib.contextmanager
def _whole_or_not_at_all(model: DistributedModel, trains: bool) -> Iterator[None]:
    """A step that fails here, or on another replica, leaves nothing behind, and raises on all of them."""
    kept, failure = torch.get_rng_state(), None
    try:
        yield
    except BaseException as error:
        failure = error
    try:
        model.require_replicas(failure, trains)
        model.end_step() if trains else model.end_evaluation()
    except BaseException:
        model.end_evaluation()
        torch.set_rng_state(kept)
        raise
    finally:
        del failure  # its traceback has this frame


def _by_server(model: DistributedModel, bodies: list[Callable[[], Any]], call: Call) -> list[Any]:
    begin = Message("begin", value=call.begin)
    if model.server.wire.rank > 0:
        results = model.server.serve(lambda other: _difference(call.begin, other.value))
        return pytree.tree_map(_detached, results)
    modes = modes_here()
    results = model.server.lead(begin, [_in(modes, body) for body in bodies], call.seed)
    results = pytree.tree_map(_detached, results)
    model.server.end(results)
    return results


def _in(modes: dict[str, Any], body: Callable[[], Any]) -> Callable[[], Any]:
    """With the caller's autograd and autocast, which belong to threads."""

    def run() -> Any:
        with with_modes(modes):
            return body()

    return run


def _difference(mine: tuple, theirs: tuple) -> str | None:
    """Arguments count on rank 0 alone: scripts that read data there pass empty tensors elsewhere."""
    names = ("step", "number of micro-batches", "way", "arguments")
    for name, here, there in zip(names, mine, theirs):
        stands_in = name == "arguments" and all(0 in shape for shape, _ in here)
        if here != there and not stands_in:
            return (
                f"this rank's {name} of @smp.step: {here}; rank 0's: {there}; the ranks of a "
                "pipeline call the same steps in the same way, with the same batches"
            )
    return None


def _cut(function: Callable, args: tuple, kwargs: dict, parts: int, whole: set[str],
         axes: dict[str, int]) -> list[inspect.BoundArguments]:
    """The arguments of each micro-batch. ValueError names what cannot be cut, TypeError what is no argument."""
    signature = inspect.signature(function)
    bound = [signature.bind(*args, **kwargs) for _ in range(parts)]
    unknown = (whole | set(axes)) - set(signature.parameters)
    if unknown:
        raise ValueError(f"{function.__name__} has no argument {sorted(unknown)[0]!r} to cut")
    for name, value in list(bound[0].arguments.items()):
        if name not in whole and parts > 1:
            axis = axes.get(name, 0)
            for path, leaf in pytree.tree_flatten_with_path(value)[0]:
                _require_cuttable(f"{name!r}{pytree.keystr(path)}", name, leaf, axis, parts)
            for part, one in enumerate(bound):
                one.arguments[name] = pytree.tree_map(functools.partial(_slice, axis, parts, part), value)
    return bound


def _require_cuttable(place: str, name: str, leaf: Any, axis: int, parts: int) -> None:
    if isinstance(leaf, (set, frozenset)):
        for one in leaf:
            _require_cuttable(place, name, one, axis, parts)
    elif _is_cut(leaf):
        if not -leaf.dim() <= axis < leaf.dim() or leaf.shape[axis] % parts != 0:
            raise ValueError(
                f"argument {place} of @smp.step has shape {tuple(leaf.shape)}, which microbatches = "
                f"{parts} do not divide along axis {axis}: change the batch, or name {name!r} in "
                "non_split_inputs"
            )
    elif isinstance(leaf, Mapping) and not hasattr(leaf, "smp_slice"):
        # As what transformers' tokenizers return: every micro-batch would have all of it.
        if any(map(_is_cut, leaf.values())):
            raise ValueError(
                f"argument {place} of @smp.step is a {type(leaf).__name__}, whose tensors are not cut: pass "
                f"dict(...) of it, give it smp_slice(parts, part, axis), or name {name!r} in non_split_inputs"
            )


def _is_cut(leaf: Any) -> bool:
    return (isinstance(leaf, torch.Tensor) and not isinstance(leaf, torch.nn.Parameter) and leaf.dim() > 0
            and not hasattr(leaf, "smp_slice"))


def _slice(axis: int, parts: int, part: int, value: Any) -> Any:
    if hasattr(value, "smp_slice"):
        return value.smp_slice(parts, part, axis)
    if isinstance(value, (set, frozenset)):
        return type(value)(_slice(axis, parts, part, one) for one in value)
    if not _is_cut(value):
        return value
    size = value.shape[axis] // parts
    return value.narrow(axis, part * size, size)


def _forms(bound: inspect.BoundArguments) -> Any:
    return _forms_of((bound.args, bound.kwargs))


def _forms_of(value: Any) -> list[tuple]:
    return [
        (tuple(leaf.shape), str(leaf.dtype))
        for leaf in pytree.tree_leaves(value)
        if isinstance(leaf, torch.Tensor)
    ]


def _detached(value: Any) -> Any:
    return value.detach() if isinstance(value, torch.Tensor) else value
