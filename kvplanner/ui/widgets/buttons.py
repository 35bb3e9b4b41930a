"""Buttons that give up letters rather than room."""

from __future__ import annotations

from typing import Final

from PySide6.QtCore import QSize, Qt
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QPushButton, QWidget

from kvplanner.ui.theme.figures import shown

_MARGINS: Final = 24
_LEAST: Final = 90


class ShortButton(QPushButton):
    """A button whose text gives way to a shorter one, then ends in an ellipsis, where it has no room.

    A screen reader hears the whole of it.
    """

    def __init__(self, text: str, parent: QWidget | None = None, *, short: str = "") -> None:
        text = shown(text)
        super().__init__(text, parent)
        self.full, self.short = text, shown(short) or text
        self._hint = super().sizeHint()
        self.setAccessibleName(text)

    def sizeHint(self) -> QSize:
        """Room for the whole text."""
        return self._hint

    def minimumSizeHint(self) -> QSize:
        """Some of it."""
        return QSize(min(_LEAST, self._hint.width()), self._hint.height())

    def resizeEvent(self, event: QResizeEvent) -> None:
        """More or less of it."""
        super().resizeEvent(event)
        whole = self.width() >= self._hint.width()
        room = 1 << 20 if whole else self.width() - _MARGINS
        text = self.fontMetrics().elidedText(self.full if whole else self.short, Qt.TextElideMode.ElideRight, room)
        if text != self.text():
            self.setText(text)
