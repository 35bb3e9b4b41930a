"""Files of the app itself: how they are read and written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kvplanner import jsonfile
from kvplanner.errors import BadInput
from kvplanner.files import FOLDER_VARIABLE, data_folder, write_whole

__all__ = ["FOLDER_VARIABLE", "data_folder", "read_object", "write"]

MOST_BYTES = 4 << 20


def write(path: Path, text: str) -> None:
    """Write a file whole or not at all, in a folder that is made where it is missing. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, text.encode(errors="replace"))


def read_object(path: Path, most_bytes: int = MOST_BYTES) -> dict[str, Any] | None:
    """A JSON object from a file; None when it is missing, too large, broken, or not an object."""
    try:
        return jsonfile.read_object(path, most_bytes)
    except BadInput:
        return None
