"""The files that come with the program, below resources/ in the source and kvplanner/resources once installed."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path


def shipped(*parts: str) -> Path:
    """A file or folder that comes with the program.

    The folder is always a real one, installed or packaged: importlib.resources, which also reads zip files, takes
    10 ms to import.
    """
    return Path(next(iter(import_module("kvplanner.resources").__path__)), *parts)
