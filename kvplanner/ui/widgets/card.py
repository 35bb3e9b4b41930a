"""Cards: framed grounds that draw themselves, so that the first frame shows them before the drawing style exists."""

from __future__ import annotations

from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QColor, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QVBoxLayout, QWidget

from kvplanner.ui.theme.theme import tokens_of

RADIUS = 6
SPACING = 6


def rounded(painter: QPainter, area: QRectF, fill: str, line: str, radius: float) -> None:
    """A rounded rectangle; "" for no fill or no line."""
    painter.save()
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    painter.setPen(QPen(QColor(line), 1.0) if line else QPen(Qt.PenStyle.NoPen))
    painter.setBrush(QColor(fill) if fill else QColor(Qt.GlobalColor.transparent))
    painter.drawRoundedRect(area.adjusted(0.5, 0.5, -0.5, -0.5), radius, radius)
    painter.restore()


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
