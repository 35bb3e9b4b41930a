"""Where a running process writes its log, while that can still be asked."""

from __future__ import annotations

from pathlib import Path

from kvplanner.reading import is_file


def output_file(pid: int, proc: Path = Path("/proc")) -> Path | None:
    """The file that a process's errors or output go to; None for a terminal, a pipe, or another system's process."""
    for number in (2, 1):
        try:
            target = (proc / str(pid) / "fd" / str(number)).readlink()
            if target.is_absolute() and is_file(target):
                return target
        except OSError:  # gone, another user's, or a system without /proc
            continue
    return None
