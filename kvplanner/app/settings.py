"""Settings: typed declarations, one JSON file, written atomically, tolerant of a broken one.

A value of the wrong type counts as absent; fields that this version does not know are kept.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from PySide6.QtCore import QObject, Signal

from kvplanner import kept
from kvplanner.app import storage
from kvplanner.app.storage import read_object
from kvplanner.reading import is_there

T = TypeVar("T", bool, int, str, list[str])


class Setting(Generic[T]):
    """One setting: its name, its default (which also gives its type) and, for text, its allowed values."""

    def __init__(self, name: str, default: T, choices: tuple[str, ...] = ()) -> None:
        self.name = name
        self.default: T = default
        self.choices = choices

    def accepts(self, value: object) -> bool:
        """Whether a value read from a file can be this setting's."""
        if type(value) is not type(self.default):
            return False
        if isinstance(value, list):
            return all(isinstance(item, str) for item in value)
        return not self.choices or value in self.choices


THEME: Final = Setting("theme", "system", ("system", "light", "dark", "contrast"))
UNIT: Final = Setting("unit", "GiB", ("GiB", "GB"))
# Which separators figures have in the window: the system's, or "group_decimal".
NUMBERS: Final = Setting(
    "numbers", "system", ("system", "comma_point", "point_comma", "space_comma", "apostrophe_point")
)
GEOMETRY: Final = Setting("geometry", "")
SPLITTER: Final = Setting("splitter", "")
ADVANCED_OPEN: Final = Setting("advanced_open", False)
PANEL_WIDTH: Final = Setting("panel_width", 0)
SETUP_FOLDED: Final = Setting("setup_folded", False)
PLAN_TABS: Final = Setting("plan_tabs", False)
CALM: Final = Setting("reduced_motion", False)
# Whether the tour has been seen or closed, and the version that said last what is new.
TOURED: Final = Setting("toured", False)
LAST_VERSION: Final = Setting("last_version", "")
GPU_PANEL: Final = Setting("gpu_panel", False)
DOCKS: Final = Setting("docks", "")
RECENT_FILES: Final[Setting[list[str]]] = Setting("recent_files", [])
RECENT_MODELS: Final[Setting[list[str]]] = Setting(kept.RECENT_MODELS, [])
RECENT_MACHINES: Final[Setting[list[str]]] = Setting("recent_machines", [])
STARRED_MODELS: Final[Setting[list[str]]] = Setting(kept.STARRED_MODELS, [])
STARRED_MACHINES: Final[Setting[list[str]]] = Setting("starred_machines", [])
EXPORT_FOLDER: Final = Setting("export_folder", "")
# "path<tab>model": what stands in for a path of another machine.
STAND_INS: Final[Setting[list[str]]] = Setting("stand_ins", [])
MODEL_FOLDERS: Final[Setting[list[str]]] = Setting(kept.MODEL_FOLDERS, [])

RECENT_LIMIT: Final = 10


class Settings(QObject):
    """The settings of all windows. changed(name)."""

    changed = Signal(str)

    def __init__(self, path: Path | None = None, parent: QObject | None = None, *, save: bool = True) -> None:
        super().__init__(parent)
        self.path = path or kept.settings_file()
        self._save = save
        self._values: dict[str, Any] = {}
        self._unsaved: set[str] = set()
        self.broken: Path | None = None  # where a file that could not be read lies now
        if save:
            self._load()

    def _load(self) -> None:
        values = read_object(self.path)
        if values is not None:
            self._values = values
        elif is_there(self.path):
            self._keep_broken()

    def _keep_broken(self) -> None:
        """Put a file that cannot be read aside, so that saving does not destroy it."""
        aside = self.path.with_suffix(".broken.json")
        try:
            self.path.replace(aside)
        except OSError:
            self._save = False
        self.broken = aside if self._save else self.path

    def get(self, setting: Setting[T]) -> T:
        """The value, or the default where the file has none that fits."""
        value = self._values.get(setting.name)
        if value is None or not setting.accepts(value):
            return setting.default
        result: T = value
        return result

    @property
    def saved(self) -> bool:
        """Whether changes are written to the file at all."""
        return self._save

    def set(self, setting: Setting[T], value: T) -> None:
        """Change a value and save at once. A file that cannot be written leaves it to the next save."""
        if self.get(setting) == value:
            return
        self._values[setting.name] = value
        self._unsaved.add(setting.name)
        self.save()
        self.changed.emit(setting.name)

    def remember(self, setting: Setting[list[str]], item: str) -> None:
        """Put an item at the head of a recent list."""
        kept = [other for other in self._listed(setting) if other != item]
        self.set(setting, [item, *kept][:RECENT_LIMIT])

    def star(self, setting: Setting[list[str]], item: str) -> None:
        """Put an item on a list of what the user starred, or take it off."""
        kept = self._listed(setting)
        self.set(setting, [other for other in kept if other != item] if item in kept else [*kept, item])

    def forget(self, setting: Setting[list[str]], item: str) -> None:
        """Take an item off a recent list."""
        self.set(setting, [other for other in self._listed(setting) if other != item])

    def _listed(self, setting: Setting[list[str]]) -> list[str]:
        """A list with what other processes put on it."""
        on_disk = self._on_disk().get(setting.name) if self._save and setting.name not in self._unsaved else None
        return on_disk if isinstance(on_disk, list) and setting.accepts(on_disk) else self.get(setting)

    def _on_disk(self) -> dict[str, Any]:
        """What the file holds by now: another process may have changed it; our own values where it cannot be read."""
        values = read_object(self.path)
        return values if values is not None else self._values

    def save(self) -> bool:
        """Write what was changed here, beside what others changed; False for a full or read-only disk."""
        if not self._save:
            return False
        if not self._unsaved:
            return True
        changed = {name: self._values[name] for name in self._unsaved}
        try:
            storage.write(self.path, json.dumps({**self._on_disk(), **changed}, indent=1, sort_keys=True))
        except OSError:
            return False
        self._unsaved.clear()
        return True
