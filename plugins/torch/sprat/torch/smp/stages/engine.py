"""Plays one rank's part of a plan: receives posted ahead, pieces forward and backward, sends, on one thread.

A rank that fails goes on without computing: it sends what others wait for, marked as void, and a rank that gets
such a message does the same. So every step ends, nothing is left on the wires, and the next one works.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from ..faults.interrupts import due
from ..gradients import Gradients
from ..server.tasks import as_microbatch
from .backward_errors import Backward, place_of
from .code import Compiled
from .order import BACKWARD, FORWARD, Action
from .packing import Box, Boxes, Layout
from .pieces import BATCH
from .plan import GRADIENTS, RESULTS, VALUES, Channel, Plan, message_forms, returned_values
from .program import CONSTANT, INPUT, PARAMETER

# Receives are posted for so many actions ahead, so that messages come while others compute.
_AHEAD = 4

Key = tuple[int, int]  # a channel's number, a micro-batch


@dataclass
class Step:
    """What one step is played with."""

    inputs: list[list[torch.Tensor]]  # by micro-batch; of rank 0 alone
    seed: int
    loss_scale: float
    on_finished: Callable[[int], None]  # a micro-batch of which this rank has ended all


@dataclass
class _Tape:
    """What a forward leaves for its backward."""

    sources: list[torch.Tensor]
    leaves: dict[int, torch.Tensor]
    outputs: dict[int, torch.Tensor]

    @property
    def parameters(self) -> list[nn.Parameter]:
        return [one for one in self.sources if isinstance(one, nn.Parameter)]


@dataclass
class _State:
    """Of one step."""

    step: Step
    values: dict[tuple[int, int], torch.Tensor] = field(default_factory=dict)  # value, micro-batch
    gradients: dict[tuple[int, int, int], torch.Tensor] = field(default_factory=dict)  # and for whom
    generators: dict[int, torch.Tensor] = field(default_factory=dict)
    tapes: dict[tuple[int, int], _Tape] = field(default_factory=dict)
    results: dict[tuple[int, int], torch.Tensor] = field(default_factory=dict)
    received: dict[Key, tuple[Any, Box]] = field(default_factory=dict)
    came: dict[Key, Box] = field(default_factory=dict)
    sending: list[tuple[Any, int, Box]] = field(default_factory=list)
    failure: BaseException | None = None
    where: str = ""
    place: str = ""  # in the model, where a backward has failed
    void: bool = False  # this rank, or one that it heard of, has failed


class Engine:
    """One plan on one rank. A thread at a time."""

    def __init__(self, plan: Plan, group: dist.ProcessGroup, module: nn.Module,
                 gradients: Gradients):
        self.plan = plan
        self._group = group
        self._rank = dist.get_rank(group)
        self._globals = dist.get_process_group_ranks(group)
        self._module = module
        self._gradients = gradients
        self._order = plan.orders[self._rank]
        pieces = enumerate(plan.cut.pieces)
        self._code = {number: Compiled(plan.program, piece, number)
                      for number, piece in pieces if piece.rank == self._rank}
        state_bytes = torch.get_rng_state().numel()
        self._layouts = [Layout(message_forms(plan, one, state_bytes)) for one in plan.channels]
        self._boxes = Boxes()
        self._leaving: dict[tuple[str, int], list[int]] = {}  # channels, by kind and maker
        for number, channel in enumerate(plan.channels):
            if channel.source == self._rank:
                self._leaving.setdefault((channel.kind, channel.maker), []).append(number)
        self._returned = set(returned_values(plan.program))
        self._holders = {value: self._holder(value) for piece in plan.cut.pieces
                         if piece.rank == self._rank for value in piece.sources}
        self._needs = [self._receives_of(action) for action in self._order]
        self._last = {action.microbatch: place for place, action in enumerate(self._order)}
        self._first = {action.microbatch: place
                       for place, action in reversed(list(enumerate(self._order)))}
        self._ends = self._releases()

    @property
    def message_bytes(self) -> int:
        """Of all memory that is kept for messages."""
        return self._boxes.bytes

    def lent(self, tensor: torch.Tensor) -> bool:
        """Whether it lies in memory of a message."""
        return self._boxes.lent(tensor)

    def run(self, step: Step) -> _State:
        """Collective. What failed is in the state; an error of the group is raised."""
        state = _State(step)
        if self._rank == 0:
            for j in set(range(self.plan.microbatches)) - set(self._first):
                self._send_all(state, VALUES, BATCH, j)
        for place, action in enumerate(self._order):
            self._post(state, place)
            if self._rank == 0 and self._first[action.microbatch] == place:
                self._send_all(state, VALUES, BATCH, action.microbatch)
            self._play(state, place, action)
            self._reap(state)
            if self._last[action.microbatch] == place:
                step.on_finished(action.microbatch)
        self._exchange_results(state)
        for work, number, box in state.sending:
            work.wait()
            self._boxes.give(("send", number), box)
        state.sending.clear()
        return state

    # Which messages an action needs, and when their memory is free again.

    def _receives_of(self, action: Action) -> list[Key]:
        """Messages that must have come, those first that were made first."""
        kind = VALUES if action.kind == FORWARD else GRADIENTS
        found = []
        for number, channel in enumerate(self.plan.channels):
            if channel.destination != self._rank or channel.kind != kind:
                continue
            if self._takes(channel, action):
                found.append((number, action.microbatch))
        return found

    def _takes(self, channel: Channel, action: Action) -> bool:
        if channel.kind == GRADIENTS:
            return channel.taker == action.piece
        piece = self.plan.cut.pieces[action.piece]
        draws = channel.generator and piece.draws and (
            self.plan.cut.drew_before(action.piece) == channel.maker)
        return draws or any(value in piece.inputs for value in channel.values)

    def _releases(self) -> list[list[Key]]:
        """By action, the messages that nothing needs after it."""
        lasts: dict[Key, int] = {}
        backwards = {(action.piece, action.microbatch): place
                     for place, action in enumerate(self._order) if action.kind == BACKWARD}
        for place, action in enumerate(self._order):
            for key in self._needs[place]:
                until = backwards.get((action.piece, action.microbatch), place)
                lasts[key] = max(lasts.get(key, 0), until)
        ends: list[list[Key]] = [[] for _ in self._order]
        for key, place in lasts.items():
            ends[place].append(key)
        return ends

    # Messages.

    def _tag(self, key: Key) -> int:
        return key[0] * (self.plan.microbatches + 1) + key[1]

    def _post(self, state: _State, place: int) -> None:
        for keys in self._needs[place : place + _AHEAD]:
            for key in keys:
                if key not in state.received and key not in state.came:
                    self._receive(state, key)

    def _receive(self, state: _State, key: Key) -> None:
        box = self._boxes.take(("receive", key[0]), self._layouts[key[0]])
        peer = self._globals[self.plan.channels[key[0]].source]
        work = dist.irecv(box.memory, peer, group=self._group, tag=self._tag(key))
        state.received[key] = (work, box)

    def _await(self, state: _State, key: Key) -> Box:
        if key not in state.came:
            work, box = state.received.pop(key)
            work.wait()
            state.came[key] = box
            state.void = state.void or int(box.flag) != 0
        return state.came[key]

    def _send(self, state: _State, key: Key, tensors: list[torch.Tensor]) -> None:
        """Copies, so that what is computed later cannot change it."""
        box = self._boxes.take(("send", key[0]), self._layouts[key[0]])
        if not state.void:
            try:
                with torch.no_grad():
                    for part, tensor in zip(box.parts, tensors, strict=True):
                        part.copy_(tensor)
            except BaseException as error:  # a tensor of another shape than the plan's
                state.failure, state.void = error, True
                state.where = f"what goes to rank {self.plan.channels[key[0]].destination} of the pipeline"
        box.flag.fill_(int(state.void))
        peer = self._globals[self.plan.channels[key[0]].destination]
        work = dist.isend(box.memory, peer, group=self._group, tag=self._tag(key))
        state.sending.append((work, key[0], box))

    def _send_all(self, state: _State, kind: str, maker: int, j: int) -> None:
        """What a piece has for other ranks; of a rank that failed without content."""
        for number in self._leaving.get((kind, maker), ()):
            self._send(state, (number, j), self._contents(state, self.plan.channels[number], j))

    def _contents(self, state: _State, channel: Channel, j: int) -> list[torch.Tensor]:
        if state.void:
            return []
        tensors = [self._outgoing(state, channel, value, j) for value in channel.values]
        return tensors + ([state.generators[j]] if channel.generator else [])

    def _outgoing(self, state: _State, channel: Channel, value: int, j: int) -> torch.Tensor:
        if channel.kind == GRADIENTS:
            return state.gradients.pop((value, channel.taker, j))
        source = self.plan.program.source_of(value)
        if source is not None:
            return state.step.inputs[j][int(source.name)]
        return state.values[value, j]

    def _reap(self, state: _State) -> None:
        """Takes memory back whose message has left."""
        while state.sending and state.sending[0][0].is_completed():
            work, number, box = state.sending.pop(0)
            work.wait()  # raises what went wrong
            self._boxes.give(("send", number), box)

    # Actions.

    def _play(self, state: _State, place: int, action: Action) -> None:
        for key in self._needs[place]:
            self._await(state, key)
        if not state.void:
            try:
                due()
                if action.kind == FORWARD:
                    self._forward(state, place, action)
                else:
                    self._backward(state, place, action)
            except BaseException as error:
                self._note(state, action, error)
        self._send_all(state, VALUES if action.kind == FORWARD else GRADIENTS, action.piece,
                       action.microbatch)
        if action.kind == FORWARD:
            self._drop_values(state, action)
        for key in self._ends[place]:
            self._boxes.give(("receive", key[0]), state.came.pop(key))

    def _note(self, state: _State, action: Action, error: BaseException) -> None:
        direction = "forward" if action.kind == FORWARD else "backward"
        code = self._code[action.piece]
        operation = state.place or code.where(error) or code.modules()
        state.failure, state.void = error, True
        state.where = (f"piece {action.piece}{', ' * bool(operation)}{operation}, "
                       f"micro-batch {action.microbatch}, {direction}")
        state.tapes.clear()

    def _forward(self, state: _State, place: int, action: Action) -> None:
        _, number, j = action
        piece, plan = self.plan.cut.pieces[number], self.plan
        sources = [held[key] for held, key in map(self._holders.__getitem__, piece.sources)]
        leaves = self._leaves(state, place, number, j)
        if piece.draws:
            torch.set_rng_state(self._generator(state, place, number, j))
        outputs = self._code[number].call(sources, list(leaves.values()))
        if piece.draws:
            state.generators[j] = torch.get_rng_state()
        for value, output in zip(piece.outputs, outputs):
            state.values[value, j] = output
            if value in self._returned:
                kept = output.detach()
                state.results[value, j] = kept.clone() if self._boxes.lent(kept) else kept
        if plan.trains and number in plan.paths.backwards:
            made = {value: output for value, output in zip(piece.outputs, outputs)
                    if output.requires_grad}
            state.tapes[number, j] = _Tape(sources, leaves, made)

    def _leaves(self, state: _State, place: int, number: int, j: int) -> dict[int, torch.Tensor]:
        """The piece's inputs, each at the beginning of a graph of its own."""
        came: dict[int, torch.Tensor] = {}
        for key in self._needs[place]:
            came.update(zip(self.plan.channels[key[0]].values, state.came[key].parts))
        leaves = {}
        for value in self.plan.cut.pieces[number].inputs:
            source = self.plan.program.source_of(value)
            if value in came:
                given = came[value]
            elif source is not None and source.kind == INPUT:
                given = state.step.inputs[j][int(source.name)]
            else:
                given = state.values[value, j]
            leaf = given.detach()
            needed = self.plan.trains and self.plan.forms[value].requires_grad
            leaves[value] = leaf.requires_grad_() if needed else leaf
        return leaves

    def _holder(self, value: int) -> tuple[dict, str]:
        """Where a source is looked up at each forward: buffers may be replaced between steps."""
        kind, name = self.plan.program.sources[value]
        if kind == CONSTANT:
            return self.plan.program.constants, name
        path, _, key = name.rpartition(".")
        holder = self._module.get_submodule(path)
        return (holder._parameters if kind == PARAMETER else holder._buffers), key

    def _generator(self, state: _State, place: int, number: int, j: int) -> torch.Tensor:
        before = self.plan.cut.drew_before(number)
        if before is None:
            return torch.Generator().manual_seed(state.step.seed + j).get_state()
        for key in self._needs[place]:
            channel = self.plan.channels[key[0]]
            if channel.generator and channel.maker == before:
                return state.came[key].parts[-1].clone()
        return state.generators[j]

    def _backward(self, state: _State, place: int, action: Action) -> None:
        _, number, j = action
        tape = state.tapes.pop((number, j), None)
        if tape is None:
            return
        roots, given = [], []
        earlier = self._earlier(state, place, number, j)
        for value, output in (*tape.outputs.items(), *tape.leaves.items()):
            if value == self.plan.program.loss and value in tape.outputs:
                scale = state.step.loss_scale
                roots.append(output if scale == 1 else output * scale)
                given.append(None)
            if value in earlier:
                roots.append(output)
                given.append(earlier[value])
        with as_microbatch(j):
            # What other pieces gave to a parameter comes first, as in one graph.
            for parameter in tape.parameters:
                gained = self._gradients.taken(parameter, j)
                if gained is not None:
                    roots.append(parameter)
                    given.append(gained)
            try:
                torch.autograd.backward(roots, given)
            except BaseException as error:
                outputs = {place: tape.outputs[value] for place, value in enumerate(
                    self.plan.cut.pieces[number].outputs)
                    if value in tape.outputs and (value in earlier or value == self.plan.program.loss)}
                state.place = place_of(error, Backward(self._code[number], tape.sources, list(tape.leaves.values()),
                                                       outputs), self._module)
                raise
        self._hand_on(state, number, j, tape)

    def _earlier(self, state: _State, place: int, number: int, j: int) -> dict[int, torch.Tensor]:
        """Gradients that have come to this piece."""
        found: dict[int, torch.Tensor] = {}
        for key in self._needs[place]:
            found.update(zip(self.plan.channels[key[0]].values, state.came[key].parts))
        piece = self.plan.cut.pieces[number]
        for value in (*piece.outputs, *piece.inputs):
            passed = state.gradients.pop((value, number, j), None)
            if passed is not None:
                found[value] = passed
        return found

    def _hand_on(self, state: _State, number: int, j: int, tape: _Tape) -> None:
        """Each input's gradient to the piece that goes on with it."""
        paths, maker = self.plan.paths, self.plan.cut.maker
        for value, leaf in tape.leaves.items():
            if number not in paths.givers.get(value, ()):
                continue
            if leaf.grad is None:
                raise RuntimeError(f"value {value} got no gradient here, and did when it was planned")
            kept = leaf.grad.clone() if self._boxes.lent(leaf.grad) else leaf.grad
            state.gradients[value, paths.next_of(value, number, maker[value]), j] = kept

    def _drop_values(self, state: _State, action: Action) -> None:
        """Values whose last taker on this rank has run."""
        _, number, j = action
        piece = self.plan.cut.pieces[number]
        for value in (*piece.inputs, *piece.outputs):
            later = [one for one in self.plan.cut.takers.get(value, ())
                     if one > number and self.plan.cut.pieces[one].rank == self._rank]
            if not later:
                state.values.pop((value, j), None)

    # What is returned.

    def _exchange_results(self, state: _State) -> None:
        """What each rank has goes to all others, of all micro-batches at once."""
        count = self.plan.microbatches
        for number, channel in enumerate(self.plan.channels):
            if channel.kind != RESULTS:
                continue
            if channel.destination == self._rank:
                self._receive(state, (number, count))
            elif channel.source == self._rank:
                tensors = [] if state.void else [
                    self._result(state, value, j) for j in range(count) for value in channel.values]
                self._send(state, (number, count), tensors)
        for number, channel in enumerate(self.plan.channels):
            if channel.kind == RESULTS and channel.destination == self._rank:
                box = self._await(state, (number, count))
                parts = iter(box.parts)
                for j in range(count):
                    for value in channel.values:
                        state.results[value, j] = next(parts).clone()
                self._boxes.give(("receive", number), state.came.pop((number, count)))
        if not state.void and self._rank == 0:
            for value in self._returned:
                for j in range(count):
                    state.results.setdefault((value, j), self._result(state, value, j))

    def _result(self, state: _State, value: int, j: int) -> torch.Tensor:
        source = self.plan.program.source_of(value)
        if source is not None:
            return state.step.inputs[j][int(source.name)].detach()
        return state.results[value, j]
