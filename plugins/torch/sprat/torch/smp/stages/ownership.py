"""On which rank each operation of a program runs. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from .facts import Facts
from .program import BUFFER, GETITEM, INPUT, PARAMETER, Program, Unservable

ANYWHERE = -1  # computed by every rank that needs it: of constants alone, and cheap


@dataclass(frozen=True)
class Placement:
    """`ranks`: by operation. `together`: sets of operations that one piece must have. `early`:
    operations that are in the first piece that they can be in."""

    ranks: list[int]
    together: list[list[int]]
    early: frozenset[int] = frozenset()


class Groups:
    """Operations that stay on one rank, joined two by two."""

    def __init__(self, count: int):
        self._leader = list(range(count))

    def find(self, one: int) -> int:
        while self._leader[one] != one:
            one = self._leader[one]
        return one

    def join(self, one: int, other: int) -> None:
        first, second = sorted((self.find(one), self.find(other)))
        self._leader[second] = first

    def members(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for one in range(len(self._leader)):
            found.setdefault(self.find(one), []).append(one)
        return found


def changed_in_place(program: Program, facts: Facts) -> list[list[int]]:
    """For each memory that operations change: those that make, see or change it up to the last change.

    Of a buffer, which lives on, all that see it.
    """
    lasts: dict[int, int] = {}
    for number, operation in enumerate(program.operations):
        for value in operation.writes:
            source = program.source_of(value)
            storage = facts.storages.get(value)
            if storage is None:
                raise Unservable(f"{operation.name} changes one of several values in place")
            if source is not None and source.kind != BUFFER:
                raise Unservable(f"{operation.name} changes {source.kind} {source.name!r} in place")
            lasts[storage] = number
    for value, source in enumerate(program.sources):
        if facts.storages[value] in lasts and source.kind != BUFFER:
            raise Unservable(f"{source.kind} {source.name!r} is changed in place, by a view")
        if facts.storages[value] in lasts:
            lasts[facts.storages[value]] = len(program.operations)
    found: dict[int, list[int]] = {storage: [] for storage in lasts}
    for number, operation in enumerate(program.operations):
        seen = {facts.storages.get(value) for value in
                (*operation.uses(), program.value_of(number))}
        for storage in seen & set(lasts):
            if number <= lasts[storage]:
                found[storage].append(number)
    return [one for one in found.values() if one]


def order_edges(program: Program, facts: Facts) -> list[tuple[int, int]]:
    """Which operation comes before which, beside those whose values it takes: random numbers are
    drawn in the program's order, and who sees changed memory comes after the change."""
    edges: list[tuple[int, int]] = []
    drew: int | None = None
    changed: dict[int | None, int] = {}
    for number, operation in enumerate(program.operations):
        if operation.draws:
            if drew is not None:
                edges.append((drew, number))
            drew = number
        for value in operation.uses():
            before = changed.get(facts.storages.get(value))
            if before is not None:
                edges.append((before, number))
        for value in operation.writes:
            changed[facts.storages[value]] = number
    return edges


def kept_together(program: Program, facts: Facts,
                  pairs: Iterable[tuple[int, int]] = ()) -> tuple[Groups, list[list[int]]]:
    """What no cut may part: members with their tuples, what is changed in place, and `pairs`."""
    groups = Groups(len(program.operations))
    for first, second in pairs:
        groups.join(first, second)
    for number, operation in enumerate(program.operations):
        if operation.target == GETITEM:
            made_by = program.operation_of(operation.uses()[0])
            groups.join(made_by, number)
    changed = changed_in_place(program, facts)
    for members in changed:
        for one in members[1:]:
            groups.join(members[0], one)
    return groups, changed


def by_owners(program: Program, facts: Facts, owner_of: Callable[[str], int],
              lasting: Callable[[str], bool]) -> Placement:
    """Operations run where their parameters are, and all others follow their values.

    owner_of: the rank of a parameter or a buffer. lasting(buffer): whether it belongs to one rank,
    as what a state_dict has does; other buffers are the same everywhere.
    """
    groups, changed = kept_together(program, facts)
    anywhere = constant_operations(program, changed, lasting)
    ranks = _fixed(program, groups, owner_of, lasting, anywhere)
    _follow_inputs(program, groups, ranks)
    _follow_users(program, groups, ranks, anywhere)
    return Placement([ANYWHERE if anywhere[number] else ranks.get(groups.find(number), 0)
                      for number in range(len(program.operations))], changed)


def constant_operations(program: Program, changed: list[list[int]],
                  lasting: Callable[[str], bool]) -> list[bool]:
    """Whether an operation depends on nothing but constants; it then needs no message."""
    stays = {one for members in changed for one in members}
    free = [source.kind not in (PARAMETER, INPUT) and
            not (source.kind == BUFFER and lasting(source.name)) for source in program.sources]
    returned = set(program.result_values())
    for number, operation in enumerate(program.operations):
        free.append(not operation.draws and number not in stays and
                    program.value_of(number) not in returned and
                    all(free[value] for value in operation.uses()))
    return free[len(program.sources):]


def _fixed(program: Program, groups: Groups, owner_of: Callable[[str], int],
           lasting: Callable[[str], bool], anywhere: list[bool]) -> dict[int, int]:
    """By group, the rank that its parameters say."""
    ranks: dict[int, int] = {}
    because: dict[int, str] = {}
    for number, operation in enumerate(program.operations):
        for value in operation.uses():
            source = program.source_of(value)
            if source is None or anywhere[number]:
                continue
            if source.kind == PARAMETER or (source.kind == BUFFER and lasting(source.name)):
                group, owner = groups.find(number), owner_of(source.name)
                if ranks.setdefault(group, owner) != owner:
                    raise Unservable(
                        f"{operation.name} works with {because[group]!r} of rank {ranks[group]} "
                        f"and {source.name!r} of rank {owner}"
                    )
                because.setdefault(group, source.name)
    return ranks


def _follow_inputs(program: Program, groups: Groups, ranks: dict[int, int]) -> None:
    """An operation runs where the value was made that it waits for last."""
    for number, operation in enumerate(program.operations):
        group = groups.find(number)
        if group in ranks:
            continue
        makers = [program.operation_of(value) for value in operation.uses()]
        placed = [one for one in makers if one is not None and groups.find(one) in ranks]
        if placed:
            ranks[group] = ranks[groups.find(max(placed))]


def _follow_users(program: Program, groups: Groups, ranks: dict[int, int],
                  anywhere: list[bool]) -> None:
    """What depends on the batch alone, such as a mask, is made where it is used first."""
    users = program.users()
    for number in reversed(range(len(program.operations))):
        group = groups.find(number)
        if group in ranks or anywhere[number]:
            continue
        for user in users.get(program.value_of(number), []):
            if groups.find(user) in ranks:
                ranks[group] = ranks[groups.find(user)]
                break
