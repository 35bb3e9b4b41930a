"""A bar in parts, one for each GPU, with a grip between two of them: what is moved there goes from one to the other."""

from __future__ import annotations

from itertools import accumulate
from typing import Final

from PySide6.QtCore import QRectF, QSize, Qt, Signal
from PySide6.QtGui import QColor, QMouseEvent, QPainter, QPaintEvent, QPen, QResizeEvent, QWheelEvent
from PySide6.QtWidgets import QSizePolicy, QSlider, QWidget

from kvplanner.ui.setup.inputs import takes_wheel
from kvplanner.ui.theme.ink import tokens_of

HEIGHT: Final = 24
GRIP: Final = 11  # pixels that the mouse may take hold of
_ROOM: Final = 6  # pixels beside a number


class Grip(QSlider):
    """Where one part ends and the next begins; its value counts from the start of the bar. pulled(value)."""

    pulled = Signal(int)
    released = Signal()

    def __init__(self, parent: QWidget) -> None:
        super().__init__(Qt.Orientation.Horizontal, parent)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setCursor(Qt.CursorShape.SplitHCursor)
        self.setSingleStep(1)
        self._quiet = False
        self.valueChanged.connect(self._moved)

    def show_value(self, low: int, value: int, high: int) -> None:
        """Stand there, and go no further than the parts beside allow."""
        self._quiet = True
        self.setRange(low, high)
        self.setValue(value)
        self._quiet = False

    def _moved(self, value: int) -> None:
        if not self._quiet:
            self.pulled.emit(value)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        """Take hold."""
        if event.button() == Qt.MouseButton.LeftButton:
            self.setSliderDown(True)
        else:
            event.ignore()

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        """Follow."""
        bar = self.parentWidget()
        if self.isSliderDown() and isinstance(bar, SplitBar):
            self.setValue(bar.value_at(self.mapToParent(event.position().toPoint()).x()))

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        """Let go."""
        if self.isSliderDown():
            self.setSliderDown(False)
            self.released.emit()
        event.accept()

    def wheelEvent(self, event: QWheelEvent) -> None:
        """Only with the focus."""
        if takes_wheel(self, event):
            super().wheelEvent(event)

    def paintEvent(self, event: QPaintEvent) -> None:
        """A line with a knob, in the colour of what can be moved."""
        tokens = tokens_of(self)
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        middle = self.width() / 2
        painter.setPen(QPen(QColor(tokens.accent), 3.0 if self.hasFocus() else 2.0))
        painter.setBrush(QColor(tokens.panel))
        painter.drawRoundedRect(QRectF(middle - 3, 3, 6, self.height() - 6), 3, 3)


class SplitBar(QWidget):
    """chosen(parts) while a grip is moved; settled() when it is let go."""

    chosen = Signal(object)
    settled = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.parts: tuple[int, ...] = ()
        self.grips: list[Grip] = []
        self.setFixedHeight(HEIGHT)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)

    def sizeHint(self) -> QSize:
        """As wide as there is room."""
        return QSize(160, HEIGHT)

    @property
    def whole(self) -> int:
        """What the parts make together."""
        return sum(self.parts)

    def set_parts(self, parts: tuple[int, ...]) -> None:
        """Show these parts; nothing is emitted."""
        if parts == self.parts:
            return
        self.parts = parts
        while len(self.grips) > max(len(parts) - 1, 0):
            gone = self.grips.pop()
            gone.hide()
            gone.blockSignals(True)  # a key may reach it before it is deleted
            gone.deleteLater()
        while len(self.grips) < len(parts) - 1:
            self._add_grip()
        self._arrange()
        self.update()

    def _add_grip(self) -> None:
        grip, index = Grip(self), len(self.grips)
        grip.setAccessibleName(f"Share of GPU {index} and GPU {index + 1}")
        grip.pulled.connect(lambda value: self._pull(index, value))
        grip.released.connect(self.settled)
        grip.show()
        self.grips.append(grip)

    def _pull(self, index: int, value: int) -> None:
        start = sum(self.parts[:index])
        both = self.parts[index] + self.parts[index + 1]
        own = min(max(value - start, 0), both)
        self.set_parts((*self.parts[:index], own, both - own, *self.parts[index + 2 :]))
        self.chosen.emit(self.parts)

    @property
    def dragged(self) -> bool:
        """Whether a grip is being dragged."""
        return any(grip.isSliderDown() for grip in self.grips)

    def _x(self, value: int) -> float:
        return GRIP / 2 + (self.width() - GRIP) * value / max(self.whole, 1)

    def value_at(self, x: float) -> int:
        """The nearest whole value at a place."""
        return round((x - GRIP / 2) / max(self.width() - GRIP, 1) * self.whole)

    def _arrange(self) -> None:
        ends = (0, *accumulate(self.parts))
        for index, grip in enumerate(self.grips):
            grip.show_value(ends[index], ends[index + 1], ends[index + 2])
            grip.setAccessibleDescription(", ".join(f"GPU {gpu}: {part}" for gpu, part in enumerate(self.parts)))
            grip.setGeometry(round(self._x(ends[index + 1]) - GRIP / 2), 0, GRIP, self.height())

    def resizeEvent(self, event: QResizeEvent) -> None:
        """The grips keep their values."""
        super().resizeEvent(event)
        self._arrange()

    def paintEvent(self, event: QPaintEvent) -> None:
        """The parts with their numbers, one shade apart."""
        tokens = tokens_of(self)
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        metrics = self.fontMetrics()
        end = 0
        for gpu, part in enumerate(self.parts):
            start, end = end, end + part
            area = QRectF(self._x(start), 3, self._x(end) - self._x(start), self.height() - 6)
            painter.setPen(QColor(tokens.border))
            painter.setBrush(QColor(tokens.raised if gpu % 2 else tokens.field))
            painter.drawRect(area)
            texts = (f"GPU {gpu} · {part}", str(part))
            room = area.width() - 2 * _ROOM
            text = next((text for text in texts if metrics.horizontalAdvance(text) <= room), "")
            painter.setPen(QColor(tokens.text))
            painter.drawText(area, Qt.AlignmentFlag.AlignCenter, text)
