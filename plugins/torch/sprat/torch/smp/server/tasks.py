"""Tasks of a rank: threads of which one runs at a time, and that pause where they wait."""

from __future__ import annotations

import contextlib
import queue
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Optional

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
        self.asks = -1  # the rank of the pipeline whose answer it waits for
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
    """Threads that are kept from task to task, and from step to step: a new one has to find memory and
    settings of its own anew, which costs a small task a fifth of its time. They go with the Workers."""

    def __init__(self) -> None:
        self.busy: set[int] = set()
        self._idle: list[_Post] = []
        weakref.finalize(self, _dismiss, self._idle)

    def start(self, task: Task) -> None:
        self.busy.add(task.number)
        # OpenMP's number belongs to a thread, and another one gives other bits.
        letter = (task, torch.get_num_threads())
        if self._idle:
            self._idle.pop().put(letter)
            return
        post: _Post = queue.SimpleQueue()
        post.put(letter)
        threading.Thread(
            target=_work, args=(post, self._idle), name="sprat-smp-task", daemon=True
        ).start()


# What a worker is given to do: a task, and the number of threads that its operators may use; None ends it.
_Post = queue.SimpleQueue[Optional[tuple[Task, int]]]


def _work(post: _Post, idle: list[_Post]) -> None:
    """In a thread that holds nothing of its Workers', so that they can go."""
    while (letter := post.get()) is not None:
        task, threads = letter
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)
        task.run_first()
        # Before the baton goes back, since the next task may want this thread at once.
        idle.append(post)
        task.give_back()
        del task, letter  # a model's last one would live as long as this thread


def _dismiss(idle: list[_Post]) -> None:
    for post in idle:
        post.put(None)


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
