"""Bytes of untrusted files: only what a header needs, never more than the file holds, never from a device or pipe."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from kvplanner.errors import BadInput


class ByteSource(Protocol):
    """A file that gives any part of itself: on this disk, or behind range requests.

    name: for messages; size: bytes of the whole file.
    """

    name: str
    size: int

    def read(self, offset: int, length: int) -> bytes:
        """Exactly `length` bytes at `offset`; raises BadInput when the file does not hold them."""
        ...


class LocalFile:
    """A regular file on this machine, open for reading."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.name = str(path)
        self.size = os.fstat(descriptor).st_size
        self._file = os.fdopen(descriptor, "rb", buffering=0)

    def read(self, offset: int, length: int) -> bytes:
        """Exactly `length` bytes at `offset`; raises BadInput when the file is or became shorter, or cannot be read."""
        parts: list[bytes] = []
        try:
            self._file.seek(offset)
            left = length
            while left > 0 and (part := self._file.read(left)):
                parts.append(part)
                left -= len(part)
        except OSError as error:
            raise unreadable(self.name, error) from error
        if left > 0:
            raise BadInput(
                f"the file ends {left:,} bytes before the end of what was expected at byte {offset:,}",
                self.name,
                "It is incomplete, or changed while it was read: download it again",
            )
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


@contextmanager
def open_file(path: Path) -> Iterator[LocalFile]:
    """Opens a regular file; raises BadInput for anything else (folders, pipes, devices, loops of links)."""
    # Non-blocking, since opening a named pipe would otherwise wait for a writer.
    flags = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
    try:
        descriptor = os.open(path, flags)
    except (OSError, ValueError) as error:
        raise unreadable(str(path), error) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise BadInput("not a regular file", str(path), "Name a model file or a model folder")
    file = LocalFile(path, descriptor)
    try:
        yield file
    finally:
        file.close()


def unreadable(where: str, error: OSError | ValueError) -> BadInput:
    """The error for a file or folder that the system refuses to open or read."""
    if isinstance(error, FileNotFoundError):
        return BadInput("no such file or folder", where, "Check the path")
    if isinstance(error, PermissionError):
        return BadInput("may not be read by this user", where, "Change its permissions, or copy it")
    reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return BadInput(f"cannot be read ({reason.lower()})", where, "Check the path and the disk")


def read_whole(path: Path, limit_bytes: int) -> bytes:
    """All bytes of a small file; raises BadInput when it is larger than `limit_bytes`."""
    with open_file(path) as file:
        if file.size > limit_bytes:
            raise BadInput(
                f"{file.size:,} bytes, where at most {limit_bytes:,} are read of a file of this kind",
                str(path),
                "It is not what its name says",
            )
        return file.read(0, file.size)


def is_there(path: Path) -> bool:
    """Whether something has this path, as far as this user can see: what cannot be asked for is not there.

    The one place that asks so of a path that others wrote down: such a path may be too long, run in circles or lie in
    a folder that is closed. It may also lie on a mount that never answers, so that the window asks in a job.
    """
    try:
        return path.exists()
    except (OSError, ValueError, RuntimeError):
        return False


def is_folder(path: Path) -> bool:
    """Whether a path that others wrote down is a folder, as far as this user can see."""
    try:
        return path.is_dir()
    except (OSError, ValueError, RuntimeError):
        return False


def is_file(path: Path) -> bool:
    """Whether a path that others wrote down is a regular file, as far as this user can see."""
    return file_size(path) is not None


def first_line(path: Path, limit_bytes: int = 200) -> str:
    """The first line of a small text such as a branch's commit, "" where there is none to be read."""
    try:
        with open_file(path) as file:
            return file.read(0, min(file.size, limit_bytes)).decode("ascii").strip().partition("\n")[0]
    except (BadInput, UnicodeDecodeError):
        return ""


def expanded(text: str) -> Path:
    """The path that a text means, "~" as the home folder; a home that nobody has stays as it is written."""
    try:
        return Path(text).expanduser()
    except (RuntimeError, ValueError):
        return Path(text)


def file_size(path: Path) -> int | None:
    """Size of a regular file, following links; None when it is missing, not regular or not accessible."""
    try:
        status = path.stat()
    except (OSError, ValueError):
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None
