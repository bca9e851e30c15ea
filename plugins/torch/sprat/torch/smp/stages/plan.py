"""All that ranks must agree on to play a step: pieces, orders, messages. A value that pickles."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch

from .capture import Captured
from .facts import Facts, facts_of
from .gradient_paths import GradientPaths, gradient_paths, waits_of
from .order import Action, Pipeline, order_of, stands_still
from .ownership import Placement, order_edges
from .packing import sent_form
from .pieces import BATCH, Cut, cut_in_order
from .program import Form, Program, Unservable

VALUES, GRADIENTS, RESULTS = "values", "gradients", "results"


class Channel(NamedTuple):
    """Messages of one kind, one for each micro-batch; of RESULTS one for all of them."""

    kind: str
    source: int  # ranks
    destination: int
    maker: int  # the piece that sends; BATCH: before the first action of the micro-batch
    taker: int  # GRADIENTS: the piece that they are for; VALUES: the first piece that needs them
    values: tuple[int, ...]
    generator: bool = False  # the random state comes along


@dataclass(frozen=True)
class Plan:
    program: Program
    cut: Cut
    forms: dict[int, Form]  # of values that cross or are returned
    paths: GradientPaths
    orders: list[list[Action]]
    channels: list[Channel]
    microbatches: int
    trains: bool
    arguments: tuple  # forms that the step was called with, for errors

    def rank_of_value(self, value: int) -> int:
        """Where a value that is returned is made."""
        return 0 if self.cut.maker.get(value, BATCH) == BATCH else self.cut.pieces[
            self.cut.maker[value]].rank


Place = Callable[[Program, Facts], Placement]


def plan_of(captured: Captured, place: Place, pipeline: Pipeline, trains: bool,
            arguments: tuple) -> Plan:
    """Pure but for runs without numbers. Unservable if it cannot be cut so."""
    program = captured.program
    trains = trains and program.loss is not None
    facts = facts_of(program, captured.forms, torch.is_grad_enabled())
    if trains and not facts.forms[program.loss].requires_grad:
        raise Unservable("model.backward got a loss that needs no gradient: compute it from the model's output, with "
                         "gradients on")
    ordered = cut_in_order(program, facts, place(program, facts), order_edges(program, facts))
    cut = ordered.cut
    if ordered.wrong and trains:
        first, second = (program.operations[one].name for one in ordered.wrong[0])
        raise Unservable(f"{first} and {second} use one value, and the split adds their gradients in "
                         "another order than the program")
    paths = gradient_paths(program, cut, facts, trains)
    waits = waits_of(cut, paths)
    times = [sum(facts.time[one] for one in piece.operations) for piece in cut.pieces]
    ranks = [piece.rank for piece in cut.pieces]
    orders = order_of(ranks, waits, times, pipeline)
    stuck = stands_still(ranks, waits, orders)
    if stuck:
        raise AssertionError(f"the order of {pipeline} stands still: {stuck}")
    crossing = {*cut.takers, *program.result_values()}
    return Plan(program, cut, {value: facts.forms[value] for value in crossing}, paths, orders,
                channels_of(program, cut, paths, pipeline.ranks), pipeline.microbatches, trains,
                arguments)


def channels_of(program: Program, cut: Cut, paths: GradientPaths, ranks: int) -> list[Channel]:
    """In the same order on every rank, which numbers them."""
    return [*_of_values(program, cut, ranks), *_of_gradients(cut, paths),
            *_of_results(program, cut, ranks)]


def _of_values(program: Program, cut: Cut, ranks: int) -> list[Channel]:
    """One message from a piece to each rank that needs something of it."""
    makers = [BATCH, *range(len(cut.pieces))]
    drawn = {cut.drew_before(number): number for number, piece in enumerate(cut.pieces) if piece.draws}
    found = []
    for maker in makers:
        source = 0 if maker == BATCH else cut.pieces[maker].rank
        for rank in range(ranks):
            needed = {value: [one for one in who if cut.pieces[one].rank == rank]
                      for value, who in cut.takers.items() if cut.maker[value] == maker}
            needed = {value: who for value, who in needed.items() if who}
            after = drawn.get(maker)
            generator = after is not None and cut.pieces[after].rank == rank
            if rank == source or not (needed or generator):
                continue
            takers = [one for who in needed.values() for one in who] + ([after] if generator else [])
            found.append(Channel(VALUES, source, rank, maker, min(takers), tuple(sorted(needed)),
                                 generator))
    return found


def _of_gradients(cut: Cut, paths: GradientPaths) -> list[Channel]:
    values: dict[tuple[int, int], list[int]] = {}
    for value, givers in paths.givers.items():
        for giver in givers:
            to = paths.next_of(value, giver, cut.maker[value])
            if cut.pieces[to].rank != cut.pieces[giver].rank:
                values.setdefault((giver, to), []).append(value)
    return [Channel(GRADIENTS, cut.pieces[giver].rank, cut.pieces[to].rank, giver, to,
                    tuple(sorted(of_pair))) for (giver, to), of_pair in sorted(values.items())]


def _of_results(program: Program, cut: Cut, ranks: int) -> list[Channel]:
    values: dict[int, list[int]] = {}
    for value in returned_values(program):
        maker = cut.maker.get(value, BATCH)
        values.setdefault(0 if maker == BATCH else cut.pieces[maker].rank, []).append(value)
    return [Channel(RESULTS, source, rank, BATCH, BATCH, tuple(of_rank))
            for source, of_rank in sorted(values.items()) for rank in range(ranks) if rank != source]


def returned_values(program: Program) -> list[int]:
    """What comes to every rank; the loss only if it is returned."""
    return Program(program.sources, program.operations, None, program.results).result_values()


def message_forms(plan: Plan, channel: Channel, generator_bytes: int) -> list[Form]:
    forms = [sent_form(plan.forms[value]) for value in channel.values]
    if channel.kind == RESULTS:
        forms = forms * plan.microbatches
    if channel.generator:
        forms.append(Form((generator_bytes,), (1,), torch.uint8))
    return forms
