"""A recording that is played again: a thread reads ahead, so that whoever shows it never waits for the file."""

from __future__ import annotations

from pathlib import Path
from queue import Empty, Full, Queue
from threading import Event, Thread
from typing import Final

from kvplanner.errors import PlannerError
from kvplanner.observe.recording import replay
from kvplanner.observe.snapshot import Snapshot
from kvplanner.record import NamedTuple

# Snapshots read ahead, and shown in one step: a second of the quickest sampling, and some.
AHEAD: Final = 32
# A gap in a recording is not waited out.
SLOWEST_S: Final = 2.0


class Step(NamedTuple):
    """What to show next. wait_s: the recorded time of it; ended: nothing follows; share: of the file so far."""

    snapshots: tuple[Snapshot, ...]
    wait_s: float
    ended: bool
    share: float


class Player:
    """Plays one recording. close() it; nothing of it is left then. begin: the share of the file to pass over."""

    def __init__(self, path: Path, begin: float = 0.0) -> None:
        self._path = path
        self._begin = begin
        self._queue: Queue[tuple[Snapshot | PlannerError | None, float]] = Queue(AHEAD)
        self._closed = Event()
        self._read_share = self._shown_share = 0.0
        self._last: Snapshot | None = None
        self._thread = Thread(target=self._read, name="recording", daemon=True)
        self._thread.start()

    def take(self, seconds: float) -> Step:
        """What the recording shows within the next `seconds`, as far as it has been read; never waits.

        Raises PlannerError, once, where the file cannot be read any further.
        """
        batch: list[Snapshot] = []
        wait = 0.0
        while wait < seconds and len(batch) < AHEAD:
            try:
                item, share = self._queue.get_nowait()
            except Empty:
                break
            if item is None:
                return Step(tuple(batch), wait, True, 1.0)
            if isinstance(item, PlannerError):
                raise item
            if self._last is not None:
                wait += min(max(item.monotonic - self._last.monotonic, 0.0), SLOWEST_S)
            self._last, self._shown_share = item, share
            batch.append(item)
        return Step(tuple(batch), wait, False, self._shown_share)

    def close(self) -> None:
        """Ends the reading."""
        self._closed.set()
        self._thread.join(1.0)

    def _read(self) -> None:
        try:
            for snapshot in replay(self._path, self._progress):
                if self._closed.is_set() or (self._read_share >= self._begin and not self._put(snapshot)):
                    return
        except PlannerError as error:
            self._put(error)
            return
        self._put(None)

    def _put(self, item: Snapshot | PlannerError | None) -> bool:
        """Waits for room; False once nobody wants it any more."""
        while not self._closed.is_set():
            try:
                self._queue.put((item, self._read_share), timeout=0.1)
            except Full:
                continue
            return True
        return False

    def _progress(self, share: float) -> None:
        self._read_share = share
