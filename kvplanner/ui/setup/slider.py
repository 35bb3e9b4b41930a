"""A slider over a linear or logarithmic range, with marks; its value is a number, not a position."""

from __future__ import annotations

from math import exp2, floor, log2
from typing import Final

from PySide6.QtCore import QPointF, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QColor, QKeyEvent, QMouseEvent, QPainter, QPaintEvent, QPen, QWheelEvent
from PySide6.QtWidgets import QSizePolicy, QSlider, QWidget

from kvplanner.record import NamedTuple
from kvplanner.ui.setup.inputs import takes_wheel
from kvplanner.ui.theme.ink import tokens_of

STEPS: Final = 1000
KNOB: Final = 6.5
SNAP: Final = 6


# Keys that move a slider, with the steps that they take: one, or a page.
_STEPS: Final = {
    Qt.Key.Key_Right: 1, Qt.Key.Key_Up: 1, Qt.Key.Key_Left: -1, Qt.Key.Key_Down: -1, Qt.Key.Key_PageUp: 2,
    Qt.Key.Key_PageDown: -2,
}  # fmt: skip


class Scale(NamedTuple):
    """The range of a slider. step: the grid of a linear one; a logarithmic one has 32 values per doubling."""

    low: float
    high: float
    logarithmic: bool = False
    step: float = 1.0

    @property
    def values(self) -> int:
        """How many steps there are from one end to the other."""
        return STEPS if self.logarithmic else round((self.high - self.low) / self.step)

    def position(self, value: float) -> int:
        """Where a value lies, 0 to STEPS."""
        value = min(max(value, self.low), self.high)
        if self.high <= self.low:
            return 0
        if self.logarithmic:
            share = log2(value / self.low) / log2(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return round(share * STEPS)

    def value(self, position: int) -> float:
        """The round value at a position."""
        share = position / STEPS
        if position >= STEPS:
            return self.high
        if not self.logarithmic:
            return min(round((self.low + share * (self.high - self.low)) / self.step) * self.step, self.high)
        raw = self.low * exp2(share * log2(self.high / self.low))
        grid = max(1, int(exp2(floor(log2(raw)) - 5)))
        return float(min(max(round(raw / grid) * grid, self.low), self.high))


class Works(NamedTuple):
    """The part of a slider's range that works: maybe from low to high, surely from sure_low to sure_high, if at all."""

    low: float
    high: float
    sure_low: float | None = None
    sure_high: float | None = None


class MarkedSlider(QSlider):
    """chosen(value) while the user moves it; settled() when a drag ends."""

    chosen = Signal(object)
    settled = Signal()

    def __init__(self, scale: Scale, parent: QWidget | None = None) -> None:
        super().__init__(Qt.Orientation.Horizontal, parent)
        self.scale = scale
        self._marks: tuple[float, ...] = ()
        self._works: Works | None = None
        self._quiet = False
        self.setRange(0, STEPS)
        self.setSingleStep(STEPS // 100)
        self.setPageStep(STEPS // 10)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setFixedHeight(26)
        self.valueChanged.connect(self._moved)
        self.sliderReleased.connect(self.settled)

    def sizeHint(self) -> QSize:
        """As wide as there is room."""
        return QSize(110, 26)

    def set_scale(self, scale: Scale) -> None:
        """Another range; the value stays what it was."""
        if scale != self.scale:
            self.scale = scale
            self.update()

    def set_marks(self, *marks: float) -> None:
        """Values to mark and to snap to."""
        if marks != self._marks:
            self._marks = marks
            self.update()

    @property
    def works(self) -> Works | None:
        """The part of the range that works, None where that is not known."""
        return self._works

    def set_works(self, works: Works | None) -> None:
        """Draw the part of the range that works, and beside it where it does not."""
        if works != self._works:
            self._works = works
            self.update()

    def show_value(self, value: float) -> None:
        """Move the knob without telling anyone, unless the user is dragging it."""
        if self.isSliderDown():
            return
        self._quiet = True
        self.setValue(self.scale.position(value))
        self._quiet = False

    def _moved(self, position: int) -> None:
        if self._quiet:
            return
        for mark in self._marks:
            if self.isSliderDown() and abs(self.scale.position(mark) - position) <= SNAP:
                self.chosen.emit(mark)
                return
        self.chosen.emit(self.scale.value(position))

    def x_of(self, value: float) -> float:
        """Where a value lies, in pixels from the left."""
        return self._x(self.scale.position(value))

    def _x(self, position: int) -> float:
        return KNOB + 1 + (self.width() - 2 * KNOB - 2) * position / STEPS

    def _position_at(self, x: float) -> int:
        return round(min(max((x - KNOB - 1) / max(1.0, self.width() - 2 * KNOB - 2), 0.0), 1.0) * STEPS)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """A key moves to the next value of a coarse scale, a page by a tenth; the plan need not have come yet."""
        steps = _STEPS.get(Qt.Key(event.key()))
        if steps is None or self.scale.values > STEPS // 4 or event.modifiers() & Qt.KeyboardModifier.ControlModifier:
            super().keyPressEvent(event)
            return
        page = max(self.scale.values // 10, 1) if abs(steps) > 1 else 1
        here = self.scale.value(self.value())
        self.setValue(self.scale.position(here + (1 if steps > 0 else -1) * page * self.scale.step))

    def mousePressEvent(self, event: QMouseEvent) -> None:
        """The knob jumps under the mouse and follows it."""
        if event.button() != Qt.MouseButton.LeftButton:
            event.ignore()
            return
        self.setSliderDown(True)
        self.setValue(self._position_at(event.position().x()))

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        """Follow."""
        if self.isSliderDown():
            self.setValue(self._position_at(event.position().x()))

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        """Let go."""
        self.setSliderDown(False)

    def wheelEvent(self, event: QWheelEvent) -> None:
        """Only with the focus."""
        if takes_wheel(self, event):
            super().wheelEvent(event)

    def paintEvent(self, event: QPaintEvent) -> None:
        """Groove, the part below the value, marks, knob."""
        tokens = tokens_of(self)
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        middle, knob = self.height() / 2, self._x(self.value())
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(QColor(tokens.border))
        painter.drawRoundedRect(QRectF(1, middle - 1.5, self.width() - 2, 3), 1.5, 1.5)
        painter.setBrush(QColor(tokens.accent if self.isEnabled() else tokens.outline))
        painter.drawRoundedRect(QRectF(1, middle - 1.5, knob - 1, 3), 1.5, 1.5)
        if self._works is not None:
            self._paint_works(painter, self._works)
        painter.setPen(QPen(QColor(tokens.text), 1.2))
        for mark in self._marks:
            if self.scale.low <= mark <= self.scale.high:
                x = round(self._x(self.scale.position(mark))) + 0.5
                painter.drawLine(QPointF(x, middle - 8), QPointF(x, middle + 8))
        active = tokens.accent if self.isEnabled() else tokens.outline
        painter.setPen(QPen(QColor(active), 3.0 if self.hasFocus() else 2.0))
        painter.setBrush(QColor(tokens.panel))
        painter.drawEllipse(QPointF(knob, middle), KNOB - 1, KNOB - 1)

    def _paint_works(self, painter: QPainter, works: Works) -> None:
        """A line under the groove: full where it surely works, dashed where it may, with a stop at either end."""
        tokens = tokens_of(self)
        y = self.height() / 2 + 7.5
        left, right = self.x_of(works.low), self.x_of(works.high)
        pen = QPen(QColor(tokens.success), 1.6)
        pen.setCapStyle(Qt.PenCapStyle.FlatCap)
        painter.setPen(pen)
        for x in (left, right):
            painter.drawLine(QPointF(x, y - 3), QPointF(x, y + 3))
        pen.setDashPattern([1.5, 1.5])
        painter.setPen(pen)
        painter.drawLine(QPointF(left, y), QPointF(right, y))
        if works.sure_low is not None and works.sure_high is not None:
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(QColor(tokens.success))
            sure = self.x_of(works.sure_low), self.x_of(works.sure_high)
            painter.drawRect(QRectF(sure[0], y - 1.5, max(sure[1] - sure[0], 1.0), 3))
