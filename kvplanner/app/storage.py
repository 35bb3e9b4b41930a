"""Files of the app itself: where they lie, and how they are read and written."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from PySide6.QtCore import QStandardPaths

from kvplanner import jsonfile
from kvplanner.errors import BadInput
from kvplanner.files import write_whole

FOLDER_VARIABLE = "KVPLANNER_DATA_DIR"
MOST_BYTES = 4 << 20


def data_folder() -> Path:
    """Where settings and sessions lie: $KVPLANNER_DATA_DIR, else the desktop's place for application data."""
    given = os.environ.get(FOLDER_VARIABLE)
    if given:
        return Path(given)
    location = QStandardPaths.writableLocation(QStandardPaths.StandardLocation.GenericConfigLocation)
    return Path(location or Path.home() / ".config") / "kvplanner"


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
