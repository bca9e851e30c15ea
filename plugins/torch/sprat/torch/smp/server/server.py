"""One rank's part of one step: runs its micro-batches and what other ranks ask of its modules.

The thread that calls lead() or serve() hands a baton to one task at a time, and reads messages in between.

Tensor parallel ranks run the same tasks, whose collectives must meet: the first of them says which
comes next, and the others wait until they can run that one. What it could run needs nothing that
theirs could not bring, so this ends. A failure does not change that: the first stops where it hears of it,
and the others tell it, and stop where it has (policy.follow). Only one that has an error of its own stops
elsewhere; what the others are in then is aborted (meetings).
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from ..faults.interrupts import due
from ..faults.naming import module_of, rank_name
from .meetings import Meetings
from .messages import ENDINGS, LastWord, Message
from .modes import with_modes
from .policy import BACKWARD, FORWARD, LEAVE, RUN, Following, View, follow, next_task
from .remote import Call
from .tasks import Stopped, Task, Workers, current
from .wire import Wire


@dataclass
class _Kept:
    """What a forward for another rank leaves for its backward."""

    microbatch: int
    inputs: list[torch.Tensor]
    outputs: list[torch.Tensor]


class StepFailed(RuntimeError):
    """A step that ended on every rank of the pipeline; says where and why it began."""


class Server:
    """Lives as long as the model. One step at a time."""

    def __init__(self, wire: Wire, modules: dict[str, nn.Module], owners: dict[str, int],
                 schedule: str, most_active: int, peers: Wire | None = None,
                 alike: Sequence[int] = (0,), meetings: Meetings | None = None):
        """peers: to the other ranks of this stage that run the same tasks, with the wire's inbox.
        alike: those of them, in rising order and with this one, that have the same random numbers.
        meetings: what the peers' tasks meet in; by default nothing.
        """
        self.wire = wire
        self.peers = peers
        self.modules = modules
        self.owners = owners
        self.schedule = schedule
        self.most_active = most_active
        self.on_paused: Callable[[], None] = lambda: None  # a task that waits for another rank
        self._alike = list(alike)
        self.meetings = meetings or Meetings({})
        if peers is not None:
            peers.overhears = self.meetings.overhear
        self.on_finished: Callable[[int], None] = lambda microbatch: None
        self._workers = Workers()
        self._asked = 0
        self._made = 0
        self._clear()

    def _clear(self) -> None:
        self._ready: dict[int, Task] = {}
        self._answers: dict[int, Any] = {}  # by task, what it is resumed with
        self._waiting: dict[tuple[int, int], Task] = {}
        self._kept: dict[tuple[int, int], _Kept] = {}
        self._bodies: dict[int, Task] = {}  # by number, micro-batches that have not ended
        self._active: set[int] = set()
        self._forwards_left: set[int] = set()
        self._ended: dict[int, Any] = {}
        self._failure: str | None = None
        self._where = ""  # this rank's own error was
        self._end: Message | None = None
        self._seed: int | None = None
        self._told: deque[tuple] = deque()  # keys of tasks, as the first of the peers has run them
        self._gone: set[tuple[bool, int]] = set()  # (of the peers, rank): who says nothing more

    # The step of the root's rank.

    def lead(self, begin: Message, bodies: list[Callable[[], Any]], seed: int) -> list[Any]:
        """Runs micro-batch j's body for each j, with random numbers of seed + j.

        The other ranks serve(). Returns the bodies' results. StepFailed on every rank if one fails.
        Of ranks that are alike, which draw for whole values, the seed of the first counts.
        """
        self._open()
        self._guarded(lambda: self.wire.send_to_all(begin))
        self._guarded(lambda: self._agree(seed))
        for microbatch, body in enumerate(bodies):
            task = self._make(body, FORWARD, microbatch, ("body", microbatch), begins=True)
            self._bodies[task.number] = task
            self._forwards_left.add(microbatch)
            state = torch.Generator().manual_seed(self._seed + microbatch).get_state()
            task.random_state = state
        self._guarded(lambda: self._loop(lambda: not self._bodies and self._failure is None))
        return [self._ended[microbatch] for microbatch in range(len(bodies))]

    def end(self, value: Any) -> None:
        """After lead(): gives `value` to the others, which leave serve() with it."""
        self._guarded(lambda: self.wire.send_to_all(Message("end", value=value)))
        self._guarded(self._close)

    # The step of another rank.

    def serve(self, check: Callable[[Message], str | None]) -> Any:
        """Runs what is asked until the leading rank ends the step; returns what it gives.

        check: says what is wrong with how the step begins, or None.
        """
        self._open()
        self._check = check
        self._guarded(
            lambda: self._loop(lambda: self._end is not None and self._failure is None))
        value = self._end.value
        self._guarded(self._close)
        return value

    # A rank that cannot take part.

    def refuse(self, error: Exception) -> None:
        """Instead of lead() or serve(): tells the others why, and raises."""
        self._open()
        self._fail(error)

    # What tasks call.

    def ask_forward(self, call: Call) -> None:
        """Fills in the call's answer; the task waits meanwhile."""
        task = _task()
        self._asked += 1
        call.number = (self.wire.rank, self._asked)
        args, kwargs = pytree.tree_unflatten(call.leaves, call.tree)
        self.wire.send(
            self.owners[call.module],
            Message("forward", call=call.number, microbatch=task.microbatch, module=call.module,
                    value=(args, kwargs), generator=torch.get_rng_state(), modes=call.modes),
        )
        call.leaves = []  # the owner keeps what backward needs
        answer = self._wait(task, call)
        torch.set_rng_state(answer.generator)
        call.answer, call.answer_tree = pytree.tree_flatten(answer.value)
        call.outputs = [
            place for place, leaf in enumerate(call.answer) if isinstance(leaf, torch.Tensor)
        ]

    def ask_backward(self, call: Call, gradients: tuple) -> list[torch.Tensor | None]:
        """The gradients of the call's tensors, in their order."""
        task = _task()
        self.wire.send(
            self.owners[call.module],
            Message("backward", call=call.number, microbatch=task.microbatch, module=call.module,
                    value=[None if one is None else one.detach() for one in gradients]),
        )
        return self._wait(task, call).value

    def turn_backward(self) -> None:
        """Called by a micro-batch whose forward has ended, before its backward."""
        task = _task()
        task.direction = BACKWARD
        self._forwards_left.discard(task.microbatch)
        self._pause_ready(task)

    # How it goes on.

    def _open(self) -> None:
        self._clear()
        self.meetings.begin()
        for wire in self._wires():
            wire.open(ENDINGS)

    def _agree(self, seed: int) -> None:
        """By a message, since a collective would wait for a tensor rank that refuses the step."""
        if self.peers is not None and self.peers.rank != self._alike[0]:
            self._loop(lambda: self._seed is not None)
            return
        self._seed = seed
        for other in self._alike[1:]:
            self.peers.send(other, Message("seed", value=seed))

    @property
    def _follows(self) -> bool:
        return self.peers is not None and self.peers.rank > 0

    def _wires(self) -> list[Wire]:
        return [self.wire] if self.peers is None else [self.wire, self.peers]

    def _make(self, function: Callable[[], Any], direction: str, microbatch: int, key: tuple,
              begins: bool = False) -> Task:
        self._made += 1
        task = Task(function, direction, microbatch, self._made, begins, key)
        self._ready[task.number] = task
        return task

    def _loop(self, over: Callable[[], bool]) -> None:
        while not over():
            due()
            while not self.wire.inbox.empty():
                self._take(self.wire.inbox.get())
            number = self._next()
            if number is not None:
                self._run(self._ready.pop(number))
            elif not over():
                self._take(self.wire.inbox.get())

    def _next(self) -> int | None:
        """The number of the task to run, if one can."""
        if self._follows:
            return self._told_next()
        view = View([task.candidate() for task in self._ready.values()], len(self._active),
                    self.most_active, len(self._forwards_left))
        chosen = next_task(self.schedule, view)
        if chosen is None:
            return None
        if self.peers is not None:
            self.peers.send_to_all(Message("run", value=self._ready[chosen.number].key))
        return chosen.number

    def _told_next(self) -> int | None:
        """As _next(), by what the first of the peers has run. StepFailed where it has stopped."""
        key = self._told[0] if self._told else None
        ready = next((n for n, task in self._ready.items() if task.key == key), None)
        verdict = follow(Following(key is not None, ready is not None, self._source(key) in self._gone,
                                   self._failure is not None, (True, 0) in self._gone))
        if verdict == LEAVE:
            raise StepFailed(self._failure)
        if verdict == RUN:
            self._told.popleft()
            return ready
        return None

    def _source(self, key: tuple | None) -> tuple[bool, int] | None:
        """Whom a task waits for, as _gone has it; of one that has not come, who asks for it."""
        paused = next((task for task in self._waiting.values() if task.key == key), None)
        if paused is not None:
            return False, paused.asks
        if key is None:
            return None
        # A body is made once its seed is there.
        return (True, self._alike[0]) if key[0] == "body" else (False, key[1][0])

    def _run(self, task: Task) -> None:
        if task.number in self._bodies:
            self._active.add(task.microbatch)
        # Each micro-batch has its random stream, wherever it runs.
        if task.random_state is not None:
            torch.set_rng_state(task.random_state)
        task.hand_baton(self._workers, self._answers.pop(task.number, None))
        task.random_state = torch.get_rng_state()
        if not task.done:
            self.on_paused()
            return
        self._workers.busy.discard(task.number)
        if task.error is not None:
            module = module_of(task.error, self.modules)
            if module:
                self._where = f"module {module!r}, micro-batch {task.microbatch}: "
            raise task.error
        if self._bodies.pop(task.number, None) is not None:
            self._active.discard(task.microbatch)
            self._forwards_left.discard(task.microbatch)
            self._ended[task.microbatch] = task.result
            self.wire.send_to_all(Message("finished", microbatch=task.microbatch))
            self._finish(task.microbatch)

    def _finish(self, microbatch: int) -> None:
        """Nothing asks for this micro-batch any more."""
        for call in [call for call, kept in self._kept.items() if kept.microbatch == microbatch]:
            del self._kept[call]
        self.on_finished(microbatch)

    def _take(self, message: Message | BaseException) -> None:
        if isinstance(message, BaseException):
            raise message
        if message.kind == "begin":
            wrong = self._check(message)
            if wrong is not None:
                raise ValueError(wrong)
        elif message.kind == "forward":
            self._make(lambda: self._forward(message), FORWARD, message.microbatch,
                       ("forward", message.call))
        elif message.kind == "backward":
            self._make(lambda: self._backward(message), BACKWARD, message.microbatch,
                       ("backward", message.call))
        elif message.kind == "run":
            self._told.append(message.value)
        elif message.kind == "result":
            task = self._waiting.pop(message.call)
            task.answered = True
            self._answers[task.number] = message
            self._ready[task.number] = task
        elif message.kind == "finished":
            self._finish(message.microbatch)
        elif message.kind == "end":
            self._end = message
        elif message.kind == "seed":
            self._seed = message.value
        else:
            self._take_ending(message)

    def _take_ending(self, message: Message) -> None:
        if message.kind in ENDINGS:
            self._gone.add((message.of_peer, message.source))
        if message.kind == "bye" or self._failure is not None:
            return
        self._failure = message.value.text
        if not self._follows:
            raise StepFailed(self._failure)
        if not message.of_peer:  # else the first has been told too
            self.peers.send(0, Message("heard", value=LastWord(self._failure)))

    def _forward(self, message: Message) -> None:
        args, kwargs = message.value
        inputs = [leaf for leaf in pytree.tree_leaves(message.value)
                  if isinstance(leaf, torch.Tensor)]
        torch.set_rng_state(message.generator)
        with with_modes(message.modes), _named(self, message):
            value = self.modules[message.module](*args, **kwargs)
        outputs = [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]
        if any(tensor.requires_grad for tensor in outputs):
            self._kept[message.call] = _Kept(message.microbatch, inputs, outputs)
        self.wire.send(message.source, Message(
            "result", call=message.call, microbatch=message.microbatch, module=message.module,
            value=value, generator=torch.get_rng_state()))

    def _backward(self, message: Message) -> None:
        kept = self._kept.pop(message.call)
        pairs = [(tensor, gradient) for tensor, gradient in zip(kept.outputs, message.value)
                 if gradient is not None and tensor.requires_grad]
        with _named(self, message):
            torch.autograd.backward([one for one, _ in pairs], [one for _, one in pairs])
        gradients = [tensor.grad if tensor.is_leaf else None for tensor in kept.inputs]
        self.wire.send(message.source, Message(
            "result", call=message.call, microbatch=message.microbatch, module=message.module,
            value=gradients))

    def _wait(self, task: Task, call: Call) -> Message:
        task.asks = self.owners[call.module]
        self._waiting[call.number] = task
        return task.pause()

    def _pause_ready(self, task: Task) -> None:
        task.answered = False
        self._ready[task.number] = task
        task.pause()

    # How it ends.

    def _close(self) -> None:
        """Every rank says good-bye once it has what it waits for; nothing is on its way then."""
        for wire in self._wires():
            wire.send_last(Message("bye", value=LastWord(begun=self.meetings.begun())))
        for wire in self._wires():
            wire.close()
        while not self.wire.inbox.empty():
            message = self.wire.inbox.get()
            if isinstance(message, BaseException):
                raise message
            if message.kind in ("failed", "heard"):
                self._failure = message.value.text
                raise StepFailed(self._failure)

    def _guarded(self, part: Callable[[], None]) -> None:
        try:
            part()
        except BaseException as error:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        """Ends the step on every rank, once: the first failure that a rank hears of is told."""
        text = self._failure or self.meetings.reason(error)
        if text is None:
            text = f"{self._name()}: {self._where}{type(error).__name__}: {error}"
        self._stop_tasks()
        whole = self._tell_all(Message("failed", value=LastWord(text, self.meetings.end())))
        try:
            for wire in self._wires() if whole else ():
                wire.close()
        except BaseException:
            whole = False
        if whole:
            self.meetings.note_ended()
        else:
            self._forget()
        while not self.wire.inbox.empty():
            self.wire.inbox.get()
        self._clear()
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            raise error
        raise StepFailed(text) from (None if isinstance(error, StepFailed) else error)

    def _name(self) -> str:
        """Of a stage that several ranks run also which of them this is, by its rank in the world."""
        if self.peers is None:
            return rank_name(self.wire.rank, self.wire.members)
        return f"rank {self.wire.rank} of the pipeline, rank {self.peers.world_rank} of all"

    def _tell_all(self, message: Message) -> bool:
        """Whether all groups are whole: ranks of one are told, whatever has become of another."""
        whole = True
        for wire in self._wires():
            try:
                wire.send_last(message)
            except BaseException:
                whole = False
        return whole

    def _forget(self) -> None:
        """A group is broken, and its error is the one that counts."""
        for wire in self._wires():
            wire.forget()

    def _stop_tasks(self) -> None:
        """Unwinds tasks that wait, so that no thread stays behind."""
        started = [*self._waiting.values(), *self._ready.values()]
        for task in started:
            if task.number in self._workers.busy:
                while not task.done:
                    task.hand_baton(self._workers, Stopped())


def _task() -> Task:
    task = current()
    if task is None:
        raise RuntimeError(
            "a module of another rank was called outside of a function with @smp.step: call the "
            "model in one"
        )
    return task


@contextlib.contextmanager
def _named(server: Server, message: Message) -> Iterator[None]:
    """Says in errors where they happened."""
    try:
        yield
    except (Stopped, StepFailed):
        raise
    except Exception as error:
        raise RuntimeError(
            f"module {message.module!r}, micro-batch {message.microbatch}, {message.kind}: "
            f"{type(error).__name__}: {error}"
        ) from error
