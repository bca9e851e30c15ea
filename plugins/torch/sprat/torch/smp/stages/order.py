"""In which order each rank computes its pieces of each micro-batch. Pure.

Pieces that lie on ranks 0, 1, ..., p - 1, and so on round, are stages: mp's schedules have their order. For
others it is played in virtual time, each rank taking what it can: a backward before a forward.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from ... import _native

FORWARD, BACKWARD = "F", "B"
_ACTION = re.compile(r"(\d+)([FB])(\d+)")


class Action(NamedTuple):
    kind: str  # FORWARD or BACKWARD
    piece: int
    microbatch: int


class Pipeline(NamedTuple):
    """What an order is made for."""

    ranks: int
    microbatches: int
    schedule: str  # SMP's word: interleaved, simple or _only_forward
    most_active: int  # micro-batches between their first forward and their last backward


class Waits(NamedTuple):
    """By piece, the pieces whose forward, or backward, must have ended before its own."""

    forward: list[set[int]]
    backward: list[set[int]]
    backwards: frozenset[int]  # pieces that have a backward


def order_of(ranks: Sequence[int], waits: Waits, times: Sequence[float],
             pipeline: Pipeline) -> list[list[Action]]:
    """By rank, for pieces on `ranks`; times: of one forward of each."""
    simple = pipeline.schedule == "simple"
    rounds, rest = divmod(len(ranks), pipeline.ranks)
    round_robin = rest == 0 and list(ranks) == [*range(pipeline.ranks)] * rounds
    if round_robin and not (simple and rounds > 1):
        return _stage_order("simple" if simple else "interleaved", rounds, pipeline,
                            waits.backwards)
    return list_order(ranks, waits, times, pipeline)


def _stage_order(kind: str, rounds: int, pipeline: Pipeline, backwards: frozenset[int]) -> list[list[Action]]:
    active = 0 if kind == "simple" else min(pipeline.most_active, pipeline.microbatches)
    made = _native.make_schedule(kind, pipeline.ranks, pipeline.microbatches, rounds, active)
    orders = []
    for texts in made["actions"]:
        found = [_ACTION.fullmatch(text).groups() for text in texts]
        orders.append([Action(op, int(piece), int(microbatch)) for piece, op, microbatch in found
                       if op == FORWARD or int(piece) in backwards])
    return orders


class _Play:
    """What has been done so far in virtual time, with the end of each action."""

    def __init__(self, ranks: Sequence[int], waits: Waits, pipeline: Pipeline):
        self.ranks, self.waits, self.pipeline = ranks, waits, pipeline
        self.ends: dict[Action, float] = {}
        self.left = {(kind, piece): list(range(pipeline.microbatches))
                     for kind in (FORWARD, BACKWARD)
                     for piece in range(len(ranks)) if kind == FORWARD or piece in waits.backwards}
        self.begun: set[int] = set()
        self.over: set[int] = set()

    def ended(self, kind: str, piece: int, microbatch: int, now: float) -> bool:
        return self.ends.get(Action(kind, piece, microbatch), now + 1) <= now

    def can(self, action: Action, now: float) -> bool:
        kind, piece, j = action
        if kind == FORWARD:
            return all(self.ended(FORWARD, one, j, now) for one in self.waits.forward[piece])
        return self.ended(FORWARD, piece, j, now) and all(
            self.ended(BACKWARD, one, j, now) for one in self.waits.backward[piece])

    def next(self, rank: int, now: float) -> Action | None:
        """The lowest micro-batch whose turn has come, a backward first."""
        able = []
        for (kind, piece), left in self.left.items():
            if left and self.ranks[piece] == rank:
                action = Action(kind, piece, left[0])
                if self.can(action, now) and self._may_begin(action):
                    able.append(action)
        if self.pipeline.schedule == "simple" and any(
                left for (kind, piece), left in self.left.items() if kind == FORWARD):
            able = [one for one in able if one.kind == FORWARD]
        return min(able, default=None, key=lambda one: (
            one.kind == FORWARD, one.microbatch, one.piece if one.kind == FORWARD else -one.piece))

    def _may_begin(self, action: Action) -> bool:
        if self.pipeline.schedule == "simple" or action.microbatch in self.begun:
            return True
        return len(self.begun) - len(self.over) < self.pipeline.most_active

    def start(self, action: Action, end: float) -> None:
        self.ends[action] = end
        self.left[action.kind, action.piece].pop(0)
        self.begun.add(action.microbatch)

    def close(self, now: float) -> None:
        """Notes micro-batches of which nothing is left."""
        for j in self.begun - self.over:
            if all(self.ended(kind, piece, j, now) for kind, piece in self.left):
                self.over.add(j)

    def done(self) -> bool:
        return not any(self.left.values())


def list_order(ranks: Sequence[int], waits: Waits, times: Sequence[float],
               pipeline: Pipeline) -> list[list[Action]]:
    """Each rank that is free takes what it can; a backward takes twice its forward."""
    play = _Play(ranks, waits, pipeline)
    orders: list[list[Action]] = [[] for _ in range(pipeline.ranks)]
    free_at = [0.0] * pipeline.ranks
    now = 0.0
    while not play.done():
        play.close(now)
        for rank, order in enumerate(orders):
            action = play.next(rank, now) if free_at[rank] <= now else None
            if action is not None:
                time = max(times[action.piece], 1.0) * (1 if action.kind == FORWARD else 2)
                free_at[rank] = now + time
                play.start(action, free_at[rank])
                order.append(action)
        later = [end for end in free_at if end > now]
        if not later:
            raise AssertionError(f"no rank of {pipeline.ranks} can go on: pieces on {list(ranks)}")
        now = min(later)
    return orders


def stands_still(ranks: Sequence[int], waits: Waits, orders: list[list[Action]]) -> str:
    """Which actions wait for each other for ever if ranks play these orders; empty if none do.

    Sends wait for nobody, so an action may start once what it waits for has ended.
    """
    done: set[Action] = set()
    places = [0] * len(orders)
    moved = True
    while moved:
        moved = False
        for rank, order in enumerate(orders):
            while places[rank] < len(order) and _ready(order[places[rank]], waits, done):
                done.add(order[places[rank]])
                places[rank] += 1
                moved = True
    stuck = [f"rank {rank}: {order[place]}" for rank, (order, place) in enumerate(zip(orders, places))
             if place < len(order)]
    return "; ".join(stuck)


def _ready(action: Action, waits: Waits, done: set[Action]) -> bool:
    kind, piece, j = action
    if kind == FORWARD:
        return all(Action(FORWARD, one, j) in done for one in waits.forward[piece])
    return Action(FORWARD, piece, j) in done and all(
        Action(BACKWARD, one, j) in done for one in waits.backward[piece])


def most_held(order: list[Action]) -> int:
    """Micro-batches between their first forward and their last backward on one rank, at most."""
    held: set[int] = set()
    most = 0
    last = {action.microbatch: place for place, action in enumerate(order)}
    for place, action in enumerate(order):
        held.add(action.microbatch)
        most = max(most, len(held))
        if last[action.microbatch] == place:
            held.discard(action.microbatch)
    return most
