"""What a rank does next: SMP's schedules, and how tensor parallel ranks follow their first. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

FORWARD, BACKWARD = "forward", "backward"


@dataclass(frozen=True)
class Candidate:
    """A task that could run now."""

    direction: str  # FORWARD or BACKWARD
    microbatch: int
    number: int  # rising in the order tasks were made on this rank
    begins: bool = False  # a micro-batch that has not run yet
    answered: bool = False  # goes on with what another rank has sent


@dataclass(frozen=True)
class View:
    """What a rank knows of its step."""

    candidates: Sequence[Candidate]
    active: int  # micro-batches that have begun and not ended
    most_active: int
    forwards_left: int  # micro-batches whose forward has not ended


def next_task(schedule: str, view: View) -> Candidate | None:
    """The candidate to run, or None to wait for messages.

    interleaved: backwards first, the lowest micro-batch first, at most `most_active` begun. A backward
    that goes on with an answer comes last: it is often all that is left of one, which nobody waits
    for, while a forward is what the next rank computes with.
    simple: every forward of the step before the first backward; the number begun has no limit,
    since all are held then anyway. Backwards that other ranks ask for have passed that border.
    """
    simple = schedule == "simple"
    able = [
        one
        for one in view.candidates
        if simple or not one.begins or view.active < view.most_active
    ]
    if simple and view.forwards_left > 0:
        forwards = [one for one in able if one.direction == FORWARD]
        return min(forwards, key=_order, default=None)
    return min(able, key=_order, default=None)


RUN, WAIT, LEAVE = "run", "wait", "leave"


@dataclass(frozen=True)
class Following:
    """What a tensor parallel rank knows that runs what the first of its group has run."""

    told: bool  # the first has run a task that this rank has not
    ready: bool  # that task could run here now
    lost: bool  # what it waits for was to come from a rank that has ended the step
    failed: bool  # the step has, somewhere
    first_ended: bool  # the first says nothing more


def follow(view: Following) -> str:
    """RUN the task that is told, WAIT for messages, or LEAVE a step that has failed.

    A failure alone is no reason to leave: the first, which may not have heard of it, waits in the
    collectives of what it runs. So its own end comes first, then all that it has run; of that only
    what can still run, since a rank that ended for a reason of its own sends nothing more.
    """
    if view.told and view.ready:
        return RUN
    if not view.failed or not view.first_ended:
        return WAIT
    return LEAVE if not view.told or view.lost else WAIT


def _order(one: Candidate) -> tuple[int, int, int]:
    turns = ((BACKWARD, False), (FORWARD, True), (FORWARD, False), (BACKWARD, True))
    return (turns.index((one.direction, one.answered)), one.microbatch, one.number)
