"""Cuts a program at its operations, by mp's planner of graphs: fewest bytes between ranks, under balance. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from ... import _native
from .facts import Facts
from .ownership import (
    ANYWHERE,
    Groups,
    Placement,
    constant_operations,
    kept_together,
    order_edges,
)
from .pieces import cut_in_order
from .program import BUFFER, PARAMETER, Program, Unservable

# What travels with the micro-batch where two operations in a row draw random numbers.
_GENERATOR_BYTES = 5056
# Data may go back to earlier ranks if the largest share of work is else larger by this factor: what lies
# between two uses of a shared parameter must be with them if data go one way.
_WORSE = 1.2


@dataclass(frozen=True)
class GraphCut:
    placement: Placement
    owners: dict[str, int]  # of parameters and lasting buffers that operations use


def graph_of(program: Program, facts: Facts, lasting: Callable[[str], bool],
             pairs: Iterable[tuple[int, int]] = ()) -> dict[str, Any]:
    """The program as docs/partition.md has graphs of operations, without what is of constants alone.

    pairs: operations that stay together.
    """
    groups, changed = kept_together(program, facts, pairs)
    anywhere = constant_operations(program, changed, lasting)
    names = [f"{number}:{one.name}" for number, one in enumerate(program.operations)]
    operations = []
    for number, name in enumerate(names):
        if not anywhere[number]:
            operations.append(_piece(program, facts, groups, lasting, number, name))
    edges, drew = [], None
    for number, operation in enumerate(program.operations):
        if anywhere[number]:
            continue
        for value in operation.uses():
            maker = program.operation_of(value)
            if maker is not None and not anywhere[maker]:
                form = facts.forms.get(value)
                edges.append(_edge(names[maker], names[number], form.bytes if form else 0))
        if operation.draws:
            if drew is not None:
                edges.append(_edge(names[drew], names[number], _GENERATOR_BYTES))
            drew = number
    return {"operations": operations, **({"edges": edges} if edges else {})}


def _piece(program: Program, facts: Facts, groups: Groups, lasting: Callable[[str], bool],
           number: int, name: str) -> dict[str, Any]:
    piece: dict[str, Any] = {"name": name, "time": facts.time[number],
                             "activation_bytes": facts.kept_bytes[number]}
    shared = {}
    for value in program.operations[number].uses():
        source = program.source_of(value)
        if source is not None and (
                source.kind == PARAMETER or (source.kind == BUFFER and lasting(source.name))):
            shared[source.name] = facts.forms[value].bytes
    if shared:
        piece["shared"] = shared
    if groups.find(number) != number or len(groups.members()[number]) > 1:
        piece["group"] = str(groups.find(number))
    return piece


def _edge(first: str, second: str, size: float) -> dict[str, Any]:
    return {"from": first, "to": second, "bytes": size}


def by_graph(program: Program, facts: Facts, partitions: int, goal: str,
             lasting: Callable[[str], bool]) -> GraphCut:
    """goal: SMP's optimize. ValueError if fewer operations than ranks can be apart; Unservable if
    no cut is found that adds gradients in the order of the program."""
    edges, pairs = order_edges(program, facts), set()
    while True:
        found = _cut_once(program, facts, partitions, goal, lasting, pairs)
        wrong = set(cut_in_order(program, facts, found.placement, edges).wrong)
        if not wrong:
            return found
        # Users of one value that the cut has parted so; the next one keeps them together.
        if wrong <= pairs:
            first, second = min(wrong)
            raise Unservable(f"{program.operations[first].name} and {program.operations[second].name} "
                             "use one value, and every cut adds their gradients in another order")
        pairs |= wrong


def _cut_once(program: Program, facts: Facts, partitions: int, goal: str,
              lasting: Callable[[str], bool], pairs: set[tuple[int, int]]) -> GraphCut:
    graph = graph_of(program, facts, lasting, sorted(pairs))
    text = json.dumps(graph)
    times = [one["time"] for one in graph["operations"]]
    free = _native.partition(text, "graph", partitions, goal, 0.8, True)["partition"]
    try:
        ordered = _native.partition(text, "graph", partitions, goal, 0.8, False)["partition"]
    except ValueError:  # what cannot be apart if data go one way
        ordered = None
    if ordered is None or _largest(ordered, times, partitions) > _WORSE * _largest(free, times, partitions):
        chosen = _by_first(free)
    else:
        chosen = ordered
    of_name = {one["name"]: rank for one, rank in zip(graph["operations"], chosen)}
    ranks = [of_name.get(f"{number}:{one.name}", ANYWHERE)
             for number, one in enumerate(program.operations)]
    _, changed = kept_together(program, facts)
    return GraphCut(Placement(ranks, changed), _owners(program, ranks, lasting))


def _largest(partition_of: list[int], times: list[float], partitions: int) -> float:
    sums = [0.0] * partitions
    for partition, time in zip(partition_of, times):
        sums[partition] += time
    return max(sums)


def _by_first(partition_of: list[int]) -> list[int]:
    """Partitions numbered in the order in which the program comes to them."""
    numbers = {old: new for new, old in enumerate(dict.fromkeys(partition_of))}
    return [numbers[one] for one in partition_of]


def _owners(program: Program, ranks: list[int], lasting: Callable[[str], bool]) -> dict[str, int]:
    owners: dict[str, int] = {}
    for number, operation in enumerate(program.operations):
        for value in operation.uses():
            source = program.source_of(value)
            if source is None or ranks[number] == ANYWHERE:
                continue
            if source.kind == PARAMETER or (source.kind == BUFFER and lasting(source.name)):
                owners[source.name] = ranks[number]
    return owners
