"""Sprat's pipeline schedules, SMP's among them, for `torch.distributed.pipelining`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch.distributed.pipelining import schedules as theirs

from . import _native


def schedule(
    kind: str,
    stages: Any,
    n_microbatches: int,
    loss_fn: Callable | None = None,
    *,
    active_microbatches: int = 0,
    **options: Any,
) -> theirs._PipelineScheduleRuntime:
    """A runtime of PyTorch's that plays one of Sprat's schedules: call its step().

    kind: interleaved (SMP's), simple, gpipe, 1f1b, virtual_stages, zero_bubble_h1, zb_v or
    dualpipe_v; `sprat pipeline --schedule KIND` draws it.
    stages: this rank's PipelineStage, or a list of them, as many on each rank.
    active_microbatches: how many may be between forward and backward on the first stage; 0: as the
    schedule likes.
    options: PyTorch's own, such as scale_grads.
    Every rank of the stages' group calls it. ValueError if the schedule is not made for so few
    micro-batches, or has other stages on this rank.
    """
    own = list(stages) if isinstance(stages, Sequence) else [stages]
    if not own:
        raise ValueError("stages: give each rank at least one PipelineStage")
    ranks, rank = own[0].group_size, own[0].group_rank
    made = _native.make_schedule(kind, ranks, n_microbatches, len(own), active_microbatches)
    _require_placed(kind, made["rank_of_stage"], [one.stage_index for one in own], rank,
                    own[0].num_stages)
    runtime = theirs._PipelineScheduleRuntime(own, n_microbatches, loss_fn=loss_fn, **options)
    actions = {
        number: [theirs._Action.from_str(text) for text in order]
        for number, order in enumerate(made["actions"])
    }
    runtime._prepare_schedule_with_comms(actions)
    return runtime


def _require_placed(kind: str, rank_of_stage: list[int], indices: list[int], rank: int,
                    stages: int) -> None:
    expected = [stage for stage, owner in enumerate(rank_of_stage) if owner == rank]
    if len(rank_of_stage) != stages or sorted(indices) != expected:
        raise ValueError(
            f"rank {rank} has stages {sorted(indices)} of {stages}; the schedule {kind!r} has "
            f"stages {expected} of {len(rank_of_stage)} there: make PipelineStage(..., "
            f"stage_index=i, num_stages={len(rank_of_stage)}) for these"
        )
