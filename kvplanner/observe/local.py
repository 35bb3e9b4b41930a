"""One look at this machine's GPUs, and watching them, for the terminal: safe against a driver that hangs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

from kvplanner.observe.helper import HelperSettings
from kvplanner.observe.sampler import Sampler
from kvplanner.observe.snapshot import Snapshot

PROBE_LIMIT_S: Final = 10.0
_POLL_S: Final = 0.01
_NO_ANSWER: Final = (
    "The NVIDIA driver did not answer in time.",
    "Wait for it or restart the computer; planning for a GPU by name works without it.",
)


def probe(limit_s: float = PROBE_LIMIT_S) -> Snapshot:
    """What is there now, with processes. Takes at most about `limit_s` seconds; never raises for a bad driver."""
    missing = _no_library()
    if missing is not None:
        return missing
    sampler = Sampler(HelperSettings(interval=60.0), call_limit=limit_s)
    deadline = time.monotonic() + limit_s
    sampler.start()
    try:
        while time.monotonic() < deadline:
            found = sampler.poll()
            if found:
                return found[0]
            if sampler.status.state == "waiting":
                return _failed(sampler.status.message)
            time.sleep(_POLL_S)
    finally:
        sampler.stop()
    return _failed("")


def watch(interval: float = 1.0) -> Iterator[Snapshot]:
    """Snapshots as they come, until the caller stops; trouble comes as a snapshot that is not "ok"."""
    sampler = Sampler(HelperSettings(interval=interval))
    sampler.start()
    said = ""
    try:
        while True:
            yield from sampler.poll()
            status = sampler.status
            if status.message and status.message != said:
                yield _failed(status.message)
            said = status.message
            time.sleep(min(0.1, interval / 4))
    finally:
        sampler.stop()


def _failed(why: str) -> Snapshot:
    return Snapshot(
        0, time.monotonic(), time.time(), state="failed", message=why or _NO_ANSWER[0], remedy=_NO_ANSWER[1]
    )


def _no_library() -> Snapshot | None:
    """The answer of a machine without the driver's library, without starting anything."""
    from kvplanner.observe.nvml import NO_LIBRARY, library_missing

    if not library_missing():
        return None
    state, message, remedy = NO_LIBRARY
    return Snapshot(0, time.monotonic(), time.time(), state=state, message=message, remedy=remedy)
