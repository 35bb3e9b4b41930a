"""How long a test waits for what an input costs: long enough on a slow or a busy machine, and no longer.

Figures of speed are the benchmark's. These bounds are for what runs away: what takes twice as long, or the square of
the time, for twice the input.
"""

from __future__ import annotations

import gc
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from pytestqt.qtbot import QtBot
from pytestqt.wait_signal import SignalBlocker

# Seconds that a process, a thread or a file may take that is there in the end: at a load of 15 on two cores, what takes
# half a second takes 20. A wait ends as soon as what it waits for is there: this is for what never comes.
LONG_S: Final = 240.0


def wait_for(
    check: Callable[[], Any], what: object = "it never came", pause: Callable[[], object] = lambda: time.sleep(0.01)
) -> Any:
    """Ask until something is so, and hand back what it is; for threads and processes where no event loop runs.

    pause: what is done between two looks.
    """
    deadline = time.monotonic() + LONG_S
    while not (found := check()):
        assert time.monotonic() < deadline, what
        pause()
    return found


# Processor seconds of `_some_work` on the machine that the bounds were set on, at rest.
_AT_REST_S: Final = 0.012
# Seconds of `_a_process` there.
_PROCESS_AT_REST_S: Final = 0.015


@contextmanager
def processor_seconds(most: float, what: object = "") -> Iterator[None]:
    """What stands within takes no more of the processor than `most` seconds of a machine at rest.

    What other tests left behind is not looked through for garbage meanwhile: that is not the input's cost.
    """
    collecting = gc.isenabled()
    gc.disable()
    started = time.process_time()
    try:
        yield
        took = time.process_time() - started
    finally:
        if collecting:
            gc.enable()
    assert took < most or took < most * slowness(), (what, took, most)


def slowness() -> float:
    """How many times slower than at rest this machine works just now; at least 1."""
    return max(1.0, *(_some_work() / _AT_REST_S for _ in range(5)))


def process_slowness() -> float:
    """How many times longer than at rest a process takes to start and to end just now; at least 1."""
    return max(1.0, *(_a_process() / _PROCESS_AT_REST_S for _ in range(3)))


def _a_process() -> float:
    started = time.monotonic()
    subprocess.run([sys.executable, "-S", "-E", "-c", "pass"], check=True)
    return time.monotonic() - started


def _some_work() -> float:
    started, found = time.thread_time(), {}
    for i in range(100_000):
        found[i & 1023] = str(i)
        found.get(i ^ 7)
    return time.thread_time() - started


def wait_long() -> None:
    """Let every wait of pytest-qt take as long as a slow and busy machine needs, whatever its test says."""
    until, signal, most = QtBot.waitUntil, QtBot.waitSignal, round(LONG_S * 1000)

    def wait_until(self: QtBot, callback: Callable[[], bool | None], *, timeout: int = 0) -> None:
        until(self, callback, timeout=max(timeout, most))

    def wait_signal(self: QtBot, awaited: Any, *, timeout: int = 0, **more: Any) -> SignalBlocker:
        return signal(self, awaited, timeout=max(timeout, most), **more)

    QtBot.waitUntil = wait_until  # type: ignore[method-assign]  # each of its users
    QtBot.waitSignal = wait_signal  # type: ignore[method-assign, assignment]  # each of its users
