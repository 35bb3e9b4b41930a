"""What the parts of the main window may rely on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from PySide6 import QtWidgets

from kvplanner.ui.setup.labels import in_sentence

if TYPE_CHECKING:
    from kvplanner.app.document import Document
    from kvplanner.app.messages import Messages
    from kvplanner.app.settings import Settings
    from kvplanner.report.words import Unit
    from kvplanner.ui.setup.panel import SetupPanel
    from kvplanner.ui.setup.pickers import Pickers
    from kvplanner.ui.window.actions import Actions
    from kvplanner.ui.window.application import Application
    from kvplanner.ui.window.centre import Centre

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

    def refused_input(self) -> tuple[str, str]:
        """Name and message of an input whose text is refused and so in no plan, "" for none; takes what is typed first.

        The plan is made as well: afterwards `document.plan` and `document.error` are of what the form shows.
        """
        if self.furnished:
            typed = QtWidgets.QApplication.focusWidget()
            if isinstance(typed, QtWidgets.QLineEdit) and self.panel.isAncestorOf(typed):
                typed.editingFinished.emit()
        self.document.flush()
        return self.panel.refused if self.furnished else ("", "")

    def plan_lacking_for(self, purpose: str) -> str:
        """Why there is no plan of what the form shows to copy or export, "" where there is one."""
        field, _ = self.refused_input()
        if self.document.plan is None or self.document.error is not None:
            return f"There is no plan of these settings to {purpose}: mend the marked field first"
        if self.document.waiting:
            return f"There is no plan of these settings to {purpose} yet: the draft model is still being read"
        if field:
            return f"There is no plan of these settings to {purpose}: {in_sentence(field)} is refused; mend it first"
        return ""

    def close_now(self) -> None:
        """Close without asking."""
        raise NotImplementedError
