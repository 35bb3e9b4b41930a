"""Lists that the window keeps of its user among the settings, for whoever reads them without it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from kvplanner import jsonfile
from kvplanner.errors import BadInput
from kvplanner.files import data_folder

_MOST_BYTES: Final = 4 << 20
# The lists by name; the items of the first two are what opens a model.
RECENT_MODELS: Final = "recent_models"
STARRED_MODELS: Final = "starred_models"
MODEL_FOLDERS: Final = "model_folders"


def settings_file() -> Path:
    """Where the settings lie."""
    return data_folder() / "settings.json"


def texts(name: str) -> tuple[str, ...]:
    """A list of the settings; nothing where there is none, or it is no list of texts."""
    try:
        found = jsonfile.read_object(settings_file(), _MOST_BYTES).get(name)
    except BadInput:
        return ()
    return tuple(found) if isinstance(found, list) and all(isinstance(item, str) for item in found) else ()
