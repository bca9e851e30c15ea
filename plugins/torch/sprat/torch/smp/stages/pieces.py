"""From the rank of each operation to pieces: what a rank computes between two messages. Pure.

A rank has several pieces where the ranks' graph has a cycle. Pieces stand in topological order, and what
is in one keeps the program's order, so autograd adds gradients as it does without a cut.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from .facts import Facts
from .ownership import ANYWHERE, Placement
from .program import INPUT, Program, Unservable

BATCH = -1  # the piece that inputs of the batch come from


@dataclass(frozen=True)
class Piece:
    rank: int
    operations: tuple[int, ...]  # rising
    sources: tuple[int, ...]  # values: parameters, buffers, constants that it uses
    inputs: tuple[int, ...]  # values that other pieces or the batch give it
    outputs: tuple[int, ...]  # values that others take, or that the step returns
    draws: bool  # takes random numbers


@dataclass(frozen=True)
class Cut:
    """Pieces, and who has made which value and who needs it."""

    pieces: tuple[Piece, ...]
    maker: dict[int, int]  # by value that crosses: a piece, or BATCH
    takers: dict[int, tuple[int, ...]] = field(default_factory=dict)  # pieces, rising

    def before(self, piece: int) -> set[int]:
        """The pieces whose forward must have ended before this one's."""
        found = {self.maker[value] for value in self.pieces[piece].inputs} - {BATCH}
        if self.pieces[piece].draws:
            found |= {one for one in range(piece) if self.pieces[one].draws}
        return found

    def drew_before(self, piece: int) -> int | None:
        """The piece whose random state this one goes on with."""
        earlier = [one for one in range(piece) if self.pieces[one].draws]
        return max(earlier, default=None)


def cut_into_pieces(program: Program, placement: Placement,
                    edges: Iterable[tuple[int, int]]) -> Cut:
    """edges: operations that come one after the other though no value goes between them."""
    before = _dependencies(program, edges)
    levels = _levels(program, placement, before)
    _sink(program, placement, before, levels)
    members: dict[tuple[int, int], list[int]] = {}
    for number, rank in enumerate(placement.ranks):
        if rank != ANYWHERE:
            members.setdefault((levels[number], rank), []).append(number)
    # Of two pieces of one level the one that begins first in the program is the first.
    order = sorted(members, key=lambda key: (key[0], members[key][0]))
    groups = [_with_constants(program, placement, members[key]) for key in order]
    return _connected(program, [key[1] for key in order], groups)


@dataclass(frozen=True)
class OrderedCut:
    """`wrong`: what out_of_order() finds; empty if gradients are added as without a cut."""

    cut: Cut
    wrong: list[tuple[int, int]]


def cut_in_order(program: Program, facts: Facts, placement: Placement,
                 edges: Iterable[tuple[int, int]]) -> OrderedCut:
    """As cut_into_pieces(), with the uses of a value in the order of the program if that can be."""
    edges = list(edges)
    cut = cut_into_pieces(program, placement, edges)
    wrong = out_of_order(program, facts, cut)
    if not wrong:
        return OrderedCut(cut, wrong)
    early = frozenset(one for pair in wrong for one in pair)
    cut = cut_into_pieces(program, replace(placement, early=early), edges)
    return OrderedCut(cut, out_of_order(program, facts, cut))


def out_of_order(program: Program, facts: Facts, cut: Cut) -> list[tuple[int, int]]:
    """Pairs of operations that use one value, the first of them in a later piece.

    Of values with three uses or more, whose gradients would be added in another order than without
    a cut, and so have other bits. Of two the order does not matter.
    """
    where = {one: number for number, piece in enumerate(cut.pieces) for one in piece.operations}
    found = []
    for value, users in program.users().items():
        form = facts.forms.get(value)
        giving = [one for one in users if one in where and _gives_gradient(program, facts, one)]
        if form is None or not form.requires_grad or len(giving) < 3:
            continue
        found += [(first, second) for first, second in itertools.combinations(giving, 2)
                  if where[first] > where[second]]
    return found


def _gives_gradient(program: Program, facts: Facts, operation: int) -> bool:
    form = facts.forms.get(program.value_of(operation))
    return form is None or form.requires_grad


def _dependencies(program: Program, edges: Iterable[tuple[int, int]]) -> list[set[int]]:
    before: list[set[int]] = []
    for operation in program.operations:
        makers = (program.operation_of(value) for value in operation.uses())
        before.append({one for one in makers if one is not None})
    for first, second in edges:
        before[second].add(first)
    return before


def _levels(program: Program, placement: Placement, before: list[set[int]]) -> list[int]:
    """How many changes of rank lie before an operation at most."""
    ranks, levels = placement.ranks, [0] * len(before)
    most = len(before) + 1
    changed = True
    while changed:
        changed = False
        for number, rank in enumerate(ranks):
            least = max((levels[one] + (rank not in (ANYWHERE, ranks[one]) and ranks[one] != ANYWHERE)
                         for one in before[number]), default=0)
            if least > levels[number]:
                levels[number], changed = least, True
        for members in placement.together:
            highest = max(levels[one] for one in members)
            for one in members:
                changed = changed or levels[one] < highest
                levels[one] = highest
        if max(levels, default=0) > most:
            raise Unservable("a value is changed in place by one rank while another works on it")
    return levels


def _sink(program: Program, placement: Placement, before: list[set[int]],
          levels: list[int]) -> None:
    """Operations whose only users are in a later piece of their rank go there: fewer pieces."""
    ranks = placement.ranks
    fixed = {one for members in placement.together for one in members} | placement.early
    after: list[list[int]] = [[] for _ in before]
    for number, earlier in enumerate(before):
        for one in earlier:
            after[one].append(number)
    for number in reversed(range(len(before))):
        users = [one for one in after[number] if ranks[one] != ANYWHERE]
        if ranks[number] == ANYWHERE or number in fixed or not users:
            continue
        if all(ranks[one] == ranks[number] for one in users):
            levels[number] = min(levels[one] for one in users)


def _with_constants(program: Program, placement: Placement, members: list[int]) -> list[int]:
    """With what can be computed anywhere and is needed here."""
    wanted, found = list(members), set(members)
    while wanted:
        for value in program.operations[wanted.pop()].uses():
            maker = program.operation_of(value)
            if maker is not None and placement.ranks[maker] == ANYWHERE and maker not in found:
                found.add(maker)
                wanted.append(maker)
    return sorted(found)


def _connected(program: Program, ranks: list[int], groups: list[list[int]]) -> Cut:
    results = program.result_values()
    maker: dict[int, int] = {}
    for number in reversed(range(len(groups))):
        for one in groups[number]:  # what is computed anywhere has its first piece
            maker[program.value_of(one)] = number
    takers: dict[int, list[int]] = {}
    inputs: list[list[int]] = []
    sources: list[list[int]] = []
    for number, group in enumerate(groups):
        used = list(dict.fromkeys(v for one in group for v in program.operations[one].uses()))
        inside = {program.value_of(one) for one in group}
        outside = [value for value in used if value not in inside]
        own = [v for v in outside if program.source_of(v) is not None]
        sources.append([v for v in own if program.source_of(v).kind != INPUT])
        given = [v for v in outside if v not in sources[-1]]
        inputs.append(given)
        for value in given:
            takers.setdefault(value, []).append(number)
            if program.source_of(value) is not None:
                maker[value] = BATCH
    pieces = []
    for number, group in enumerate(groups):
        made = [program.value_of(one) for one in group]
        outputs = [v for v in made if maker[v] == number and (v in takers or v in results)]
        draws = any(program.operations[one].draws for one in group)
        pieces.append(Piece(ranks[number], tuple(group), tuple(sources[number]),
                            tuple(inputs[number]), tuple(outputs), draws))
    crossing = {value: maker[value] for value in (*takers, *results) if value in maker}
    return Cut(tuple(pieces), crossing, {value: tuple(who) for value, who in takers.items()})
