"""Work that may hang (a name that is looked up, a server that drips) is given up after a while, or when asked to."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread
from typing import TypeVar

Result = TypeVar("Result")

_LOOK_S = 0.1


class OutOfTime(Exception):
    """The work did not end within its time."""


def in_time(work: Callable[[], Result], seconds: float, check: Callable[[], None]) -> Result:
    """What `work` returns or raises; OutOfTime when that takes longer than `seconds`.

    check: called while waiting, and may raise to give up. Work that was given up goes on in a daemon thread, which
    keeps no process from ending, until it sees for itself that nobody waits.
    """
    outcome: Future[Result] = Future()
    Thread(target=_run, args=(work, outcome), name="in time", daemon=True).start()
    end = time.monotonic() + seconds
    while True:
        left = end - time.monotonic()
        try:
            return outcome.result(max(0.0, min(left, _LOOK_S)))
        except TimeoutError:
            if outcome.done():
                raise
        check()
        if left <= 0:
            raise OutOfTime


def _run(work: Callable[[], Result], outcome: Future[Result]) -> None:
    try:
        outcome.set_result(work())
    except BaseException as error:  # noqa: BLE001  # whoever waits raises it
        outcome.set_exception(error)
