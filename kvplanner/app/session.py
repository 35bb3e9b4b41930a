"""Session: what lies open is written down within half a second of an edit, and found again after a crash.

Each process has a file of its own named by its process id. A file whose process is gone without having closed it is
a crash; a closed session is kept as the last one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from PySide6.QtCore import QObject, QTimer

from kvplanner.app import storage
from kvplanner.app.jobs import Jobs
from kvplanner.app.storage import data_folder, read_object

SCHEMA: Final = "kvplanner.session/1"
DELAY_MS: Final = 400
MOST_WINDOWS: Final = 20


class OpenPlan(NamedTuple):
    """One window: the plan file's document, the file it belongs to, and whether it has unsaved edits."""

    plan: Mapping[str, Any]
    path: str
    modified: bool


class Restored(NamedTuple):
    """plans: what was open; crashed: the process ended without closing."""

    plans: tuple[OpenPlan, ...]
    crashed: bool


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OSError):
        return True
    return True


def _plans(document: Mapping[str, Any] | None) -> tuple[OpenPlan, ...]:
    """The windows of a session file; what makes no sense is passed over."""
    if document is None or document.get("schema") != SCHEMA:
        return ()
    windows = document.get("windows")
    if not isinstance(windows, list):
        return ()
    return tuple(
        OpenPlan(w["plan"], w["path"] if isinstance(w.get("path"), str) else "", w.get("modified") is True)
        for w in windows[:MOST_WINDOWS]
        if isinstance(w, dict) and isinstance(w.get("plan"), dict)
    )


class Session(QObject):
    """Writes the session. collect: gives the open windows' plans when asked."""

    def __init__(
        self,
        collect: Callable[[], tuple[OpenPlan, ...]],
        jobs: Jobs,
        folder: Path | None = None,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._collect = collect
        self._jobs = jobs
        self.folder = folder or data_folder() / "sessions"
        self.own = self.folder / f"{os.getpid()}.json"
        self.last = self.folder / "last.json"
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.setInterval(DELAY_MS)
        self._timer.timeout.connect(self._write_soon)
        self.enabled = True
        self._found: tuple[OpenPlan, ...] = ()

    def restore(self) -> Restored:
        """What to open: the plans of crashed processes, else those of the last closed session."""
        crashed: list[OpenPlan] = []
        gone: list[Path] = []
        try:
            files = sorted(self.folder.glob("*.json"))
        except OSError:
            files = []
        for path in files:
            if not path.stem.isdigit() or path == self.own or _alive(int(path.stem)):
                continue
            crashed += _plans(read_object(path))
            gone.append(path)
        if self.own.exists() and not self._found:
            # Another process had this id before and crashed.
            crashed += _plans(read_object(self.own))
            gone.append(self.own)
        if crashed:
            self._found = tuple(crashed)
            self.write_now()  # so that they outlive another crash before they are read
        for path in gone:
            if path != self.own or not crashed:
                path.unlink(missing_ok=True)
        if crashed:
            return Restored(self._found, crashed=True)
        self._found = _plans(read_object(self.last))
        return Restored(self._found, crashed=False)

    def touch(self) -> None:
        """Something changed: write within DELAY_MS. Further changes do not put it off."""
        if self.enabled and not self._timer.isActive():
            self._timer.start()

    def _text(self) -> str:
        plans = self._collect() or self._found  # what has been found is open as soon as it is read
        windows = [{"plan": dict(p.plan), "path": p.path, "modified": p.modified} for p in plans]
        return json.dumps({"schema": SCHEMA, "windows": windows})

    def _write_soon(self) -> None:
        text = self._text()
        self._jobs.submit(
            "Saving the session", lambda control: storage.write(self.own, text), _nothing, _nothing, key="session"
        )

    def write_now(self) -> None:
        """Write at once: a crash is being reported."""
        if not self.enabled:
            return
        self._timer.stop()
        try:
            storage.write(self.own, self._text())
        except OSError:
            return

    def close(self) -> None:
        """A clean end: this session becomes the last one. Call after the jobs have stopped.

        An end before anything was open leaves the last one as it is.
        """
        self._timer.stop()
        if not self.enabled or not (self._collect() or self._found):
            return
        try:
            storage.write(self.last, self._text())
            self.own.unlink(missing_ok=True)
        except OSError:
            return


def _nothing(value: object) -> None:
    """A session that cannot be written (a full disk) must not stand in the way of the work itself."""
