"""Groups whose collectives lie in the midst of a step, and ranks that will not come to them any more.

A rank that fails leaves a step where it is, while its peers go on into the next collective of a group that they
share, which cannot end. So a rank's last word says how many operations of each group it has begun. Who has begun more
than a rank that has left aborts that group, which ends the call there and on all others. Ranks that fail at the same
place, or leave behind the same task, have begun as many: then nothing is aborted, and the group goes on.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from .messages import ENDINGS, Begun, GroupKey, LastWord, Message

# Between two looks at what this rank has begun; it looks only in a step that has failed somewhere.
LOOK_SECONDS = 0.02
# How long a rank whose call was aborted waits for the word of the rank that did it, which is on its way.
WORD_SECONDS = 20.0


class Group(Protocol):
    """What is asked of a backend of torch.distributed."""

    def _get_sequence_number_for_group(self) -> int: ...

    def abort(self) -> None: ...


def left_behind(mine: Begun, last_words: Iterable[Begun]) -> set[GroupKey]:
    """Groups in which this rank has begun an operation that a rank which has left does not join."""
    return {group for word in last_words for group, count in word.items() if mine.get(group, count) > count}


def uneven(mine: Begun, last_words: Iterable[Begun]) -> set[GroupKey]:
    """Groups whose ranks have left a step behind different operations: their next ones would not meet.

    The same on each rank of a group once it has the last words of all.
    """
    return {group for word in last_words for group, count in word.items() if mine.get(group, count) != count}


class Meetings:
    """One rank's groups. overhear() is for the thread that receives, all else for that of the step."""

    def __init__(self, groups: Mapping[GroupKey, Group]):
        self._groups = groups
        self._ended: dict[GroupKey, str] = {}  # and why
        self._lock = threading.Lock()  # guards what follows: of one step
        self.begin()

    def begin(self) -> None:
        self._text: str | None = None
        self._words: list[Begun] = []
        self._aborted: set[GroupKey] = set()
        self._over = threading.Event()
        self._heard = threading.Event()
        self._looker: threading.Thread | None = None

    def has_ended(self, ranks: Sequence[int]) -> bool:
        """Whether a step before has ended the group of these ranks; all of them know."""
        return tuple(ranks) in self._ended

    def require_whole(self) -> None:
        """ValueError if a step cannot be, since one before has ended a group."""
        for ranks, text in self._ended.items():
            raise ValueError(f"the group of ranks {list(ranks)} ended with an earlier step ({text}): start the job "
                             "anew, from its last checkpoint")

    def overhear(self, message: Message | BaseException) -> None:
        """What comes from the ranks of these groups, or ends all that does."""
        if isinstance(message, BaseException):
            self._heard.set()  # nobody says anything more: the wire is broken
        elif message.kind in ENDINGS:
            self.told(message.value)

    def told(self, word: LastWord) -> None:
        """A rank of these groups has left the step."""
        with self._lock:
            self._words.append(word.begun)
            if not word.text:
                return
            if self._text is None:
                self._text = word.text
            self._heard.set()
            # This rank may be in a call that cannot end, or come to it later: only another thread can see to that.
            if self._looker is None and not self._over.is_set():
                self._looker = threading.Thread(target=self._look, name="sprat-smp-meetings", daemon=True)
                self._looker.start()

    def reason(self, error: BaseException) -> str | None:
        """Why a rank of these groups has left, where one has; waits for its word if it has aborted the call."""
        if self._groups and _is_abort(error):
            self._heard.wait(WORD_SECONDS)
        with self._lock:
            return self._text

    def end(self) -> Begun:
        """This rank leaves, and calls nothing more: what it has begun."""
        with self._lock:
            self._over.set()
        if self._looker is not None:
            self._looker.join()
            self._abort_what_waits()  # what began after the last look
        return self.begun()

    def note_ended(self) -> None:
        """After all last words: groups whose ranks have left behind different operations have no next step.

        Another group in their place would need all ranks of the job, since PyTorch names a group by how many
        a rank has made; and who has kept the old one, as FSDP2 does, would go on with it.
        """
        begun = self.begun()
        with self._lock:
            self._ended |= {ranks: self._text or "a rank left it" for ranks in uneven(begun, self._words)}

    def begun(self) -> Begun:
        """Operations of each group so far."""
        return {ranks: group._get_sequence_number_for_group() for ranks, group in self._groups.items()
                if ranks not in self._ended}

    def used(self) -> list[Group]:
        """Those in which a rank has begun something, in the order of their names: the same on all who have left."""
        with self._lock:
            words = [self.begun(), *self._words]
        names = {name for word in words for name, count in word.items() if count > 0}
        return [self._groups[name] for name in sorted(names & set(self._groups))]

    def _look(self) -> None:
        while not self._over.wait(LOOK_SECONDS):
            self._abort_what_waits()

    def _abort_what_waits(self) -> None:
        begun = self.begun()
        with self._lock:
            waits = left_behind(begun, self._words)
        for ranks in waits:
            self._abort(ranks)

    def _abort(self, ranks: GroupKey) -> None:
        if ranks not in self._aborted:
            self._aborted.add(ranks)
            self._groups[ranks].abort()


def _is_abort(error: BaseException | None) -> bool:
    """Also where a future's callback has made it an error of its own, which says what it was."""
    while error is not None:
        text = f"{type(error).__name__}: {error}"
        if "DistBackendError" in text and "abort" in text:
            return True
        error = error.__cause__
    return False
