"""Tasks of a rank: threads of which one runs at a time, and that pause where they wait."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch

from .policy import Candidate

_current = threading.local()


class Stopped(BaseException):
    """Ends a task whose step failed elsewhere; no `except Exception` of a model keeps it."""


class Task:
    """A function that runs while it holds the baton; pause() gives it back."""

    def __init__(self, function: Callable[[], Any], direction: str, microbatch: int, number: int,
                 begins: bool = False, key: tuple = ()):
        """key: the same on every tensor parallel rank, whose numbers may differ."""
        self.function = function
        self.direction = direction
        self.microbatch = microbatch
        self.number = number
        self.begins = begins
        self.key = key
        self.answered = False  # since it was paused last
        self.random_state: torch.Tensor | None = None
        self.done = False
        self.result: Any = None
        self.error: BaseException | None = None
        self._answer: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._paused: queue.SimpleQueue[None] = queue.SimpleQueue()

    def candidate(self) -> Candidate:
        return Candidate(self.direction, self.microbatch, self.number, self.begins, self.answered)

    def pause(self) -> Any:
        """In the task's thread: gives the baton back, returns what resume() is given."""
        self._paused.put(None)
        answer = self._answer.get()
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def run_first(self) -> None:
        """In a worker's thread."""
        _current.task = self
        try:
            self.result = self.function()
        except BaseException as error:
            self.error = error
        self.done = True
        _current.task = None

    def give_back(self) -> None:
        """In a worker's thread, once it is done and free for another task."""
        self._paused.put(None)

    def hand_baton(self, workers: Workers, answer: Any = None) -> None:
        """Runs the task until it pauses or is done."""
        if self.begins or self.number not in workers.busy:
            self.begins = False
            workers.start(self)
        else:
            self._answer.put(answer)
        self._paused.get()


class Workers:
    """Threads that are kept from task to task."""

    def __init__(self) -> None:
        self.busy: set[int] = set()
        self._idle: list[queue.SimpleQueue[Task | None]] = []

    def start(self, task: Task) -> None:
        self.busy.add(task.number)
        if self._idle:
            self._idle.pop().put(task)
            return
        tasks: queue.SimpleQueue[Task | None] = queue.SimpleQueue()
        tasks.put(task)
        threads = torch.get_num_threads()
        threading.Thread(
            target=self._work, args=(tasks, threads), name="sprat-smp-task", daemon=True
        ).start()

    def end(self) -> None:
        """Lets idle threads go."""
        for tasks in self._idle:
            tasks.put(None)
        self._idle.clear()

    def _work(self, tasks: queue.SimpleQueue[Task | None], threads: int) -> None:
        # OpenMP's number belongs to a thread, and another one gives other bits.
        torch.set_num_threads(threads)
        while (task := tasks.get()) is not None:
            task.run_first()
            # Before the baton goes back, since the next task may want this thread at once.
            self._idle.append(tasks)
            task.give_back()


def current() -> Task | None:
    """The task that this thread runs."""
    return getattr(_current, "task", None)


def current_microbatch() -> int:
    """-1 outside of a step."""
    task = current()
    return getattr(_current, "microbatch", -1) if task is None else task.microbatch


@contextlib.contextmanager
def as_microbatch(number: int) -> Iterator[None]:
    """Inside, this thread computes that micro-batch, in no task."""
    _current.microbatch = number
    try:
        yield
    finally:
        _current.microbatch = -1
