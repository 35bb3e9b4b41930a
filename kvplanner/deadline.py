"""Work that may hang (a name that is looked up, a server that drips) is given up after a while, or when asked to."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Event, Thread
from typing import Generic, TypeVar

Result = TypeVar("Result")

_LOOK_S = 0.1


class OutOfTime(Exception):
    """The work did not end within its time."""


def in_time(work: Callable[[], Result], seconds: float, check: Callable[[], None]) -> Result:
    """What `work` returns or raises; OutOfTime when that takes longer than `seconds`.

    check: called while waiting, and may raise to give up. Work that was given up goes on in a daemon thread, which
    keeps no process from ending, until it sees for itself that nobody waits.
    """
    outcome = _Outcome(work)
    Thread(target=outcome.find, name="in time", daemon=True).start()
    end = time.monotonic() + seconds
    while True:
        left = end - time.monotonic()
        if outcome.known.wait(max(0.0, min(left, _LOOK_S))):
            return outcome.result()
        check()
        if left <= 0:
            raise OutOfTime


class _Outcome(Generic[Result]):
    """What work came to. As concurrent.futures' Future, whose import takes 2 ms."""

    def __init__(self, work: Callable[[], Result]) -> None:
        self.known = Event()
        self._work = work
        self._results: list[Result] = []
        self._error: BaseException | None = None

    def find(self) -> None:
        """Do the work."""
        try:
            self._results.append(self._work())
        except BaseException as error:  # noqa: BLE001  # whoever waits raises it
            self._error = error
        self.known.set()

    def result(self) -> Result:
        """What it returned, or raises what it raised."""
        if self._error is not None:
            try:
                raise self._error
            finally:
                self._error = None  # which knows this frame, and so itself
        return self._results[0]
