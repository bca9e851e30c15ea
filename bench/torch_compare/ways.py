"""The process groups that are compared, all in one process, and how they take turns."""

from dataclasses import dataclass
from typing import Callable

import torch
import torch.distributed as dist

GLOO, SPRAT, OURS = "gloo", "sprat", "sprat, its memory"


@dataclass(frozen=True)
class Way:
    """A process group, and where the tensors that it is given lie."""

    name: str
    group: dist.ProcessGroup
    empty: Callable[[int], torch.Tensor]


def join(against: str = SPRAT) -> list[Way]:
    """Joins gloo's group, which also agrees on what is measured, and a second one of `against`.

    `against` is "sprat", or "gloo" for a comparison of gloo with itself, which shows the noise.
    """
    dist.init_process_group("gloo")
    ordinary = Way(GLOO, dist.group.WORLD, torch.empty)
    if against == GLOO:
        return [ordinary, Way(SPRAT, dist.new_group(backend=GLOO), torch.empty)]
    import sprat.torch
    group = dist.new_group(backend=against)
    return [ordinary, Way(SPRAT, group, torch.empty), Way(OURS, group, sprat.torch.empty)]


def alternate(samplers: dict[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """A round takes one sample of each, in an order that turns; a sample is its slowest rank's."""
    names = list(samplers)
    mine = torch.zeros(len(names), rounds, dtype=torch.float64)
    for number in range(rounds):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            mine[names.index(name), number] = samplers[name]()
    dist.all_reduce(mine, op=dist.ReduceOp.MAX)
    return {name: mine[index].tolist() for index, name in enumerate(names)}
