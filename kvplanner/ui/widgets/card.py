"""Cards: framed grounds that draw themselves, so that the first frame shows them before the drawing style exists."""

from __future__ import annotations

from PySide6.QtCore import QRectF
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QVBoxLayout, QWidget

from kvplanner.ui.theme.ink import rounded, tokens_of

RADIUS = 6
SPACING = 6


class Card(QWidget):
    """A framed ground with widgets on it, one below the other."""

    def __init__(self, *widgets: QWidget, margins: int) -> None:
        super().__init__()
        layout = QVBoxLayout(self)
        layout.setContentsMargins(margins, margins, margins, margins)
        layout.setSpacing(SPACING)
        for widget in widgets:
            layout.addWidget(widget)

    def paintEvent(self, event: QPaintEvent) -> None:
        """The ground."""
        tokens = tokens_of(self)
        rounded(QPainter(self), QRectF(self.rect()), tokens.panel, tokens.border, RADIUS)
