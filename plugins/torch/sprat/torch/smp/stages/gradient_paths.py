"""Which way gradients of values that cross pieces go back: from taker to taker, then to the maker. Pure but
for a backward on tensors without numbers.

Autograd of one rank adds what a value's uses give in the reverse of the program's order. So the last piece that
takes a value hands its gradient to the one before, which goes on with the sum; the first of them hands it to
the maker. Sums, and so bits, are those of an uncut graph.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch._subclasses import FakeTensorMode

from .code import Compiled
from .facts import Facts, fake_tensor
from .order import Waits
from .pieces import BATCH, Cut
from .program import Program, Unservable


@dataclass(frozen=True)
class GradientPaths:
    """By value that crosses: the pieces whose backward gives it a gradient, rising."""

    givers: dict[int, tuple[int, ...]] = field(default_factory=dict)
    backwards: frozenset[int] = frozenset()  # pieces that have one

    def next_of(self, value: int, giver: int, maker: int) -> int:
        """To which piece the gradient goes from here."""
        place = self.givers[value].index(giver)
        return self.givers[value][place - 1] if place > 0 else maker


def gradient_paths(program: Program, cut: Cut, facts: Facts, trains: bool) -> GradientPaths:
    """Runs each piece backward without numbers. Unservable says which piece cannot."""
    if not trains or program.loss is None:
        return GradientPaths()
    givers: dict[int, list[int]] = {}
    backwards: set[int] = set()
    with torch.random.fork_rng(devices=[]), FakeTensorMode(), torch.enable_grad():
        for number in reversed(range(len(cut.pieces))):
            piece = cut.pieces[number]
            roots = [v for v in piece.outputs if givers.get(v) or v == program.loss]
            if not roots:
                continue
            backwards.add(number)
            for value in _answered(program, cut, facts, number, roots):
                if cut.maker[value] != BATCH:
                    givers.setdefault(value, []).insert(0, number)
    return GradientPaths({v: tuple(who) for v, who in givers.items()}, frozenset(backwards))


def _answered(program: Program, cut: Cut, facts: Facts, number: int, roots: list[int]) -> list[int]:
    """The inputs of a piece that get a gradient if `roots` have one."""
    piece = cut.pieces[number]
    sources = [fake_tensor(facts.forms[value]) for value in piece.sources]
    leaves = [fake_tensor(facts.forms[value]) for value in piece.inputs]
    try:
        outputs = Compiled(program, piece, number).call(sources, leaves)
        made = [one for value, one in zip(piece.outputs, outputs) if value in roots]
        made = [one for one in made if one.requires_grad]
        torch.autograd.backward(made, [torch.empty_like(one) for one in made])
    except Exception as error:
        raise Unservable(f"piece {number} has no backward without numbers: {error}") from error
    return [value for value, one in zip(piece.inputs, leaves) if one.grad is not None]


def waits_of(cut: Cut, paths: GradientPaths) -> Waits:
    """What each piece waits for, forward and backward."""
    backward: list[set[int]] = [set() for _ in cut.pieces]
    for value, givers in paths.givers.items():
        for giver in givers:
            backward[paths.next_of(value, giver, cut.maker[value])].add(giver)
    return Waits([cut.before(number) for number in range(len(cut.pieces))], backward, paths.backwards)
