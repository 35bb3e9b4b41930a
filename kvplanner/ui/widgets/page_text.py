"""The text of a page: no frame but with the focus, as wide as the page, links that the page answers."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QFrame, QTextBrowser, QWidget

from kvplanner.ui.widgets.focus_frame import FocusFrame


class PageText(QTextBrowser):
    """Rich text that scrolls up and down only. name: what a screen reader says."""

    def __init__(self, name: str, parent: QWidget) -> None:
        super().__init__(parent)
        self.setOpenLinks(False)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setAccessibleName(name)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.document().setDocumentMargin(0)
        self.viewport().setAutoFillBackground(False)
        FocusFrame(self)

    def whole_height(self) -> int:
        """The height at which nothing scrolls, at the present width."""
        return int(self.document().size().height()) + 4
