"""What the parts of the main window may rely on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from PySide6 import QtWidgets

if TYPE_CHECKING:
    from kvplanner.app.document import Document
    from kvplanner.app.messages import Messages
    from kvplanner.app.settings import Settings
    from kvplanner.ui.bars.words import Unit
    from kvplanner.ui.main_actions import Actions
    from kvplanner.ui.main_app import Application
    from kvplanner.ui.main_centre import Centre
    from kvplanner.ui.setup.panel import SetupPanel
    from kvplanner.ui.setup.pickers import Pickers

PANEL_WIDTH: Final = 330


class WindowBase(QtWidgets.QMainWindow):
    """The window's members, as its parts see them."""

    application: Application
    actions_of_window: Actions
    settings: Settings
    document: Document
    messages: Messages
    panel: SetupPanel
    centre: Centre
    pickers: Pickers
    furnished: bool
    _drop_sheet: QtWidgets.QLabel | None

    def unit(self) -> Unit:
        """The unit of sizes."""
        raise NotImplementedError

    def close_now(self) -> None:
        """Close without asking."""
        raise NotImplementedError
