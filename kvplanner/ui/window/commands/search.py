"""The search for models on this machine: again, and in further folders."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from PySide6 import QtWidgets

from kvplanner.app import settings as s
from kvplanner.ui.window.commands.opening import ask_folder, usual_folder

if TYPE_CHECKING:
    from kvplanner.app.document import Document
    from kvplanner.app.messages import Messages
    from kvplanner.ui.window.services import Services


class Search:
    """What the library of all windows looks through."""

    def __init__(self, host: QtWidgets.QWidget, document: Document, messages: Messages, services: Services) -> None:
        self._host = host
        self._document = document
        self._messages = messages
        self._services = services

    def add_folder(self) -> None:
        """Ask for a folder that the search for models on this machine looks through from now on."""
        folder = usual_folder(self._document, self._services)
        ask_folder(self._host, "Search a folder for models", folder, self.look_in)

    def look_in(self, folder: str) -> None:
        """Look for models in a folder too, now and at every later search."""
        self._services.settings.remember(s.MODEL_FOLDERS, folder)
        self.again()
        self._messages.success(
            f"{folder} is searched for models", action=("Leave it out", lambda: self.leave(folder)), key="scan"
        )

    def leave(self, folder: str) -> None:
        """No longer look for models there."""
        self._services.settings.forget(s.MODEL_FOLDERS, folder)
        self.again()

    def again(self) -> None:
        """Search this machine again."""
        folders = tuple(Path(folder) for folder in self._services.settings.get(s.MODEL_FOLDERS))
        self._services.library.scan_models(
            lambda error: self._messages.error(error, "Looking for models", key="scan"), folders
        )
