"""Files of the app itself: where they lie, and how they are written so that a crash leaves the old one whole."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

from PySide6.QtCore import QStandardPaths

FOLDER_VARIABLE = "KVPLANNER_DATA_DIR"
MOST_BYTES = 4 << 20


def data_folder() -> Path:
    """Where settings and sessions lie: $KVPLANNER_DATA_DIR, else the desktop's place for application data."""
    given = os.environ.get(FOLDER_VARIABLE)
    if given:
        return Path(given)
    location = QStandardPaths.writableLocation(QStandardPaths.StandardLocation.GenericConfigLocation)
    return Path(location or Path.home() / ".config") / "kvplanner"


def write_atomic(path: Path, text: str) -> None:
    """Write a file whole or not at all. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def read_object(path: Path) -> dict[str, Any] | None:
    """A JSON object from a file; None when it is missing, too large, broken, or not an object."""
    try:
        if path.stat().st_size > MOST_BYTES:
            return None
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
