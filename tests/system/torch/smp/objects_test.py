"""Tests of object communication between 1, 2 and 4 ranks, in groups of every kind."""

from __future__ import annotations

import unittest

import torch
import torch.distributed as dist
from state_ranks import OnRanks, arrange, equal, refused


def smp():
    from sprat.torch.smp import objects

    return objects


def each_rank_receives_what_was_broadcast() -> None:
    from sprat.torch.smp import CommGroup, state

    for pipeline in (1, 2):
        if dist.get_world_size() % pipeline:
            continue
        arrange(pipeline=pipeline)
        kinds = ((CommGroup.WORLD, "WORLD_RANK"), (CommGroup.PP_GROUP, "PP_RANK"),
                 (CommGroup.RDP_GROUP, "RDP_RANK"), (CommGroup.DP_GROUP, "DP_RANK"),
                 (CommGroup.MP_GROUP, "MP_RANK"), (CommGroup.TP_GROUP, "TP_RANK"))
        for group, name in kinds:
            ranks = state.placement.group(group, state.rank)
            obj = {"group": group, "ranks": ranks, "tensor": torch.arange(1000)}
            if state.rank == ranks[-1]:
                smp().broadcast(obj, group)
            else:
                got = smp().recv_from(len(ranks) - 1, smp().RankType[name])
                equal((got["group"], got["ranks"]), (group, ranks), "object")
                equal(got["tensor"].tolist(), list(range(1000)), "tensor")


def objects_of_many_calls_arrive_in_order() -> None:
    arrange()
    rank, size = dist.get_rank(), dist.get_world_size()
    world = smp().RankType.WORLD_RANK
    for turn in (0, 1):  # even ranks send first, then odd ones
        for number in range(20):
            if rank % 2 == turn:
                smp().send((rank, "x" * number * 1000), (rank + 1) % size, world)
            else:
                before = (rank - 1) % size
                expected = (before, "x" * number * 1000)
                equal(smp().recv_from(before, world), expected, f"object {number}")


def two_ranks_may_send_to_each_other_at_once() -> None:
    arrange()
    rank = dist.get_rank()
    other = rank ^ 1
    smp().send(rank, other, smp().RankType.WORLD_RANK)
    equal(smp().recv_from(other, smp().RankType.WORLD_RANK), other, "object")


def allgather_lists_objects_by_rank() -> None:
    from sprat.torch.smp import CommGroup, state

    arrange(pipeline=2 if dist.get_world_size() > 1 else 1)
    for group in (CommGroup.WORLD, CommGroup.PP_GROUP, CommGroup.RDP_GROUP):
        expected = [("of", rank) for rank in state.placement.group(group, state.rank)]
        equal(smp().allgather(("of", state.rank), group), expected, "objects")


def barriers_of_all_kinds_return() -> None:
    arrange(pipeline=2 if dist.get_world_size() > 1 else 1)
    smp().barrier()
    for name in ("mp", "dp", "pp", "tp", "rdp"):
        getattr(smp(), f"{name}_barrier")()


def wrong_ranks_and_groups_are_refused() -> None:
    from sprat.torch.smp import CommGroup

    arrange()
    rank, size = dist.get_rank(), dist.get_world_size()
    world = smp().RankType.WORLD_RANK
    with refused(ValueError, f"rank {rank}", f"dest = {size}", "WORLD_RANK", f"0 to {size - 1}"):
        smp().send(1, size, world)
    with refused(ValueError, "src = -1"):
        smp().recv_from(-1, world)
    with refused(ValueError, "this rank itself"):
        smp().recv_from(rank, world)
    with refused(ValueError, "CommGroup.PP_GROUP", "'PP'"):
        smp().broadcast(1, "PP")
    with refused(ValueError, "RankType.TP_RANK"):
        smp().send(1, 0, CommGroup.WORLD)
    with refused(ValueError, "cannot be pickled", "function"):
        smp().allgather(lambda: None, CommGroup.WORLD)


def a_strangers_message_is_no_object() -> None:
    arrange()
    if dist.get_rank() == 0:
        dist.send(torch.tensor([1, 0, 8]), 1, tag=smp()._TAG)
    elif dist.get_rank() == 1:
        with refused(RuntimeError, "rank 1", "from rank 0", "not object 0"):
            smp().recv_from(0, smp().RankType.WORLD_RANK)


class Alone(OnRanks):
    size = 1

    def test_broadcast(self):
        self.run_task(each_rank_receives_what_was_broadcast)

    def test_allgather_lists_objects_by_rank(self):
        self.run_task(allgather_lists_objects_by_rank)

    def test_barriers_of_all_kinds_return(self):
        self.run_task(barriers_of_all_kinds_return)

    def test_wrong_ranks_and_groups_are_refused(self):
        self.run_task(wrong_ranks_and_groups_are_refused)


class Two(Alone):
    size = 2

    def test_objects_of_many_calls_arrive_in_order(self):
        self.run_task(objects_of_many_calls_arrive_in_order)

    def test_two_ranks_may_send_to_each_other_at_once(self):
        self.run_task(two_ranks_may_send_to_each_other_at_once)

    def test_a_strangers_message_is_no_object(self):
        self.run_task(a_strangers_message_is_no_object)


class Four(Two):
    size = 4


if __name__ == "__main__":
    unittest.main()
