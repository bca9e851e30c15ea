"""Where in a model a backward has failed, which autograd does not say.

Nothing is noted while steps go well. After an error the graph itself tells how far the backward has come: a node
that has run has given up what it had saved. Autograd takes the newest node that can run, so the one that failed is
known. Which operation has made it is found by the piece's forward without numbers, in which nodes keep the line of
code they come from: nodes come in the same order again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch._subclasses import FakeTensorMode

from .code import Compiled
from .facts import fake_tensor
from .program import form_of

log = logging.getLogger(__name__)
_LIBRARIES = ("torch", "sprat")


@dataclass(frozen=True)
class Backward:
    """Of a piece: what its forward was given, and its outputs that had gradients."""

    code: Compiled
    sources: Sequence[torch.Tensor]
    leaves: Sequence[torch.Tensor]
    outputs: dict[int, torch.Tensor]  # by their place among those of the piece


def place_of(error: BaseException, failed: Backward, module: nn.Module) -> str:
    """The parameter whose hook, or the operation whose backward has raised, with its module; or the piece's modules."""
    parameter = _parameter_in(error, module)
    if parameter:
        path, _, name = parameter.rpartition(".")
        return f"module {path!r}, a hook of its parameter {name!r}"
    try:
        place = failed.code.place(_line_of(failed))
    except Exception as other:  # which is no error of the program's
        log.debug("the operation whose backward failed is not known: %s", other)
        place = ""
    return place or failed.code.modules()


def _parameter_in(error: BaseException, module: nn.Module) -> str:
    """The model's parameter that the program's own code, as a hook's, had at hand where it raised."""
    names = {id(one): name for name, one in module.named_parameters()}
    found, traceback = "", error.__traceback__
    while traceback is not None:
        frame = traceback.tb_frame
        if str(frame.f_globals.get("__name__")).partition(".")[0] not in _LIBRARIES:
            held = [one for value in frame.f_locals.values()
                    for one in (value if isinstance(value, (tuple, list)) else (value,))]
            found = next((names[id(one)] for one in held if id(one) in names), found)
        traceback = traceback.tb_next
    return found


def _nodes(outputs: Iterable[torch.Tensor]) -> list[Any]:
    """The graph behind the tensors, the newest first, without those that only keep a leaf's gradient."""
    open_ones = [one.grad_fn for one in outputs if one.grad_fn is not None]
    found: dict[int, Any] = {}
    while open_ones:
        node = open_ones.pop()
        if node is not None and id(node) not in found and not hasattr(node, "variable"):
            found[id(node)] = node
            open_ones += [after for after, _ in node.next_functions]
    return sorted(found.values(), key=lambda node: node._sequence_nr(), reverse=True)


def _line_of(failed: Backward) -> int:
    """The line of the piece's code that has made the node which failed. LookupError if it is not known."""
    nodes = _nodes(failed.outputs.values())
    place = next((place for place, node in enumerate(nodes) if _has_not_run(node)), None)
    if place is None:
        raise LookupError("every node that has saved something has run")
    with torch.random.fork_rng(devices=[]), FakeTensorMode(), torch.enable_grad(), torch.autograd.set_detect_anomaly(True):
        made = failed.code.call([fake_tensor(form_of(one)) for one in failed.sources],
                                [fake_tensor(form_of(one)) for one in failed.leaves])
        again = _nodes(made[one] for one in failed.outputs)
    if [one.name() for one in again] != [one.name() for one in nodes]:
        raise LookupError("the forward without numbers has other nodes")
    lines = [one for one in again[place].metadata["traceback_"] if failed.code.file in one]
    return int(lines[-1].split("line ")[1].split(",")[0])


def _has_not_run(node: Any) -> bool:
    """One that has saved nothing seldom fails, and is not known to have run."""
    saved = list(_given_up(node))
    return bool(saved) and not any(saved)


def _given_up(node: Any) -> Iterator[bool]:
    """For each of its saved tensors."""
    for name in dir(node):
        if name.startswith("_saved_"):
            try:
                value = getattr(node, name)
                held = value if isinstance(value, (tuple, list)) else (value,)
                if any(isinstance(one, torch.Tensor) for one in held):  # else sizes, which stay
                    yield False
            except RuntimeError as error:  # given up, or changed in place since it was saved
                yield "second time" in str(error)
