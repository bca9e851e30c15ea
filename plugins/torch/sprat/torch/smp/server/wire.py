"""Messages between the ranks of one pipeline, on a process group that nothing else uses.

One thread of a rank receives while a step lasts, so a sender never waits for a receiver to look.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from ..faults.naming import rank_name
from .messages import Message, open_header, pack, unpack

# What is not longer comes in one message: two lengths, the header, tensors that are small. The rest of
# a longer one follows.
FIRST_BYTES = 16384
_LENGTH_BYTES = 16
# A tensor up to this size travels with the header; the random state has 5056.
SMALL_BYTES = 6144
# A longer one is waited for, since a copy of it may be more than there is memory for.
COPIED_BYTES = 1 << 20


class Wire:
    """One rank's end. send() by one thread at a time; what comes is in `inbox`."""

    def __init__(self, group: dist.ProcessGroup,
                 inbox: queue.SimpleQueue[Message | BaseException] | None = None, of_replicas: bool = False):
        """inbox: of the pipeline's wire; this one is then between tensor parallel ranks, and one
        thread waits for both. of_replicas: it is between ranks that have the same part of copies of the model."""
        self._of_peers = inbox is not None
        self._of_replicas = of_replicas
        self.group = group
        self.rank = dist.get_rank(group)
        self.size = dist.get_world_size(group)
        self.inbox = queue.SimpleQueue() if inbox is None else inbox
        self._globals = dist.get_process_group_ranks(group)
        self._receiver: threading.Thread | None = None
        self._leaving: deque[tuple[Any, torch.Tensor]] = deque()  # works and their tensors, in order
        self._early: list[Message] = []  # of the next step, from ranks that have left this one
        self._said_last = False
        # Hears what comes in the thread that receives, also while the step's is in a call that does not end.
        self.overhears: Callable[[Message | BaseException], None] = lambda message: None

    @property
    def members(self) -> list[int]:
        """By their rank on this wire, in the world."""
        return self._globals

    @property
    def world_rank(self) -> int:
        return self._globals[self.rank]

    def send(self, peer: int, message: Message) -> None:
        """Its tensors may be changed once it returns: the message has copies, or has left."""
        self._forget_what_has_left()
        header, tensors = pack(message)
        body = torch.cat([torch.frombuffer(bytearray(header), dtype=torch.uint8),
                          *(_bytes_of(t) for t in tensors if _is_small(t))])
        first = torch.zeros(FIRST_BYTES, dtype=torch.uint8)
        first[:_LENGTH_BYTES].view(torch.int64).copy_(torch.tensor([len(header), body.numel()]))
        room = FIRST_BYTES - _LENGTH_BYTES
        first[_LENGTH_BYTES : _LENGTH_BYTES + min(room, body.numel())] = body[:room]
        parts = [first] + ([body[room:]] if body.numel() > room else [])
        for tensor in [*parts, *(t.clone() if t.nbytes <= COPIED_BYTES else t for t in tensors
                                 if t.numel() > 0 and not _is_small(t))]:
            # Posting begins it, and the receiver, which waits for the whole step, drives the rest. To wait here
            # for a peer whose cores all compute costs more than the message does.
            self._leaving.append((dist.isend(tensor, self._globals[peer], group=self.group), tensor))
        if any(t.nbytes > COPIED_BYTES for t in tensors):
            self._wait_until_all_have_left()

    def send_to_all(self, message: Message) -> None:
        for peer in range(self.size):
            if peer != self.rank:
                self.send(peer, message)

    def open(self, last_kinds: tuple[str, ...]) -> None:
        """Begins to receive, until each peer has sent a message of one of these kinds."""
        self._said_last = False
        if self.size > 1:
            self._receiver = threading.Thread(
                target=self._receive, args=(last_kinds,), name="sprat-smp-receiver", daemon=True
            )
            self._receiver.start()

    def send_last(self, message: Message) -> None:
        """To all, once: a second one would be taken for the next step's."""
        if not self._said_last:
            self._said_last = True
            self.send_to_all(message)

    def close(self) -> None:
        """Waits until all messages have left, and for the receiver to end."""
        self._wait_until_all_have_left()
        if self._receiver is not None:
            self._receiver.join()
            self._receiver = None

    def forget(self) -> None:
        """Of a step whose group is broken: nothing is waited for."""
        self._leaving.clear()
        self._receiver = None

    def _forget_what_has_left(self) -> None:
        """Raises what a message ended with."""
        while self._leaving and self._leaving[0][0].is_completed():
            self._leaving[0][0].wait()
            self._leaving.popleft()

    def _wait_until_all_have_left(self) -> None:
        while self._leaving:
            self._leaving[0][0].wait()
            self._leaving.popleft()

    def _receive(self, last_kinds: tuple[str, ...]) -> None:
        open_peers = set(range(self.size)) - {self.rank}
        silent = set(open_peers)
        come, self._early = deque(self._early), []
        try:
            while open_peers:
                message = come.popleft() if come else self._next()
                if message.source not in open_peers:
                    # It has had all last words, one of which is still on its way to here.
                    self._early.append(message)
                    continue
                silent.discard(message.source)
                if message.kind in last_kinds:
                    open_peers.discard(message.source)
                self.overhears(message)
                self.inbox.put(message)
        except BaseException as error:  # the server raises it where the step waits
            error = self._with_names(error, silent)
            self.overhears(error)
            self.inbox.put(error)

    def _with_names(self, error: BaseException, silent: set[int]) -> BaseException:
        """A receive from any rank does not know whom it has waited for."""
        if not silent:
            return error
        of_all = self._of_peers or self._of_replicas
        names = ", ".join(f"rank {self._globals[one]} of all" if of_all else rank_name(one, self._globals)
                          for one in sorted(silent))
        alike = "replicas" if self._of_replicas else "the ranks of a pipeline"
        named = RuntimeError(f"nothing came from {names} in this step, and {alike} call the same steps: "
                             f"{type(error).__name__}: {error}")
        named.__cause__ = error
        return named

    def _next(self) -> Message:
        first = torch.empty(FIRST_BYTES, dtype=torch.uint8)
        sender = dist.recv(first, group=self.group)
        of_header, length = first[:_LENGTH_BYTES].view(torch.int64).tolist()
        room = FIRST_BYTES - _LENGTH_BYTES
        body = first[_LENGTH_BYTES : _LENGTH_BYTES + min(room, length)]
        if length > room:
            rest = torch.empty(length - room, dtype=torch.uint8)
            dist.recv(rest, sender, group=self.group)
            body = torch.cat([body, rest])
        opened, tensors, place = open_header(body[:of_header].numpy()), [], of_header
        for form in opened.forms:
            tensor = torch.empty(form.shape, dtype=form.dtype)
            if _is_small(tensor):
                _bytes_of(tensor).copy_(body[place : place + tensor.nbytes])
                place += tensor.nbytes
            elif tensor.numel() > 0:
                dist.recv(tensor, sender, group=self.group)
            tensors.append(tensor)
        message = unpack(opened, tensors, self._globals.index(sender))
        message.of_peer = self._of_peers
        return message


def _is_small(tensor: torch.Tensor) -> bool:
    return 0 < tensor.nbytes <= SMALL_BYTES


def _bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    """Of a contiguous tensor, the memory itself."""
    return tensor.view(-1).view(torch.uint8)
