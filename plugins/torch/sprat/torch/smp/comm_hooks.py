"""Hooks of communication, as DistributedDataParallel takes them: how a bucket becomes a mean.

A hook is the program's code, and its collectives meet those of the other replicas' hooks: where one raises, the
others wait in them for ever. So the replicas have a wire of their own beside, as ranks of a step have: who fails says
so there, whoever waits for it aborts that group, and once all have left, the groups that the hook has used are made
anew, in place, so that the next step finds them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from .. import _native
from .backends import groups_among, new_group
from .faults.agreement import failure_text
from .server.meetings import Meetings
from .server.messages import ENDINGS, LastWord, Message
from .server.server import StepFailed
from .server.wire import Wire


@dataclass(frozen=True)
class CommHook:
    """A function of (state, bucket) that returns a future of the bucket's mean over ranks."""

    state: Any
    function: Callable[[Any, Any], torch.futures.Future]


class Bucket:
    """Gradients that travel at once, as torch's hooks of communication take them."""

    def __init__(self, index: int, buffer: torch.Tensor, parameters: list[torch.Tensor], last: bool):
        self._index, self._buffer, self._parameters, self._last = index, buffer, parameters, last

    def index(self) -> int:
        return self._index

    def buffer(self) -> torch.Tensor:
        return self._buffer

    def set_buffer(self, buffer: torch.Tensor) -> None:
        self._buffer = buffer

    def parameters(self) -> list[torch.Tensor]:
        return self._parameters

    def gradients(self) -> list[torch.Tensor]:
        sizes = [one.numel() for one in self._parameters]
        return [part.view_as(one) for part, one in zip(self._buffer.split(sizes), self._parameters)]

    def is_last(self) -> bool:
        return self._last


class HookedMeans:
    """Means of buckets over replicas by a hook. What it raises on one of them is raised on all, at once."""

    def __init__(self, hook: CommHook, replicas: dist.ProcessGroup):
        """Collective over the replicas. Without a state the hook gets their group: torch's own take the default
        group then, which has other stages' ranks."""
        self._hook = hook if hook.state is not None else CommHook(replicas, hook.function)
        self._ranks = dist.get_process_group_ranks(replicas)
        self._wire = Wire(new_group(self._ranks), of_replicas=True)

    def of(self, buckets: Iterable[Bucket]) -> list[torch.Tensor]:
        """In their order. Every replica calls it with the same ones; StepFailed on each if one fails."""
        meetings = Meetings({(group.group_name,): _Used(group, backend)
                             for group, backend in groups_among(self._ranks).items() if group is not self._wire.group})
        self._wire.overhears = meetings.overhear
        self._wire.open(ENDINGS)
        begun: list[tuple[Bucket, Any]] = []
        means: list[torch.Tensor] = []
        error: BaseException | None = None
        try:
            for bucket in buckets:
                with self._named(bucket):
                    begun.append((bucket, _future_of(self._hook.function(self._hook.state, bucket))))
            for bucket, future in begun:
                with self._named(bucket):
                    means.append(_mean(bucket, future))
        except BaseException as one:
            error = one
        text = self._leave(meetings, error)
        if not text:
            return means
        text += _made_anew(meetings, [future for _, future in begun])
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            raise error
        raise StepFailed(text) from error

    def _leave(self, meetings: Meetings, error: BaseException | None) -> str:
        """Tells the others how it ended here, and hears them; what the first had to say, or the empty text."""
        text = "" if error is None else meetings.reason(error) or failure_text(error)
        word = LastWord(text, meetings.end())
        try:
            self._wire.send_last(Message("failed" if text else "bye", value=word))
            self._wire.close()
        except BaseException as broken:  # a replica is lost
            self._wire.forget()
            text = text or failure_text(broken)
        while not self._wire.inbox.empty():
            message = self._wire.inbox.get()
            text = text or (failure_text(message) if isinstance(message, BaseException) else message.value.text)
        return text

    @contextlib.contextmanager
    def _named(self, bucket: Bucket) -> Iterator[None]:
        """Says in errors where they happened, and what to do."""
        try:
            yield
        except Exception as error:
            name = getattr(self._hook.function, "__qualname__", type(self._hook.function).__name__)
            raise RuntimeError(
                f"hook of communication {name}, bucket {bucket.index()}: {type(error).__name__}: {error}; the step's "
                "gradients are left out on all ranks: mend the hook, or leave register_comm_hook out") from error


class _Used:
    """A group, and how many operations it has begun since."""

    def __init__(self, group: dist.ProcessGroup, backend: _native.Backend):
        self.is_world = group is dist.group.WORLD
        self._backend = backend
        self._before = backend._get_sequence_number_for_group()

    def _get_sequence_number_for_group(self) -> int:
        return self._backend._get_sequence_number_for_group() - self._before

    def abort(self) -> None:
        self._backend.abort()

    def renew(self) -> None:
        self._backend.renew()


def _future_of(result: Any) -> Any:
    """At once, before the next bucket's collectives begin."""
    if not hasattr(result, "wait"):
        raise TypeError(f"it returned a {type(result).__name__}, and not a future")
    return result


def _mean(bucket: Bucket, future: Any) -> torch.Tensor:
    """The tensor of what a hook's future holds: the tensor, or a list of it."""
    result = future.wait()
    mean = result[0] if isinstance(result, (list, tuple)) else result
    if not isinstance(mean, torch.Tensor) or mean.numel() != bucket.buffer().numel():
        found = f"{mean.numel()} elements" if isinstance(mean, torch.Tensor) else f"a {type(mean).__name__}"
        raise ValueError(f"its future holds {found}, the bucket {bucket.buffer().numel()}")
    return mean.reshape(-1)


def _made_anew(meetings: Meetings, futures: list[Any]) -> str:
    """Ends what the hook has under way, and lets its groups go on; what stands in the way, or the empty text.

    Futures that continue, as a compression's, begin operations of their own: they end first, by errors.
    """
    used = [one for one in meetings.used() if isinstance(one, _Used)]
    going_on = [one for one in used if not one.is_world]
    for one in going_on:
        one.abort()
    for future in futures:
        with contextlib.suppress(Exception):  # the step has its error
            future.wait()
    try:
        for one in going_on:
            one.renew()
    except Exception as error:
        return f"; and its group cannot go on ({error}): start the job anew, from its last checkpoint"
    if len(going_on) < len(used):
        return "; and it has used the default group, with which the job ends: give the hook smp.get_rdp_process_group()"
    return ""
