"""Tests of Sprat's schedules under torch.distributed.pipelining, on two and four processes.

Use: python tests/system/torch/smp/pipelining_test.py. Needs torch and sprat.torch.
"""

from __future__ import annotations

import functools
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import torch
from launch import Ranks
from torch import nn
from torch.distributed.pipelining import PipelineStage

WIDTH, BATCH = 8, 16
# Kind, stages on each rank. PyTorch's runtime plays dualpipe_v's overlaps one after the other.
KINDS = (("gpipe", 1), ("1f1b", 1), ("interleaved", 1), ("interleaved", 2), ("simple", 1),
         ("virtual_stages", 2), ("zero_bubble_h1", 1), ("zb_v", 2))


def block(index: int) -> nn.Module:
    torch.manual_seed(index)
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh())


def data() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(99)
    return torch.randn(BATCH, WIDTH), torch.randn(BATCH, WIDTH)


def trained_alone(stages: int, microbatches: int) -> tuple[list, list]:
    """Losses of the micro-batches, and gradients by stage, as PyTorch's runtime scales them."""
    blocks = [block(index) for index in range(stages)]
    losses = []
    for x, y in zip(*(part.chunk(microbatches) for part in data())):
        loss = nn.functional.mse_loss(nn.Sequential(*blocks)(x), y)
        loss.backward()
        losses.append(loss.detach())
    return losses, [[one.grad / microbatches for one in made.parameters()] for made in blocks]


def trains(kind: str, per_rank: int, microbatches: int, rank: int, size: int) -> str:
    from sprat.torch import _native
    from sprat.torch.pipelining import schedule

    placed = _native.make_schedule(kind, size, microbatches, per_rank)["rank_of_stage"]
    count, device = size * per_rank, torch.device("cpu")
    own = [PipelineStage(block(stage), stage, count, device)
           for stage, owner in enumerate(placed) if owner == rank]
    played = schedule(kind, own, microbatches, nn.functional.mse_loss)
    x, y = data()
    losses: list = []
    first = any(stage.is_first for stage in own)
    last = any(stage.is_last for stage in own)
    played.step(*([x] if first else []), **({"target": y, "losses": losses} if last else {}))
    want_losses, want = trained_alone(count, microbatches)
    if last and not all(map(torch.equal, losses, want_losses)):
        return f"losses {losses}, not {want_losses}"
    for stage in own:
        for got, wanted in zip(stage.submod.parameters(), want[stage.stage_index]):
            if not torch.equal(got.grad, wanted):
                return f"stage {stage.stage_index}: {(got.grad - wanted).abs().max():.3g}"
    return ""


def refuses(rank: int, size: int) -> str:
    from sprat.torch.pipelining import schedule

    stage = PipelineStage(block(0), size - 1 - rank, size, torch.device("cpu"))
    try:
        schedule("1f1b", stage, 4)
    except ValueError as error:
        return str(error)
    return "nothing was said"


class Schedules(unittest.TestCase):
    def test_train_with_the_bits_of_one_rank(self):
        for size, microbatches in ((2, 4), (4, 8)):
            with Ranks("sprat", size) as ranks:
                for kind, per_rank in KINDS:
                    with self.subTest(kind=kind, per_rank=per_rank, ranks=size):
                        task = functools.partial(trains, kind, per_rank, microbatches)
                        reports = ranks.run(task, deadline=60)
                        self.assertEqual([(one.error, one.value) for one in reports],
                                         [("", "")] * size, ranks.tail(20))

    def test_refuse_stages_that_lie_elsewhere(self):
        with Ranks("sprat", 2) as ranks:
            for rank, report in enumerate(ranks.run(refuses, deadline=60)):
                self.assertIn(f"rank {rank} has stages [{1 - rank}] of 2; the schedule '1f1b' has "
                              f"stages [{rank}] of 2 there", str(report.value))


if __name__ == "__main__":
    unittest.main()
