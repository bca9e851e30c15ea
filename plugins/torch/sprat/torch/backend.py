"""The backend "sprat": how torch.distributed makes its process groups."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import time
from contextvars import ContextVar
from datetime import timedelta
from typing import Any, Iterator

import torch
import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d

from sprat import autoload
from sprat.torch import _native, flight_trace

_groups = flight_trace.groups
# A stream that waits for an operation holds one of the driver's channels, of which there are 8
# unless CUDA's first call finds this. Who has set it, or calls CUDA before, keeps theirs.
os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")
# Without it the others would take a process that ends for one that died.
atexit.register(_groups.leave)
# Whether the group that this thread is making is to be a job of its own.
_independent: ContextVar[bool] = ContextVar("independent", default=False)


def create(options: Any, _: Any = None) -> _native.Backend:
    """As torch.distributed calls it: on every member of the group that is made."""
    ranks = list(options.global_ranks_in_group)
    if not ranks:  # the default group
        _groups.leave()
        return _native.join(_groups, options)
    world = _backend_of(dist.group.WORLD)
    if world is None or _independent.get():  # or the default group is another backend's
        return _native.join(_groups, options)
    return _native.create_group(world, ranks, options)


def devices() -> list[str]:
    """The devices whose tensors the backend takes here.

    PyTorch asks a group for them, and puts tensors on whichever it likes best.
    """
    found = ["cpu"]
    # This counts by NVML, and leaves a process that is to fork as it is.
    if _native.serves("cuda") and torch.cuda.device_count() > 0:
        found.append("cuda")
    # A device that another package has brought, and told sprat of.
    other = torch._C._get_privateuse1_backend_name()
    return [*found, other] if _native.serves(other) else found


def register() -> None:
    """Makes ``torch.distributed`` know the backend. Called by the import; again does nothing."""
    autoload.register()
    if dist.monitored_barrier is not monitored_barrier:
        monitored_barrier.others = dist.monitored_barrier
        dist.monitored_barrier = c10d.monitored_barrier = monitored_barrier
        set_timeout.others = c10d._set_pg_timeout
        c10d._set_pg_timeout = set_timeout
        add_ephemeral_timeout.others = c10d._add_ephemeral_timeout_for_all_pgs
        c10d._add_ephemeral_timeout_for_all_pgs = add_ephemeral_timeout
        flight_trace.put_in()


def independent_group(
    ranks: list[int] | None = None, timeout: timedelta | None = None
) -> dist.ProcessGroup:
    """``torch.distributed.new_group`` whose errors are its own.

    A timeout, a lost rank or a disagreement ends the groups of a job, and this group is a job: its
    errors leave the other groups alone, and theirs leave it. Every rank of the default group calls,
    as of ``new_group``; what is not a member gets ``GroupMember.NON_GROUP_MEMBER``. Joining takes
    longer than for a group of the job, and shares nothing with it.
    """
    token = _independent.set(True)
    try:
        return dist.new_group(ranks, timeout=timeout, backend="sprat")
    finally:
        _independent.reset(token)


def set_timeout(timeout: timedelta, group: dist.ProcessGroup | None = None) -> None:
    """``torch.distributed``'s ``_set_pg_timeout``, which itself knows only gloo and NCCL."""
    group = group or dist.group.WORLD
    ours = [] if c10d._rank_not_in_group(group) else list(_backends_of(group))
    if not ours or len(ours) < len(group._device_types):
        set_timeout.others(timeout, group)
    for backend in ours:
        backend._set_default_timeout(timeout)


def add_ephemeral_timeout(timeout: timedelta) -> None:
    """``torch.distributed``'s ``_add_ephemeral_timeout_for_all_pgs``, which itself knows only NCCL.

    Calls from here on get ``timeout`` more, in every group, until the first of them has ended.
    """
    add_ephemeral_timeout.others(timeout)
    for group in list(c10d._world.pg_map):
        if not c10d._rank_not_in_group(group):
            for backend in _backends_of(group):
                backend._add_ephemeral_timeout(timeout)


def monitored_barrier(
    group: dist.ProcessGroup | None = None,
    timeout: timedelta | None = None,
    wait_all_ranks: bool = False,
) -> None:
    """``torch.distributed.monitored_barrier``, which PyTorch itself refuses to all but gloo.

    Rank 0 raises ``RuntimeError`` naming who has not come within ``timeout``; every other rank that
    has come raises the same. The job goes on.
    """
    if c10d._rank_not_in_group(group) or dist.get_backend(group) != "sprat":
        return monitored_barrier.others(group, timeout, wait_all_ranks)
    # -1 ms: the group's own.
    return (group or dist.group.WORLD).monitored_barrier(
        timeout or timedelta(milliseconds=-1), wait_all_ranks=wait_all_ranks
    )


def flight_record(group: dist.ProcessGroup | None = None) -> dict[str, Any]:
    """What this rank did last, on every group of the job of ``group``: a dictionary.

    ``SPRAT_FLIGHT_RECORDER=DIR`` writes the same as JSON when a job fails, and ``sprat status``
    shows it of processes that hang.
    """
    backend = _backend_of(group or dist.group.WORLD)
    if backend is None:
        raise ValueError(f"the group is {dist.get_backend(group)}'s; only sprat keeps such a record")
    return json.loads(backend.flight_record())


def write_trace(path: str = "", group: dist.ProcessGroup | None = None) -> None:
    """Rank 0 writes what all ranks noted so far as one Chrome trace, which Perfetto opens.

    Every rank of ``group``, which has all ranks of its job, calls it. ``path`` is that of
    ``SPRAT_TRACE`` if it is empty; without ``SPRAT_TRACE`` nobody notes anything, and nothing
    happens. Raises ``RuntimeError`` on every rank if the file cannot be written.
    """
    _traced_backend(group).write_trace(path)


@contextlib.contextmanager
def trace_span(name: str, group: dist.ProcessGroup | None = None) -> Iterator[None]:
    """Shows what is done within it among what the rank computes, under ``name``.

    Of ``name`` 31 bytes are kept. Without ``SPRAT_TRACE`` nothing is noted.
    """
    backend, start = _traced_backend(group), time.monotonic_ns()
    try:
        yield
    finally:
        backend.note(name, start, time.monotonic_ns())


def _traced_backend(group: dist.ProcessGroup | None) -> _native.Backend:
    backend = _backend_of(group or dist.group.WORLD)
    if backend is None:
        raise ValueError(f"the group is {dist.get_backend(group)}'s; only sprat keeps a timeline")
    return backend


def _backend_of(group: dist.ProcessGroup | None) -> _native.Backend | None:
    """Sprat's part of a group."""
    return next(_backends_of(group), None)


def _backends_of(group: dist.ProcessGroup | None) -> Iterator[_native.Backend]:
    """Sprat's, by device, under what TORCH_DISTRIBUTED_DEBUG=DETAIL wraps them in."""
    for device in [] if group is None else group._device_types:
        backend = group._get_backend(device)
        backend = getattr(backend, "wrapped_pg", backend)
        if isinstance(backend, _native.Backend):
            yield backend
