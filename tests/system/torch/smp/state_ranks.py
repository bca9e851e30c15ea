"""Ranks for the tests of what a script holds beside its model: any placement, tasks by name."""

from __future__ import annotations

import contextlib
import functools
import pathlib
import sys
import unittest

import torch
import torch.distributed as dist

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))
import launch  # noqa: E402

SECONDS = 60  # a task may take; the tests' groups wait less


def arrange(pipeline: int = 1, tensor: int = 1, **config) -> None:
    """Fills smp's state for pipeline x tensor ranks and as many replicas as fit."""
    from sprat.torch.smp import setup
    from sprat.torch.smp.placement import CommGroup, Placement
    from sprat.torch.smp.state import state

    size = dist.get_world_size()
    placement = Placement(size, size // (pipeline * tensor), pipeline, tensor)
    groups = setup._make_groups(placement)
    state.__dict__.clear()
    state.__dict__.update(
        config=config,
        generation="v1",
        rank=dist.get_rank(),
        world_size=size,
        replicas=placement.replicas,
        tensor_parallel_degree=tensor,
        tp_rank=dist.get_rank(groups[CommGroup.TP_GROUP]),
        placement=placement,
        groups=groups,
    )


def equal(actual, expected, what: str) -> None:
    if actual != expected:
        raise AssertionError(f"rank {dist.get_rank()}: {what} is {actual!r}, not {expected!r}")


def equal_bits(actual: torch.Tensor, expected: torch.Tensor, what: str) -> None:
    if actual.dtype != expected.dtype or not torch.equal(actual, expected):
        raise AssertionError(f"rank {dist.get_rank()}: {what} differs in its bits")


@contextlib.contextmanager
def refused(kind: type, *words: str):
    try:
        yield
    except kind as error:
        missing = [word for word in words if word not in str(error)]
        if missing:
            raise AssertionError(f"{missing} are not in: {error}") from None
    else:
        raise AssertionError(f"no {kind.__name__} with {words}")


class OnRanks(unittest.TestCase):
    """Runs tasks on one launch of ranks a class."""

    size = 2

    @classmethod
    def setUpClass(cls):
        cls.ranks = launch.Ranks("sprat", cls.size, timeout=20)

    @classmethod
    def tearDownClass(cls):
        cls.ranks.leave()

    def run_task(self, task, *arguments) -> list:
        """What each rank returned; fails with each error."""
        bound = functools.partial(_with, task, arguments)
        reports = self.ranks.run(bound, SECONDS)
        errors = [f"rank {rank}: {each.error}" for rank, each in enumerate(reports) if each.error]
        if errors:
            self.fail("\n".join(errors) + "\n" + self.ranks.tail(40))
        return [each.value for each in reports]


def _with(task, arguments, rank: int, size: int):
    return task(*arguments)
