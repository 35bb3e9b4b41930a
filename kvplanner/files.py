"""The files that come with the program, and files that are written whole or not at all."""

from __future__ import annotations

import os
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from threading import get_ident


def shipped(*parts: str) -> Path:
    """A file or folder that comes with the program.

    The folder is always a real one, installed or packaged: importlib.resources, which also reads zip files, takes
    10 ms to import.
    """
    return Path(next(iter(import_module("kvplanner.resources").__path__)), *parts)


def write_whole(path: str | os.PathLike[str], data: bytes) -> None:
    """Writes a neighbour, syncs it and moves it over the file: a crash leaves the old one or the new one.

    Keeps the permissions of a file that is there, and follows a link. Raises OSError, and leaves nothing behind.
    """
    target = Path(path).resolve()
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


def _sync_folder(folder: Path) -> None:
    """Makes the move itself durable where the system can; a file system that refuses has kept the data anyway."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
