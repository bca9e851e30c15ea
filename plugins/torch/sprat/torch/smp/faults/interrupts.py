"""Ctrl-C in a step: it ends the step where all ranks can end it, not in the midst of a message."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator

_noted = False


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """Inside, an interrupt waits for due(), or for the end; a second one does not.

    In the main thread, which alone gets them, and unless the program has a handler of its own.
    """
    global _noted
    plain = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not plain or threading.current_thread() is not threading.main_thread():
        yield
        return

    def note(*_: object) -> None:
        global _noted
        if _noted:
            raise KeyboardInterrupt
        _noted = True

    _noted = False
    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        due()


def due() -> None:
    """Raises what waits. Called where a step can end."""
    global _noted
    if _noted:
        _noted = False
        raise KeyboardInterrupt
