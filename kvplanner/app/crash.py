"""Crash records: what went wrong as plain text that a person can read, keep and pass on. Nothing is ever sent."""

from __future__ import annotations

import os
import re
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import IO, Final

from PySide6 import QtCore
from PySide6.QtCore import QObject, Signal

import kvplanner
from kvplanner.errors import BadInput
from kvplanner.files import data_folder
from kvplanner.reading import file_size, is_file, is_there, read_whole

# Only these say something about drawing and start-up, and none holds a secret.
ENVIRONMENT: Final = (
    "QT_QPA_PLATFORM", "QT_QPA_PLATFORMTHEME", "QT_STYLE_OVERRIDE", "QT_SCALE_FACTOR", "XDG_SESSION_TYPE",
    "XDG_CURRENT_DESKTOP", "LANG", "CUDA_VISIBLE_DEVICES",
)  # fmt: skip
# A line of a trace that names a source file, of Python's own or of faulthandler's.
_SOURCE: Final = re.compile(r'(\s*)File "([^"]+)"(.*)$')
# The folders that packages lie in, Python's own among them.
_ROOT: Final = re.compile(r"site-packages|dist-packages|python[\d.]+")
SMALLEST_NATIVE = 40
LARGEST_NATIVE: Final = 4_000_000


def versions() -> tuple[tuple[str, str], ...]:
    """Names and versions of what is running."""
    import platform

    import PySide6
    from PySide6.QtCore import qVersion

    return (
        ("kvplanner", kvplanner.__version__),
        ("Python", platform.python_version()),
        ("Qt", qVersion()),
        ("PySide6", PySide6.__version__),
        ("System", f"{platform.system()} {platform.release()} {platform.machine()}"),
    )


def without_places(trace: str) -> str:
    """A trace that names source files by their packages (kvplanner/app/jobs.py), and nothing else of a machine.

    Lines of code are as they are; messages lose paths, hosts, addresses, keys and identities of GPUs.
    """
    from kvplanner.diagnose.privacy import scrubbed

    lines: list[str] = []
    code = False
    for line in trace.splitlines():
        place = _SOURCE.match(line)
        if place:
            lines.append(f'{place[1]}File "{_within_package(place[2])}"{place[3]}')
        else:
            lines.append(line if code and line.startswith("    ") else scrubbed(line))
        code = place is not None or (code and line.startswith("    "))
    return "\n".join(lines)


def _within_package(path: str) -> str:
    """The part of a path that begins with its package."""
    parts = re.split(r"[\\/]+", path)
    for at in reversed(range(len(parts) - 1)):
        if _ROOT.fullmatch(parts[at]):
            return "/".join(parts[at + 1 :])
        if parts[at] == "kvplanner":
            return "/".join(parts[at:])
    return parts[-1]


def report_text(trace: str, context: str = "") -> str:
    """A crash report: versions, a short list of harmless environment variables, the plan as text, the trace.

    context: without what is private already.
    """
    lines = [f"{name}: {value}" for name, value in versions()]
    lines += [f"{name}={os.environ[name]}" for name in ENVIRONMENT if name in os.environ]
    parts = ["kvplanner crash report", "\n".join(lines)]
    if context:
        parts.append(context)
    parts.append(without_places(trace.rstrip()))
    return "\n\n".join(parts) + "\n"


class ExceptionCatcher(QObject):
    """Takes over sys.excepthook and threading.excepthook. caught(report text), on the main thread.

    before: called first, to save the session. One report at a time: an error that repeats itself shows once.
    """

    caught = Signal(str)
    _arrived = Signal(str)

    def __init__(self, before: Callable[[], object], context: Callable[[], str], parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._before = before
        self._context = context
        self._seen: set[str] = set()
        self._previous = sys.excepthook, threading.excepthook

    def install(self) -> None:
        """Start catching."""
        self._arrived.connect(self._deliver, QtCore.Qt.ConnectionType.QueuedConnection)
        sys.excepthook = self._hook
        threading.excepthook = self._thread_hook

    def uninstall(self) -> None:
        """Put the hooks from before back."""
        sys.excepthook, threading.excepthook = self._previous

    def _hook(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if issubclass(kind, KeyboardInterrupt):
            self._previous[0](kind, error, trace)
            return
        text = "".join(traceback.format_exception(kind, error, trace))
        sys.stderr.write(text)
        if text not in self._seen:
            self._seen.add(text)
            self._arrived.emit(text)

    def _thread_hook(self, args: threading.ExceptHookArgs) -> None:
        if args.exc_value is not None:
            self._hook(args.exc_type, args.exc_value, args.exc_traceback)

    def _deliver(self, trace: str) -> None:
        self._before()
        self.caught.emit(report_text(trace, self._context()))


class NativeCrashLog:
    """faulthandler's file: filled when the process dies inside Qt or a driver, read at the next start."""

    def __init__(self, folder: Path | None = None) -> None:
        self.path = (folder or data_folder()) / "native-crash.txt"
        self._file: IO[str] | None = None

    def take_previous(self) -> str:
        """The report of a native crash of the run before, "" when there was none; it is moved aside."""
        try:
            text = read_whole(self.path, LARGEST_NATIVE).decode("utf-8", "replace")
            if len(text) < SMALLEST_NATIVE:
                return ""
            self.path.replace(self.path.with_name(f"native-crash-{int(time.time())}.txt"))
        except (BadInput, OSError):
            return ""
        return report_text(text)

    def start(self) -> None:
        """Have native crashes recorded. Does nothing where the folder cannot be written."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if is_there(self.path) and not is_file(self.path):
                return  # a pipe would wait for a reader
            self._file = self.path.open("w", encoding="utf-8")
        except OSError:
            return
        import faulthandler

        faulthandler.enable(self._file, all_threads=True)

    def stop(self) -> None:
        """Stop recording; an empty file goes."""
        if self._file is None:
            return
        import faulthandler

        faulthandler.disable()
        self._file.close()
        self._file = None
        if file_size(self.path) == 0:
            self.path.unlink(missing_ok=True)
