"""Python objects between ranks: broadcast, send, recv_from, allgather, and barriers, as in SMP.

An object is two messages, a header and its pickle, under a tag of their own. The header counts the
objects of its pair of ranks, so an object that belongs to another call is an error, never a value.
Unpickling runs code: take objects only from ranks of your own job.
"""

from __future__ import annotations

import enum
import pickle
from typing import Any

import torch
import torch.distributed as dist

from .backends import backends
from .placement import CommGroup
from .state import state

_TAG = 0x0B1EC7  # apart from what schedules and the execution server send
_MARK = 0x53505241544F424A  # the first word of a header; another word is another program's message


class RankType(enum.Enum):
    """What a rank's number counts in; its value is the group of those ranks."""

    WORLD_RANK = CommGroup.WORLD
    MP_RANK = CommGroup.MP_GROUP
    DP_RANK = CommGroup.DP_GROUP
    TP_RANK = CommGroup.TP_GROUP
    PP_RANK = CommGroup.PP_GROUP
    RDP_RANK = CommGroup.RDP_GROUP


def broadcast(obj: Any, group: CommGroup) -> None:
    """Sends a picklable object to every other rank of this rank's group of that kind.

    The receivers call `recv_from(src, rank_type)`. Returns when all have been sent. ValueError: the
    group is no CommGroup, or the object cannot be pickled.
    """
    data = _pickled(obj)
    works = []
    for rank in state.placement.group(_checked(group, CommGroup), state.rank):
        if rank != state.rank:
            works += _begin_send(data, rank)
    for work, _ in works:
        work.wait()


def send(obj: Any, dest: int, rank_type: RankType) -> None:
    """Sends a picklable object to rank `dest` of that type, and returns when it has been sent.

    ValueError: no such rank, this rank itself, or an object that cannot be pickled.
    """
    for work, _ in _begin_send(_pickled(obj), _world_rank(dest, rank_type, "dest")):
        work.wait()


def recv_from(src: int, rank_type: RankType) -> Any:
    """The next object that rank `src` of that type sent or broadcast to this rank.

    Objects of one sender arrive in its order. ValueError: no such rank, or this rank itself.
    RuntimeError: the message is not the next object of that rank. Waits for the world's timeout.
    """
    source = _world_rank(src, rank_type, "src")
    header = torch.empty(3, dtype=torch.int64, device=_device())
    dist.recv(header, source, tag=_TAG)
    mark, number, size = header.tolist()
    expected = _next_number("received", source)
    if mark != _MARK or number != expected:
        raise RuntimeError(
            f"rank {state.rank}: message {number} with mark {mark:#x} came from rank {source}, not "
            f"object {expected}: a rank that leaves a call by an exception must not go on "
            f"communicating; keep tag {_TAG:#x} for smp's objects"
        )
    data = torch.empty(size, dtype=torch.uint8, device=_device())
    dist.recv(data, source, tag=_TAG)
    return pickle.loads(data.cpu().numpy().tobytes())


def allgather(obj: Any, group: CommGroup) -> list[Any]:
    """The objects of all ranks of this rank's group of that kind, by their rank in it."""
    process_group = state.groups[_checked(group, CommGroup)]
    gathered: list[Any] = [None] * process_group.size()
    _pickled(obj)  # refused before any rank waits for this one
    dist.all_gather_object(gathered, obj, group=process_group)
    return gathered


def barrier(group: CommGroup = CommGroup.WORLD) -> None:
    """Returns once every rank of this rank's group of that kind has called it."""
    dist.barrier(state.groups[_checked(group, CommGroup)])


def mp_barrier() -> None:
    barrier(CommGroup.MP_GROUP)


def dp_barrier() -> None:
    barrier(CommGroup.DP_GROUP)


def pp_barrier() -> None:
    barrier(CommGroup.PP_GROUP)


def tp_barrier() -> None:
    barrier(CommGroup.TP_GROUP)


def rdp_barrier() -> None:
    barrier(CommGroup.RDP_GROUP)


def _begin_send(data: torch.Tensor, rank: int) -> list[tuple[dist.Work, torch.Tensor]]:
    """What to wait for, each with the tensor that must live until then."""
    number = _next_number("sent", rank)
    header = torch.tensor([_MARK, number, data.numel()], dtype=torch.int64, device=_device())
    return [(dist.isend(part, rank, tag=_TAG), part) for part in (header, data)]


def _pickled(obj: Any) -> torch.Tensor:
    try:
        data = pickle.dumps(obj)
    except Exception as error:  # pickle raises whatever the object does
        raise ValueError(
            f"rank {state.rank}: an object of type {type(obj).__name__} cannot be pickled: {error}"
        ) from error
    return torch.frombuffer(bytearray(data), dtype=torch.uint8).to(_device())


def _next_number(direction: str, peer: int) -> int:
    """Counted in `state`, so that a new `init` counts anew on every rank."""
    counts = state.__dict__.setdefault("object_counts", {})
    counts[direction, peer] = counts.get((direction, peer), -1) + 1
    return counts[direction, peer]


def _world_rank(number: int, rank_type: RankType, name: str) -> int:
    ranks = state.placement.group(_checked(rank_type, RankType).value, state.rank)
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < len(ranks):
        raise ValueError(
            f"rank {state.rank}: {name} = {number!r} is no {rank_type.name}: "
            f"give one of 0 to {len(ranks) - 1}"
        )
    if ranks[number] == state.rank:
        raise ValueError(
            f"rank {state.rank}: {name} = {number} as {rank_type.name} is this rank itself: "
            "keep the object instead"
        )
    return ranks[number]


def _checked(given: Any, kind: type[enum.Enum]) -> Any:
    if not isinstance(given, kind):
        names = ", ".join(f"{kind.__name__}.{member.name}" for member in kind)
        raise ValueError(f"rank {state.rank}: {given!r} is no {kind.__name__}: give one of {names}")
    return given


def _device() -> str:
    return "cpu" if {"cpu", "all"} & set(backends()) else state.mesh.device_type
