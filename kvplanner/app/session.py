"""Session: what lies open is written down within half a second of an edit, and found again after a crash.

Each process has a file of its own named by its process id. A file whose process is gone without having closed it is
a crash; a closed session is kept as the last one.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import Any, Final
from zlib import crc32

from PySide6.QtCore import QObject, QTimer

from kvplanner.app import storage
from kvplanner.app.jobs import Jobs
from kvplanner.app.storage import read_object
from kvplanner.files import data_folder, is_alive
from kvplanner.reading import is_there
from kvplanner.record import NamedTuple

SCHEMA: Final = "kvplanner.session/1"
DELAY_MS: Final = 400
MOST_WINDOWS: Final = 20
MOST_PINNED: Final = 3
# A crash of several processes may leave more; further ones stay in their files.
MOST_RESTORED: Final = 60
MOST_FILES: Final = 1000
# Of each window a plan file of a megabyte at most.
MOST_BYTES: Final = 64 << 20
# "PID.json", or "PID-N.json" while what others left behind is being taken over. No process id has more digits.
_OWNED: Final = re.compile(r"([0-9]{1,10})(?:-[0-9]{1,20})?\.json")


class OpenPlan(NamedTuple):
    """One window: the plan file's document, the file it belongs to, and whether it has unsaved edits.

    pinned: documents of the plans that it is compared with.
    """

    plan: Mapping[str, Any]
    path: str
    modified: bool
    pinned: tuple[Mapping[str, Any], ...] = ()


class Restored(NamedTuple):
    """plans: what was open; crashed: the process ended without closing. aside: files that cannot be read, kept."""

    plans: tuple[OpenPlan, ...]
    crashed: bool
    aside: tuple[Path, ...] = ()


def _plans(document: Mapping[str, Any] | None) -> tuple[OpenPlan, ...] | None:
    """The windows of a session file; None for one that is none of this version's, or not whole."""
    windows = document.get("windows") if document is not None and document.get("schema") == SCHEMA else None
    if not isinstance(windows, list):
        return None
    return tuple(
        OpenPlan(
            w["plan"],
            w["path"] if isinstance(w.get("path"), str) else "",
            w.get("modified") is True,
            _pinned(w.get("pinned")),
        )
        for w in windows[:MOST_WINDOWS]
        if isinstance(w, dict) and isinstance(w.get("plan"), dict)
    )


def _pinned(found: object) -> tuple[Mapping[str, Any], ...]:
    return tuple(one for one in found[:MOST_PINNED] if isinstance(one, dict)) if isinstance(found, list) else ()


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
        self._last_seen = self._mark_of_last()
        self._writing = Lock()
        self._begun = self._written = 0

    def restore(self) -> Restored:
        """What to open: the plans of crashed processes, else those of the last closed session."""
        crashed: list[OpenPlan] = []
        gone: list[Path] = []
        aside: list[Path] = []
        for path in self._left_behind():
            found = self._read(path, aside)
            if found is not None:
                crashed += found
                gone.append(path)
        if crashed:
            self._found = tuple(crashed[:MOST_RESTORED])
            # So that they outlive another crash before they are read; what could not be written is found again.
            if self.write_now():
                for path in gone:
                    _remove(path)
            return Restored(self._found, crashed=True, aside=tuple(aside))
        for path in gone:
            _remove(path)
        self._found = self._read(self.last, aside) or ()
        self._last_seen = self._mark_of_last()
        return Restored(self._found, crashed=False, aside=tuple(aside))

    def _left_behind(self) -> list[Path]:
        """The sessions of processes that ended without closing them, each claimed: two starts never share one."""
        claimed: list[Path] = []
        try:
            found = sorted(entry.name for entry in islice(os.scandir(self.folder), MOST_FILES))
        except OSError:
            return []
        for number, name in enumerate(found):
            match = _OWNED.fullmatch(name)
            if match is None or (int(match[1]) != os.getpid() and is_alive(int(match[1]))):
                continue
            if name == self.own.name and self._found:
                continue  # ours by now; before, it is of a process that had our id
            path = self.folder / f"{os.getpid()}-{time.time_ns() + number}.json"
            if is_there(path):
                continue
            try:
                (self.folder / name).rename(path)
            except OSError:
                continue
            claimed.append(path)
        return claimed

    def _read(self, path: Path, aside: list[Path]) -> tuple[OpenPlan, ...] | None:
        """The windows of a session file. One that is there and cannot be read is put aside, never destroyed; so is a
        copy of one that holds more windows than are opened.
        """
        document = read_object(path, MOST_BYTES)
        found, kept = _plans(document), path.with_suffix(".aside.json")
        if found is not None and document is not None and len(found) < len(document["windows"]):
            with suppress(OSError):
                storage.write(kept, json.dumps(document))
                aside.append(kept)
        if found is None and is_there(path):
            try:
                path.replace(kept)
            except OSError:
                kept = path
            aside.append(kept)
        return found

    def put_aside(self, plan: OpenPlan) -> Path | None:
        """Keep a plan that cannot be opened as a plan file of its own: the next session has another in its place.

        None where nothing can be written. In any thread.
        """
        text = json.dumps(dict(plan.plan))
        path = self.last.with_name(f"aside-{crc32(text.encode()):08x}.kvplan.json")  # the same one once
        if not self.enabled:
            return None
        try:
            storage.write(path, text)
        except OSError:
            return None
        return path

    def touch(self) -> None:
        """Something changed: write within DELAY_MS. Further changes do not put it off."""
        if self.enabled and not self._timer.isActive():
            self._timer.start()

    def _mark_of_last(self) -> tuple[int, int, int] | None:
        """What tells one writing of the last session from another, whatever the clock does; None for none."""
        try:
            status = self.last.stat()
        except OSError:
            return None
        return status.st_ino, status.st_size, status.st_mtime_ns

    def _of_others(self) -> tuple[OpenPlan, ...]:
        """Edits that are in no file, of a process that was closed while this one ran: they too come back."""
        if self._mark_of_last() in (None, self._last_seen):
            return ()
        return tuple(plan for plan in _plans(read_object(self.last, MOST_BYTES)) or () if plan.modified)

    def _text(self, others: tuple[OpenPlan, ...] = ()) -> str:
        own = self._collect() or self._found  # what has been found is open as soon as it is read
        plans = [*own, *(plan for plan in others if plan not in own)][: max(MOST_WINDOWS, len(own))]
        windows = [
            {"plan": dict(p.plan), "path": p.path, "modified": p.modified, "pinned": [dict(one) for one in p.pinned]}
            for p in plans
        ]
        return json.dumps({"schema": SCHEMA, "windows": windows})

    def _write_soon(self) -> None:
        write = self._writer()
        self._jobs.submit("Saving the session", lambda control: write(), _nothing, _nothing, key="session")

    def _writer(self) -> Callable[[], None]:
        """What writes the session as it is now, in any thread and at any time, unless a later one was written."""
        self._begun += 1
        number, text = self._begun, self._text()

        def write() -> None:
            with self._writing:
                if number > self._written:
                    storage.write(self.own, text)
                    self._written = number

        return write

    def write_now(self) -> bool:
        """Write at once: a crash is being reported. False where that is not possible."""
        if not self.enabled:
            return False
        self._timer.stop()
        try:
            self._writer()()
        except OSError:
            return False
        return True

    def close(self) -> None:
        """A clean end: this session becomes the last one. Call after the jobs have stopped.

        An end before anything was open leaves the last one as it is.
        """
        self._timer.stop()
        if not self.enabled or not (self._collect() or self._found):
            return
        try:
            storage.write(self.last, self._text(self._of_others()))
        except OSError:
            return
        _remove(self.own)


def _remove(path: Path) -> None:
    with suppress(OSError):
        path.unlink(missing_ok=True)


def _nothing(value: object) -> None:
    """A session that cannot be written (a full disk) must not stand in the way of the work itself."""
