"""Saved tensors in a file between forward and backward, loaded ahead of their use.

The newest stay in memory, older ones leave behind the forward. Backwards go through them from the
newest on; when one is used, those before it begin to come back. Values are the same bits.
"""

from __future__ import annotations

import errno
import logging
import os
import queue
import tempfile
import time
import weakref
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef

from .server.tasks import current_microbatch

log = logging.getLogger(__name__)
LEAST_BYTES = 4096  # a smaller tensor stays: its place in the file would cost more than it
STORES_AT_ONCE = 2  # more hold memory that was to be free


@dataclass
class ActivationCounters:
    """What was moved since the store was made."""

    stores: int = 0
    loads: int = 0
    kept_for_room: int = 0  # stayed since the file system had no room
    stall_seconds: float = 0.0  # backwards waited for loads, forwards for stores
    bytes_now: int = 0  # of saved tensors in memory
    bytes_most: int = 0


@dataclass(eq=False)
class _Kept:
    """One storage that backwards will want."""

    microbatch: int
    number: int
    bytes: int
    memory: torch.UntypedStorage | None
    place: int = -1  # in the file, once it is there
    transfer: Future | None = None
    handles: int = 0
    wanted: bool = False  # by a backward that has begun


@dataclass(eq=False)
class _Handle:
    """What autograd holds instead of a tensor."""

    kept: _Kept
    dtype: torch.dtype
    size: torch.Size
    stride: tuple[int, ...]
    offset: int
    __weakref__: Any = field(init=False, repr=False, compare=False, default=None)


class ActivationStore:
    """The saved tensors of one rank. Its methods are called by one thread at a time.

    folder: where its file is, without a name; on a disk, not in memory. horizon: so many storages
    are in memory, besides those that are being written: the newest, and those loaded ahead.
    """

    def __init__(self, folder: str | os.PathLike | None = None, horizon: int = 2):
        if horizon < 1:
            raise ValueError(f"activation_loading_horizon = {horizon}: at least 1")
        self.folder = os.fspath(folder or tempfile.gettempdir())
        self.horizon = horizon
        self.counters = ActivationCounters()
        self._io = ThreadPoolExecutor(1, thread_name_prefix="sprat-smp-offload")
        try:
            self._file, path = tempfile.mkstemp(prefix="sprat-activations-", dir=self.folder)
            os.unlink(path)  # nothing stays behind, however the process ends
        except OSError as error:
            raise ValueError(
                f"activations cannot go to {self.folder!r}: {error.strerror}; name a folder on a "
                "disk with room"
            ) from error
        weakref.finalize(self, os.close, self._file)
        self._end = 0
        self._places: dict[int, list[int]] = {}  # free ones, by size
        self._made = 0
        self._newest: deque[_Kept] = deque()  # in memory, and not on their way
        self._storing: deque[_Kept] = deque()
        self._loading: list[_Kept] = []  # on their way back, or there and not yet used
        self._all: dict[int, list[_Kept]] = {}  # by micro-batch, as made
        self._known: dict[int, tuple[StorageWeakRef, int, _Kept]] = {}
        self._gone: queue.SimpleQueue[_Kept] = queue.SimpleQueue()  # handles that autograd let go

    def hooks(self) -> AbstractContextManager:
        """What autograd saves inside goes through the store."""
        return torch.autograd.graph.saved_tensors_hooks(self._pack, self._unpack)

    def begin_backward(self) -> None:
        """Of the micro-batch that this thread runs: what it needs first begins to come back."""
        self._collect()
        self._load_ahead(current_microbatch())

    def end_step(self) -> None:
        """Lets go of what autograd has let go of."""
        self._collect()
        self._known.clear()

    # What autograd calls.

    def _pack(self, tensor: torch.Tensor) -> torch.Tensor | _Handle:
        if not _leaves(tensor):
            return tensor
        self._collect()
        kept = self._kept_of(tensor)
        handle = _Handle(kept, tensor.dtype, tensor.size(), tensor.stride(),
                         tensor.storage_offset())
        kept.handles += 1
        weakref.finalize(handle, self._gone.put, kept)
        self._let_leave()
        return handle

    def _unpack(self, packed: torch.Tensor | _Handle) -> torch.Tensor:
        if isinstance(packed, torch.Tensor):
            return packed
        self._collect()
        kept = packed.kept
        kept.wanted = True
        if kept.memory is None:
            if kept.transfer is None:
                self._load(kept)
            self._end_load(kept)
        if kept in self._loading:
            self._loading.remove(kept)
        self._load_ahead(kept.microbatch)
        tensor = torch.empty(0, dtype=packed.dtype)
        return tensor.set_(kept.memory, packed.offset, packed.size, packed.stride)

    # Forward: what leaves.

    def _kept_of(self, tensor: torch.Tensor) -> _Kept:
        """One for all views of a storage, as long as nobody writes to it."""
        storage = tensor.untyped_storage()
        known = self._known.get(storage._cdata)
        if known and not known[0].expired() and known[1] == tensor._version and known[2].handles:
            return known[2]
        self._made += 1
        kept = _Kept(current_microbatch(), self._made, storage.nbytes(), storage)
        self._known[storage._cdata] = (StorageWeakRef(storage), tensor._version, kept)
        self._all.setdefault(kept.microbatch, []).append(kept)
        self._newest.append(kept)
        self._count(kept.bytes)
        return kept

    def _let_leave(self) -> None:
        while len(self._newest) > self.horizon:
            kept = self._newest.popleft()
            if kept.wanted:
                continue
            self.counters.stores += 1
            kept.transfer = self._io.submit(self._write, kept.memory, self._place(kept.bytes))
            self._storing.append(kept)
        while len(self._storing) > STORES_AT_ONCE:
            self._end_store(self._storing.popleft())

    def _end_store(self, kept: _Kept) -> None:
        transfer, kept.transfer = kept.transfer, None
        begin = time.monotonic()
        error = transfer.exception()  # raised here it would keep this thread's frames alive
        self.counters.stall_seconds += time.monotonic() - begin
        if error is None:
            kept.place = transfer.result()
            if not kept.wanted:
                kept.memory = None
                self._count(-kept.bytes)
            return
        if getattr(error, "errno", None) not in (errno.ENOSPC, errno.EDQUOT):
            raise RuntimeError(f"an activation cannot be written to {self.folder!r}: {error}")
        if self.counters.kept_for_room == 0:
            log.warning("%r has no room: activations stay in memory", self.folder)
        self.counters.kept_for_room += 1

    # Backward: what comes back.

    def _load_ahead(self, microbatch: int) -> None:
        """Of this micro-batch, then of those after it, in the order of backwards."""
        there = sum(not kept.wanted for kept in self._newest) + len(self._loading)
        room = self.horizon - 1 - there
        for number in sorted(self._all, key=lambda one: (one < microbatch, one)):
            for kept in reversed(self._all[number]):
                if room <= 0:
                    return
                if kept.memory is None and kept.transfer is None and not kept.wanted:
                    self._load(kept)
                    self._loading.append(kept)
                    room -= 1

    def _load(self, kept: _Kept) -> None:
        self.counters.loads += 1
        self._count(kept.bytes)
        kept.transfer = self._io.submit(self._read, kept.place, kept.bytes)

    def _end_load(self, kept: _Kept) -> None:
        begin = time.monotonic()
        try:
            kept.memory = kept.transfer.result()
        except OSError as error:
            raise RuntimeError(f"an activation cannot be read from {self.folder!r}: {error}")
        finally:
            kept.transfer = None
            self.counters.stall_seconds += time.monotonic() - begin

    # Ends.

    def _collect(self) -> None:
        while self._storing and self._storing[0].transfer.done():
            self._end_store(self._storing.popleft())
        while not self._gone.empty():
            kept = self._gone.get()
            kept.handles -= 1
            if kept.handles == 0:
                self._drop(kept)

    def _drop(self, kept: _Kept) -> None:
        if kept in self._storing:
            self._storing.remove(kept)
            self._end_store(kept)
        elif kept.transfer is not None:
            self._end_load(kept)
        for waiting in (self._newest, self._loading, self._all[kept.microbatch]):
            if kept in waiting:
                waiting.remove(kept)
        if not self._all[kept.microbatch]:
            del self._all[kept.microbatch]
        if kept.memory is not None:
            kept.memory = None
            self._count(-kept.bytes)
        if kept.place >= 0:
            self._places.setdefault(kept.bytes, []).append(kept.place)

    def _place(self, size: int) -> int:
        free = self._places.get(size)
        if free:
            return free.pop()
        self._end += size
        return self._end - size

    def _count(self, more: int) -> None:
        self.counters.bytes_now += more
        self.counters.bytes_most = max(self.counters.bytes_most, self.counters.bytes_now)

    # In the thread that transfers.

    def _write(self, memory: torch.UntypedStorage, place: int) -> int:
        view, done = _bytes_of(memory), 0
        while done < len(view):
            done += os.pwrite(self._file, view[done:], place + done)
        return place

    def _read(self, place: int, size: int) -> torch.UntypedStorage:
        memory = torch.UntypedStorage(size)
        view, done = _bytes_of(memory), 0
        while done < size:
            got = os.preadv(self._file, [view[done:]], place + done)
            if got == 0:
                raise OSError(errno.EIO, "the file is shorter than what was written")
            done += got
        return memory


def _leaves(tensor: torch.Tensor) -> bool:
    """Not parameters, which stay in any case, nor what shows a small part of a large storage."""
    if type(tensor) is not torch.Tensor or tensor.device.type != "cpu":
        return False
    if tensor.layout != torch.strided or isinstance(tensor._base, nn.Parameter):
        return False
    if tensor.is_leaf and tensor.requires_grad:
        return False
    size = tensor.numel() * tensor.element_size()
    return size >= LEAST_BYTES and 2 * size >= tensor.untyped_storage().nbytes()


def _bytes_of(memory: torch.UntypedStorage) -> memoryview:
    return memoryview(torch.empty(0, dtype=torch.uint8).set_(memory).numpy())
