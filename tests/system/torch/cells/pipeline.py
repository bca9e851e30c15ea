"""Pipelining: every schedule of PyTorch against one process."""

from __future__ import annotations

import torch
from torch import nn
from torch.distributed.pipelining import (PipelineStage, Schedule1F1B, ScheduleDualPipeV, ScheduleGPipe,
                                          ScheduleInterleaved1F1B, ScheduleInterleavedZeroBubble, ScheduleLoopedBFS,
                                          ScheduleZBVZeroBubble, SplitPoint, pipeline)

from cell import Theme
from cells.exact import ROWS, batch, gradients, loss, network, same

CELLS = Theme("Pipelining")


def _stages(rank: int, size: int, chunks: int, v_shaped: bool) -> list[int]:
    """Which of size x chunks stages are the rank's; a V comes back to rank 0."""
    if v_shaped:
        return [rank, 2 * size - 1 - rank]
    return [rank + size * chunk for chunk in range(chunks)]


def _as_one_process(schedule_type, rank: int, size: int, chunks: int = 1, v_shaped: bool = False) -> None:
    """Gradients of a network of one block a stage, of 2 x size micro-batches of ROWS rows each."""
    count = size * chunks
    blocks = network(blocks=count)
    mine = _stages(rank, size, chunks, v_shaped)
    parts = [nn.Sequential(blocks[number]) for number in mine]
    stages = [PipelineStage(part, number, count, torch.device("cpu")) for part, number in zip(parts, mine, strict=True)]
    schedule = schedule_type(stages if chunks > 1 else stages[0], 2 * size, loss_fn=loss, scale_grads=True)
    inputs, weights = batch(0, 2 * size)
    arguments = (inputs,) if 0 in mine else ()
    losses: list[torch.Tensor] = []
    if count - 1 in mine:
        schedule.step(*arguments, target=weights, losses=losses)
    else:
        schedule.step(*arguments)
    whole = network(blocks=count)
    expected = gradients(whole, [(inputs, weights)])
    for part, number in zip(parts, mine, strict=True):
        for ours, theirs in zip(part.parameters(), expected[2 * number:2 * number + 2], strict=True):
            same(ours.grad, theirs, f"gradient of stage {number}")
    if losses:
        same(torch.stack(losses).mean(), loss(whole(inputs), weights), "loss")


@CELLS.cell("GPipe")
def gpipe(rank: int, size: int) -> None:
    _as_one_process(ScheduleGPipe, rank, size)


@CELLS.cell("1F1B")
def one_forward_one_backward(rank: int, size: int) -> None:
    _as_one_process(Schedule1F1B, rank, size)


@CELLS.cell("Interleaved 1F1B")
def interleaved(rank: int, size: int) -> None:
    _as_one_process(ScheduleInterleaved1F1B, rank, size, chunks=2)


@CELLS.cell("Looped BFS")
def looped_bfs(rank: int, size: int) -> None:
    _as_one_process(ScheduleLoopedBFS, rank, size, chunks=2)


@CELLS.cell("Interleaved zero bubble")
def interleaved_zero_bubble(rank: int, size: int) -> None:
    _as_one_process(ScheduleInterleavedZeroBubble, rank, size, chunks=2)


@CELLS.cell("ZBV zero bubble")
def zbv(rank: int, size: int) -> None:
    _as_one_process(ScheduleZBVZeroBubble, rank, size, chunks=2, v_shaped=True)


@CELLS.cell("DualPipeV")
def dual_pipe_v(rank: int, size: int) -> None:
    _as_one_process(ScheduleDualPipeV, rank, size, chunks=2, v_shaped=True)


@CELLS.cell("a traced model, split at SplitPoint")
def traced(rank: int, size: int) -> None:
    whole = network(blocks=size)
    inputs, weights = batch(0, size)
    pipe = pipeline(whole, (inputs[:ROWS],),
                    split_spec={str(number): SplitPoint.BEGINNING for number in range(1, size)})
    stage = pipe.build_stage(rank, torch.device("cpu"))
    schedule = ScheduleGPipe(stage, size, loss_fn=loss)
    if rank == 0:
        schedule.step(inputs)
    else:
        output = schedule.step(target=weights) if rank == size - 1 else schedule.step()
        if rank == size - 1:
            same(output, network(blocks=size)(inputs), "output")
