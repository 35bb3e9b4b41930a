"""Whether the plan is of what the form shows: asked before anything is copied, saved or exported."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from PySide6 import QtWidgets

from kvplanner.report.options import in_sentence

if TYPE_CHECKING:
    from kvplanner.app.document import Document
    from kvplanner.ui.setup.panel import SetupPanel


class Form:
    """The form of a document; it may not be made yet."""

    def __init__(self, document: Document, panel: Callable[[], SetupPanel | None]) -> None:
        self._document = document
        self._panel = panel

    def refused(self) -> tuple[str, str]:
        """Name and message of an input whose text is refused and so in no plan, "" for none; takes what is typed first.

        The plan is made as well: afterwards `document.plan` and `document.error` are of what the form shows.
        """
        panel = self._panel()
        if panel is not None:
            typed = QtWidgets.QApplication.focusWidget()
            if isinstance(typed, QtWidgets.QLineEdit) and panel.isAncestorOf(typed):
                typed.editingFinished.emit()
        self._document.flush()
        return panel.refused if panel is not None else ("", "")

    def lacking_for(self, purpose: str) -> str:
        """Why there is no plan of what the form shows to copy or export, "" where there is one."""
        field, _ = self.refused()
        document = self._document
        if document.plan is None or document.error is not None:
            return f"There is no plan of these settings to {purpose}: mend the marked field first"
        if document.waiting:
            return f"There is no plan of these settings to {purpose} yet: the draft model is still being read"
        if field:
            return f"There is no plan of these settings to {purpose}: {in_sentence(field)} is refused; mend it first"
        return ""
