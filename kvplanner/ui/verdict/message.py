"""The engine's own words under the verdict, as a terminal would show them; loaded when an engine first has any."""

from __future__ import annotations

from typing import Final

from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QPainter, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QWidget

from kvplanner.ui.theme.figures import verbatim
from kvplanner.ui.theme.ink import colour, fixed, tokens_of
from kvplanner.ui.widgets.labels import Wrapped

MARGIN: Final = 7
LINE: Final = 3
SMALLER: Final = 0.92


class EngineMessage(Wrapped):
    """A text on a ground of its own with a line at its left; where room is short one line of it, the rest as a hint."""

    as_shown = staticmethod(verbatim)  # what the engine prints is looked for elsewhere as it is
    _words = ""
    _short = False

    def show_words(self, text: str, *, short: bool) -> None:
        """Show a text, or its first line's worth."""
        parent = self.parentWidget()
        if parent is not None:
            self.setFont(fixed(parent.font(), SMALLER))
        if short != self._short:
            self._heights.clear()
        self._words, self._short = text, short
        self._flow()

    def height_of(self, width: int) -> int:
        """One line, or as many as the text takes."""
        return self.fontMetrics().height() + 2 * MARGIN if self._short else super().height_of(width)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """As much as one line has room for."""
        super().resizeEvent(event)
        self._flow()

    def _flow(self) -> None:
        text = self._words
        if self._short:
            room = self.width() - 2 * MARGIN - LINE - 2
            text = self.fontMetrics().elidedText(" ".join(text.split()), Qt.TextElideMode.ElideRight, max(room, 60))
        if text != self.text():
            self.setText(text)
        self.setToolTip(self._words if text != self._words else "")

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setMargin(MARGIN)
        self.setIndent(LINE)

    def paintEvent(self, event: QPaintEvent) -> None:
        """The ground is drawn rather than styled: a style sheet of its own would undo the font."""
        tokens, whole = tokens_of(self), QRectF(self.rect())
        painter = QPainter(self)
        painter.setPen(Qt.PenStyle.NoPen)
        for ink, width in ((tokens.danger_soft, whole.width()), (tokens.danger, float(LINE))):
            painter.setBrush(colour(ink))
            painter.drawRect(QRectF(0, 0, width, whole.height()))
        painter.end()
        super().paintEvent(event)
