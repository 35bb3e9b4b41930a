"""Where the keyboard is: texts, tables and plots have no look of their own for it."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QObject, QRectF, Qt
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QWidget

from kvplanner.ui.theme.ink import rounded, tokens_of


class FocusFrame(QWidget):
    """A line around an area while the keyboard is there; it lies over it and takes no clicks."""

    def __init__(self, area: QWidget) -> None:
        super().__init__(area)
        self._area = area
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self.hide()
        area.installEventFilter(self)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Follows the area's size and focus. An area that is deleted loses its focus first, and is asked nothing."""
        if event.type() == QEvent.Type.FocusOut:
            self.hide()
        elif event.type() == QEvent.Type.FocusIn or (event.type() == QEvent.Type.Resize and self.isVisible()):
            self.setGeometry(self._area.rect())
            self.show()
            self.raise_()
        return False

    def paintEvent(self, event: QPaintEvent) -> None:
        """The line."""
        rounded(QPainter(self), QRectF(self.rect()), "", tokens_of(self).accent, 4)
