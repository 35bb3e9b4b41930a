"""The files that come with the program, the place of its own, and files that are written whole or not at all."""

from __future__ import annotations

import errno
import os
import re
import stat
import sys
import time
from contextlib import suppress
from functools import cache
from importlib import import_module
from itertools import islice
from pathlib import Path
from threading import get_ident
from typing import Any, Final

FOLDER_VARIABLE: Final = "KVPLANNER_DATA_DIR"
_PART: Final = re.compile(r"\.kvplanner-([0-9]{1,10})-[0-9]{1,20}\.part")
_ABANDONED_S: Final = 600
# Of a folder's entries: a plan may be saved among a hundred thousand downloads.
_MOST_SWEPT: Final = 5000


def shipped(*parts: str) -> Path:
    """A file or folder that comes with the program.

    The folder is always a real one, installed or packaged: importlib.resources, which also reads zip files, takes
    10 ms to import.
    """
    return Path(next(iter(import_module("kvplanner.resources").__path__)), *parts)


def data_folder() -> Path:
    """Where settings, sessions and packs lie: $KVPLANNER_DATA_DIR, else the desktop's place for an application's own.

    The same place as QStandardPaths' GenericConfigLocation, for terminals that load no Qt.
    """
    given = os.environ.get(FOLDER_VARIABLE)
    if given:
        return Path(given)
    if sys.platform == "win32":
        place = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    elif sys.platform == "darwin":
        place = Path.home() / "Library" / "Preferences"
    else:
        chosen = os.environ.get("XDG_CONFIG_HOME", "")
        place = chosen if Path(chosen).is_absolute() else Path.home() / ".config"
    return Path(place) / "kvplanner"


def calibration_file() -> Path:
    """Where the runs lie that calibrate plans."""
    return data_folder() / "calibrations.json"


def packs_folder() -> Path:
    """Where data packs that were added lie."""
    return data_folder() / "packs"


@cache
def has_packs() -> bool:
    """Whether any data pack was ever added here: a start without one does not load what reads them."""
    try:
        return packs_folder().is_dir()
    except OSError:
        return False


def write_whole(path: str | os.PathLike[str], data: bytes) -> None:
    """Writes a neighbour, syncs it and moves it over the file: a crash leaves the old one or the new one.

    Keeps the permissions of a file that is there, and follows a link. Raises OSError, also for what is no file (a pipe
    or a device is never replaced by one), and leaves nothing behind; what a process that was killed left behind here
    before is taken away.
    """
    try:
        target = Path(path).resolve()
    except RuntimeError as error:  # before Python 3.13 a circle of links is no OSError
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), os.fspath(path)) from error
    refuse_no_file(target)
    _sweep(target.parent)
    part = target.with_name(f".kvplanner-{os.getpid()}-{get_ident()}.part")
    try:
        with part.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if target.exists():
            part.chmod(target.stat().st_mode & 0o777)
        part.replace(target)
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)
    _sync_folder(target.parent)


def refuse_no_file(target: Path) -> None:
    """Raises OSError for a folder, a pipe, a device or a socket; what is not there yet may become a file."""
    try:
        mode = target.stat().st_mode
    except FileNotFoundError:
        return
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(target))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "Not a regular file", str(target))


def _sweep(folder: Path) -> None:
    """Takes away what was left half written ten minutes ago or earlier: no writing takes that long.

    Nothing of a process that lives, whatever the clock says: it may have been put on an hour.
    """
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in islice(entries, _MOST_SWEPT):
            part = _PART.fullmatch(entry.name)
            if part is None or entry.stat(follow_symlinks=False).st_mtime >= time.time() - _ABANDONED_S:
                continue
            if not is_alive(int(part[1])):
                Path(entry.path).unlink(missing_ok=True)


def is_alive(pid: int) -> bool:
    """Whether a process of this machine has that id."""
    if sys.platform == "win32":
        return _runs_in_windows(pid)
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    except OverflowError:  # no process id at all
        return False
    return True


def _runs_in_windows(pid: int) -> bool:
    """The same where os.kill ends a process whatever the signal (its documentation).

    OpenProcess refuses an id that no process has as a wrong parameter; a process that has ended, while somebody holds
    a handle of it, counts as signalled (WaitForSingleObject).
    """
    import ctypes
    from ctypes import wintypes

    system: Any = ctypes  # what follows exists in Windows alone
    if not 0 < pid < 1 << 32:
        return False
    kernel = system.WinDLL("kernel32", use_last_error=True)
    kernel.OpenProcess.argtypes = wintypes.DWORD, wintypes.BOOL, wintypes.DWORD
    kernel.OpenProcess.restype = wintypes.HANDLE
    kernel.WaitForSingleObject.argtypes = wintypes.HANDLE, wintypes.DWORD
    kernel.CloseHandle.argtypes = (wintypes.HANDLE,)
    handle = kernel.OpenProcess(_SYNCHRONIZE, False, pid)
    if not handle:
        return bool(system.get_last_error() != _NO_SUCH_PROCESS)
    try:
        return bool(kernel.WaitForSingleObject(handle, 0) != _SIGNALLED)
    finally:
        kernel.CloseHandle(handle)


# winnt.h and winerror.h: the right to wait for a process; ERROR_INVALID_PARAMETER; WAIT_OBJECT_0.
_SYNCHRONIZE: Final = 0x0010_0000
_NO_SUCH_PROCESS: Final = 87
_SIGNALLED: Final = 0


def _sync_folder(folder: Path) -> None:
    """Makes the move itself durable where the system can; a file system that refuses has kept the data anyway."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
