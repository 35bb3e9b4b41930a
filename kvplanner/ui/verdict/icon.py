"""The sign of a verdict: a disc with a tick, an exclamation mark, a cross, a bar or a question mark."""

from __future__ import annotations

from typing import Final

from PySide6.QtCore import QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QPainter, QPaintEvent, QPen, QPolygonF
from PySide6.QtWidgets import QWidget

from kvplanner.report.verdict import State
from kvplanner.ui.theme.ink import colour, tokens_of
from kvplanner.ui.theme.palette import Tokens

STATE_NAMES: Final[dict[State, str]] = {
    "fits": "Fits",
    "narrow": "May not fit",
    "partly": "Fits, but does not serve the whole load",
    "fails": "Does not fit",
    "unknown": "Cannot be told",
    "stale": "No plan of what is set",
    "empty": "No plan",
}


class StatusIcon(QWidget):
    """A disc with a tick, an exclamation mark, a cross, a bar or a question mark: told by shape and by colour."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setFixedSize(QSize(28, 28))
        self._state: State = "empty"
        self.set_state("empty")

    def set_state(self, state: State) -> None:
        """Shows a state."""
        self._state = state
        self.setAccessibleName(STATE_NAMES[state])
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draws the disc and its sign."""
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing, on=True)
        paint_status(painter, QRectF(self.rect()), self._state, tokens_of(self))
        painter.end()


def paint_status(painter: QPainter, box: QRectF, state: State, tokens: Tokens) -> None:
    """A state's disc and sign, also for pictures."""
    grounds = {
        "fits": tokens.success, "narrow": tokens.warning, "partly": tokens.warning, "fails": tokens.danger,
    }  # fmt: skip
    side = min(box.width(), box.height())
    painter.save()
    painter.translate(box.center())
    painter.scale(side / 28, side / 28)
    painter.setPen(Qt.PenStyle.NoPen)
    painter.setBrush(colour(grounds.get(state, tokens.outline)))
    painter.drawEllipse(QPointF(0, 0), 13.5, 13.5)
    pen = QPen(colour(tokens.on_status), 2.6)
    pen.setCapStyle(Qt.PenCapStyle.RoundCap)
    pen.setJoinStyle(Qt.PenJoinStyle.RoundJoin)
    painter.setPen(pen)
    painter.setBrush(Qt.BrushStyle.NoBrush)
    if state == "fits":
        painter.drawPolyline(QPolygonF([QPointF(-5.5, 0.5), QPointF(-1.8, 4.2), QPointF(5.8, -4.2)]))
    elif state == "fails":
        painter.drawLine(QPointF(-4.5, -4.5), QPointF(4.5, 4.5))
        painter.drawLine(QPointF(-4.5, 4.5), QPointF(4.5, -4.5))
    elif state == "stale":
        painter.drawLine(QPointF(-5.5, 0), QPointF(5.5, 0))
    elif state in ("partly", "narrow"):
        painter.drawLine(QPointF(0, -6), QPointF(0, 1.5))
        painter.drawPoint(QPointF(0, 6))
    else:
        painter.drawPolyline(
            QPolygonF([QPointF(-3.5, -3), QPointF(-2, -6), QPointF(2, -6), QPointF(3.6, -3), QPointF(0, 1.2)])
        )
        painter.drawPoint(QPointF(0, 6))
    painter.restore()
