"""Jobs: work off the main thread, with progress, cancel, and results on the main thread.

A job's function is plain Python: it gets a JobControl, returns a value or raises, and touches no widget.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property
from threading import Event
from typing import TYPE_CHECKING, Any, Final

from PySide6 import QtCore
from PySide6.QtCore import QObject, QRunnable, QThreadPool, Signal

from kvplanner.errors import PlannerError

if TYPE_CHECKING:
    from kvplanner.app.garbage import Garbage

STOP_TIMEOUT_MS: Final = 3000
WRITE_TIMEOUT_MS: Final = 10_000  # for files that are being written


class Cancelled(Exception):
    """Raised inside a job by `JobControl.check` once nobody wants its result."""


class JobControl:
    """What a job's function may use: `check`, `cancelled` and `progress`."""

    def __init__(self, report: Callable[[float | None, str], None]) -> None:
        self._cancel = Event()
        self._report = report

    @property
    def cancelled(self) -> bool:
        """Whether the job should end."""
        return self._cancel.is_set()

    def check(self) -> None:
        """Raise Cancelled when the job should end."""
        if self._cancel.is_set():
            raise Cancelled

    def progress(self, share: float | None, text: str = "") -> None:
        """Say how far the job is (0 to 1, None when unknown)."""
        self.check()
        self._report(share, text)

    def cancel(self) -> None:
        """Ask the job to end."""
        self._cancel.set()


def _nothing(_: Any) -> None:
    """What an ended job has left to do."""


def _tell(callback: Callable[[Any], None], value: object) -> None:
    """Call it, unless the dialog or the window that it would show the value in was closed meanwhile."""
    try:
        callback(value)
    except RuntimeError as error:
        if "already deleted" not in str(error) or not _rests_on_gone(callback):
            raise


def _rests_on_gone(thing: object, deep: int = 3) -> bool:
    """Whether a part of Qt's that is deleted is what a function was made with, or is in a field of an object."""
    from shiboken6 import isValid

    if isinstance(thing, QObject):
        return not isValid(thing)
    rests = [getattr(thing, "__self__", None), getattr(thing, "func", None), *getattr(thing, "__dict__", {}).values()]
    for cell in getattr(thing, "__closure__", None) or ():
        with suppress(ValueError):  # nothing is in it yet
            rests.append(cell.cell_contents)
    return deep > 0 and any(_rests_on_gone(one, deep - 1) for one in rests if one is not None)


class Job(QObject):
    """A running piece of work; lives on the main thread. writes: a file that was asked for, which no end cuts short.

    progressed(share or None, text), finished(): after done or failed was called, or the job was cancelled.
    """

    progressed = Signal(object, str)
    finished = Signal()
    _ended = Signal(object, object)

    def __init__(
        self,
        title: str,
        work: Callable[[JobControl], Any],
        done: Callable[[Any], None],
        failed: Callable[[Exception], None],
        parent: QObject,
        *,
        writes: bool = False,
    ) -> None:
        super().__init__(parent)
        self.title = title
        self.writes, self.went_wrong = writes, False
        self.control = JobControl(self._report)
        self._work = work
        self._done = done
        self._failed = failed
        self._ended.connect(self._deliver, QtCore.Qt.ConnectionType.QueuedConnection)

    def _report(self, share: float | None, text: str) -> None:
        self._emit(lambda: self.progressed.emit(share, text))

    def _emit(self, emit: Callable[[], None]) -> None:
        try:
            emit()
        except RuntimeError:
            # The window went away while the job ran; nobody is left to tell.
            self.control.cancel()

    def execute(self) -> None:
        """Run the work; called on a pool thread."""
        result: Any = None
        error: Exception | None = None
        try:
            self.control.check()
            result = self._work(self.control)
        except Cancelled:
            self.control.cancel()
        except Exception as caught:  # noqa: BLE001 - whatever it is, it is delivered to the main thread
            error = caught
        self._emit(lambda: self._ended.emit(result, error))

    def _deliver(self, result: object, error: Exception | None) -> None:
        try:
            if not self.control.cancelled:
                self.went_wrong = error is not None
                if error is not None:
                    _tell(self._failed, error)
                else:
                    _tell(self._done, result)
        finally:
            self.finished.emit()
            # Whoever still knows the job is not to keep alive what it was for: windows, models, plans.
            self._work = self._done = self._failed = _nothing
            self.deleteLater()

    def cancel(self) -> None:
        """Drop the job: its result will not be delivered."""
        self.control.cancel()


class Batches(QObject):
    """What a job hands over while it runs. found(token, batch): in its thread; connect it queued.

    It has no parent and the job's work keeps it: a page that is closed meanwhile takes no signal away from under the
    thread that emits it.
    """

    found = Signal(object, object)

    def __init__(self, take: Callable[[object, Any], None]) -> None:
        super().__init__()
        self.found.connect(take, QtCore.Qt.ConnectionType.QueuedConnection)


class _Run(QRunnable):
    """job: None while it rests. PySide never lets go of what a pool has started: it is started again for other jobs."""

    def __init__(self) -> None:
        super().__init__()
        self.job: Job | None = None
        self.setAutoDelete(False)

    def run(self) -> None:
        """Called by the pool."""
        if self.job is not None:
            self.job.execute()


class Jobs(QObject):
    """Starts jobs on a small pool and knows those that run. active_changed(): one started or ended.

    written(well): no file is being written any more, and whether none of them failed.

    While it does, garbage is looked for on this thread; a caller that has put that off begins it (`garbage`) later.
    """

    active_changed = Signal()
    written = Signal(bool)

    def __init__(self, parent: QObject | None = None, threads: int = 3) -> None:
        super().__init__(parent)
        self._pool = QThreadPool(self)
        self._pool.setMaxThreadCount(threads)
        self._active: dict[Job, str] = {}
        self._runs: dict[Job, _Run] = {}
        self._resting: list[_Run] = []
        self._stopped = self._badly = False

    @cached_property
    def garbage(self) -> Garbage:
        """Whoever looks for it; no start needs that."""
        from kvplanner.app.garbage import Garbage

        return Garbage(self)

    @property
    def active(self) -> tuple[Job, ...]:
        """The jobs whose result is still wanted, oldest first."""
        return tuple(job for job in self._active if not job.control.cancelled)

    @property
    def writing(self) -> tuple[Job, ...]:
        """Those that write a file."""
        return tuple(job for job in self.active if job.writes)

    def submit(
        self,
        title: str,
        work: Callable[[JobControl], Any],
        done: Callable[[Any], None],
        failed: Callable[[Exception], None],
        *,
        key: str = "",
        writes: bool = False,
    ) -> Job | None:
        """Run work on a thread, then done(result) or failed(error) here; a newer job of the same key replaces it.

        writes: a file, which `stop` waits for. None after `stop`: nothing starts while the app shuts down.
        """
        if self._stopped:
            return None
        if gc.isenabled():
            self.garbage.begin()
        if key:
            for job, other in self._active.items():
                if other == key:
                    job.cancel()
        job = Job(title, work, done, failed, self, writes=writes)
        self._active[job] = key
        job.finished.connect(self._forget)
        run = self._runs[job] = self._resting.pop() if self._resting else _Run()
        run.job = job
        self._pool.start(run)
        self._tell_garbage()
        self.active_changed.emit()
        return job

    def _forget(self) -> None:
        job = self.sender()
        if isinstance(job, Job):
            self._active.pop(job, None)
            run = self._runs.pop(job, None)
            if run is not None:
                run.job = None
                self._resting.append(run)
            self._tell_garbage()
            self.active_changed.emit()
            self._badly |= job.writes and job.went_wrong
            if job.writes and not self.writing:
                well, self._badly = not self._badly, False
                self.written.emit(well)

    def _tell_garbage(self) -> None:
        if "garbage" in self.__dict__:
            self.garbage.jobs_run(bool(self._active))

    def stop(self, timeout_ms: int = STOP_TIMEOUT_MS) -> bool:
        """Cancel all but what writes a file and wait for the threads; False when one did not end in time."""
        self._stopped = True
        writing = self.writing
        for job, run in self._runs.items():
            if job not in writing:
                job.cancel()
                self._pool.tryTake(run)
        ended = self._pool.waitForDone(max(timeout_ms, WRITE_TIMEOUT_MS) if writing else timeout_ms)
        self._active.clear()
        if "garbage" in self.__dict__:
            self.garbage.end()
        return ended


def error_text(error: Exception) -> str:
    """One sentence for a job's error."""
    from kvplanner.printable import LONGEST_LINE, in_sight

    text = str(error) if isinstance(error, PlannerError) else f"{type(error).__name__}: {error}"
    return in_sight(text, LONGEST_LINE)
