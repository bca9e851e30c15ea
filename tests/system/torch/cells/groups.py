"""Groups: subsets, many at once, from several threads, their barriers and their end."""

from __future__ import annotations

import datetime
import re
import threading
import time
from typing import Callable

import torch
import torch.distributed as dist

from cell import Theme
from cells.reference import same_bits

CELLS = Theme("Groups")


def _sum_of_ranks(group: dist.ProcessGroup | None, ranks: list[int], rank: int) -> None:
    tensor = torch.full((50,), float(rank))
    dist.all_reduce(tensor, group=group)
    same_bits(tensor, torch.full((50,), float(sum(ranks))), f"sum over {ranks}")


@CELLS.cell("new_group that only its members enter (use_local_synchronization)", sizes=(4,))
def local(rank: int, size: int) -> None:
    ranks = [1, 3] if rank % 2 else [0, 2]
    _sum_of_ranks(dist.new_group(ranks, use_local_synchronization=True), ranks, rank)


@CELLS.cell("new_group of some ranks, and of one", sizes=(4,))
def subsets(rank: int, size: int) -> None:
    for ranks in ([0, 1], [1, 3], [0, 2, 3], [2], [3, 1, 0]):
        group = dist.new_group(ranks)
        if rank in ranks:
            _sum_of_ranks(group, ranks, rank)
            assert dist.get_process_group_ranks(group) == sorted(ranks)
            # PyTorch names a group of use_local_synchronization by how many groups the rank is in.
            dist.destroy_process_group(group)


@CELLS.cell("new_subgroups, new_subgroups_by_enumeration", sizes=(4,))
def subgroups(rank: int, size: int) -> None:
    mine, _ = dist.new_subgroups(group_size=2)
    _sum_of_ranks(mine, [rank // 2 * 2, rank // 2 * 2 + 1], rank)
    mine, _ = dist.new_subgroups_by_enumeration([[0, 3], [1, 2]])
    _sum_of_ranks(mine, [rank, 3 - rank], rank)


@CELLS.cell("64 groups at once, all in use, then destroyed")
def many(rank: int, size: int) -> None:
    groups = [dist.new_group() for _ in range(64)]
    tensors = [torch.full((50,), float(rank + n)) for n in range(64)]
    works = [dist.all_reduce(t, group=g, async_op=True) for t, g in zip(tensors, groups, strict=True)]
    for n, work in enumerate(works):
        work.wait()
        same_bits(tensors[n], torch.full((50,), float(sum(r + n for r in range(size)))), f"group {n}")
    for group in groups:
        dist.destroy_process_group(group)


def _kept_groups() -> int:
    """How many groups the backend will leave when the process ends."""
    from sprat.torch.backend import _groups

    return len(_groups)


@CELLS.cell("groups that are destroyed are forgotten, and those of split() are known")
def forgotten(rank: int, size: int) -> None:
    ours = dist.get_backend() == "sprat"
    before = _kept_groups() if ours else 0
    for _ in range(3):
        group = dist.new_group()
        split = group.split_group(list(range(size)), group_name=f"split of {group.group_name}")
        split.allreduce([torch.ones(1)]).wait()
        assert not ours or _kept_groups() == before + 2, f"{_kept_groups()} groups are known, not {before + 2}"
        dist.destroy_process_group(group)
        del group, split
        assert not ours or _kept_groups() == before, f"{_kept_groups() - before} groups are kept"


@CELLS.cell("Work.wait takes it out of c10d's registry")
def registry(rank: int, size: int) -> None:
    from torch.distributed._functional_collectives import allow_inflight_collective_as_graph_input_ctx

    registered = torch._C._distributed_c10d._get_work_registry_size
    before = registered()
    with allow_inflight_collective_as_graph_input_ctx():
        tensors = [torch.ones(10) for _ in range(20)]
        works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors[:10]]
        assert registered() == before + 10, f"{registered() - before} works are registered, not 10"
        for work in works:
            work.wait()
        for tensor in tensors[10:]:
            dist.all_reduce(tensor)
        assert registered() == before, f"{registered() - before} works stay"


@CELLS.cell("operations of two groups, begun in another order on each rank")
def interleaved(rank: int, size: int) -> None:
    groups = [dist.new_group(), dist.new_group()]
    tensors = [torch.full((1000,), float(rank + n)) for n in range(2)]
    order = (0, 1) if rank % 2 else (1, 0)
    works = {n: dist.all_reduce(tensors[n], group=groups[n], async_op=True) for n in order}
    for n in (0, 1):
        works[n].wait()
        same_bits(tensors[n], torch.full((1000,), float(sum(r + n for r in range(size)))), f"group {n}")


@CELLS.cell("four threads, each with a group of its own")
def threads(rank: int, size: int) -> None:
    groups = [dist.new_group() for _ in range(4)]
    errors: list[str] = []

    def work(number: int) -> None:
        try:
            for turn in range(50):
                tensor = torch.full((10 + turn,), float(rank + number))
                dist.all_reduce(tensor, group=groups[number])
                expected = float(sum(r + number for r in range(size)))
                same_bits(tensor, torch.full((10 + turn,), expected), f"thread {number}, turn {turn}")
        except Exception as error:
            errors.append(str(error))

    workers = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not errors, errors[0]


@CELLS.cell("a group of another backend beside: cpu:NAME")
def named_device(rank: int, size: int) -> None:
    name = dist.get_backend()
    _sum_of_ranks(dist.new_group(backend=f"cpu:{name}"), list(range(size)), rank)


@CELLS.cell("TORCH_DISTRIBUTED_DEBUG=DETAIL (a wrapper that checks shapes)")
def debug(rank: int, size: int) -> None:
    dist.set_debug_level(dist.DebugLevel.DETAIL)
    try:
        group = dist.new_group()
        _sum_of_ranks(group, list(range(size)), rank)
        output = torch.empty(size * 3)
        dist.all_gather_into_tensor(output, torch.full((3,), float(rank)), group=group)
        same_bits(output, torch.arange(float(size)).repeat_interleave(3), "gathered")
        try:
            dist.all_reduce(torch.zeros(3 + rank), group=group)
        except RuntimeError as error:
            assert f"[{3 + rank}]" in str(error), f"the message lacks the shapes: {error}"
        else:
            raise AssertionError("shapes that differ were summed")
    finally:
        dist.set_debug_level(dist.DebugLevel.OFF)


def _monitored_barrier(group: dist.ProcessGroup, seconds: float, everybody: bool) -> None:
    group.monitored_barrier(datetime.timedelta(seconds=seconds), wait_all_ranks=everybody)


@CELLS.cell("dist.monitored_barrier")
def monitored_barrier(rank: int, size: int) -> None:
    dist.monitored_barrier(timeout=datetime.timedelta(seconds=30))


@CELLS.cell("monitored_barrier names the late rank, with wait_all_ranks every one")
def late_ranks(rank: int, size: int) -> None:
    """The ranks from 1 on are late; a key in the store keeps them until rank 0 has noticed."""
    store = dist.distributed_c10d._get_default_store()
    for turn, everybody in enumerate((False, True)):
        group = dist.new_group()
        _monitored_barrier(group, 30, everybody)
        key = f"late {turn}"
        if rank == 0:
            try:
                _monitored_barrier(group, 1, everybody)
            except RuntimeError as error:
                named = re.findall(r"\b\d+\b", str(error))
                late = range(1, size) if everybody else (1,)
                assert all(str(r) in named for r in late), f"late ranks are not named: {error}"
            else:
                raise AssertionError("the barrier passed without the late ranks")
            store.set(key, "noticed")
        else:
            store.wait([key])
    dist.barrier()


def _time_out(rank: int, size: int, new_group: Callable[..., dist.ProcessGroup] = dist.new_group) -> str:
    """What every rank but 1 is told by a group that rank 1 leaves waiting."""
    store = dist.distributed_c10d._get_default_store()
    group = new_group(timeout=datetime.timedelta(seconds=2))
    dist.barrier(group)
    key = f"gave up on {group.group_name}"
    message = ""
    if rank == 1:
        while store.add(key, 0) < size - 1:
            time.sleep(0.05)
    else:
        try:
            dist.all_reduce(torch.ones(10), group=group)
        except RuntimeError as error:
            message = str(error)
        else:
            raise AssertionError("the sum came without rank 1")
        store.add(key, 1)
    return message


@CELLS.cell("a timeout names the late rank", last=True)
def timeout(rank: int, size: int) -> None:
    message = _time_out(rank, size)
    assert rank == 1 or "rank 1" in message, f"the message does not name rank 1: {message}"


@CELLS.cell("after a timeout in a group, other groups go on", last=True)
def after_timeout(rank: int, size: int) -> None:
    other = dist.new_group()
    _time_out(rank, size)
    _sum_of_ranks(other, list(range(size)), rank)
    _sum_of_ranks(None, list(range(size)), rank)


def _independent_group(**options: object) -> dist.ProcessGroup:
    """Groups of PyTorch's own backends are independent all."""
    if dist.get_backend() != "sprat":
        return dist.new_group(**options)
    import sprat.torch

    return sprat.torch.independent_group(**options)


@CELLS.cell("an independent group goes on after another's timeout, and others after its own", last=True)
def independent(rank: int, size: int) -> None:
    mine, other = _independent_group(), dist.new_group()
    message = _time_out(rank, size, _independent_group)
    assert rank == 1 or "2 s" in message or "2000ms" in message, message
    for group in (mine, other, None):
        _sum_of_ranks(group, list(range(size)), rank)
    _time_out(rank, size)
    _sum_of_ranks(mine, list(range(size)), rank)


@CELLS.cell("destroy_process_group, then init_process_group again")
def again(rank: int, size: int) -> None:
    """The default group is made anew on the same store."""
    backend, store = dist.get_backend(), dist.distributed_c10d._get_default_store()
    dist.barrier()
    dist.destroy_process_group()
    dist.init_process_group(backend, store=dist.PrefixStore("again", store), rank=rank, world_size=size,
                            timeout=datetime.timedelta(seconds=60))
    _sum_of_ranks(None, list(range(size)), rank)
