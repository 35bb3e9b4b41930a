"""What the pictures of a sweep have in common: its points, of which one is marked, by keys or the mouse."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QWidget

from kvplanner.report.sweep import point_words
from kvplanner.ui.compare.measure import MEASURES, Measure
from kvplanner.ui.theme.figures import shown

if TYPE_CHECKING:
    from kvplanner.engine.request import PlanRequest
    from kvplanner.solve.axis import Axis
    from kvplanner.solve.sweep import Point

_LEAST_HEIGHT: Final = 170


class PointsView(QWidget):
    """A picture of a sweep's points. marked(position): a point by keys or the mouse; chosen(position): to be the plan.

    name: what a screen reader says; it says the marked point too.
    """

    marked = Signal(int)
    chosen = Signal(int)

    def __init__(self, name: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._request: PlanRequest | None = None
        self._axes: tuple[Axis, ...] = ()
        self._points: tuple[Point, ...] = ()
        self._measure: Measure = MEASURES[0]
        self.at = 0
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setMinimumHeight(_LEAST_HEIGHT)
        self.setAccessibleName(name)

    def set_points(
        self, request: PlanRequest, axes: Sequence[Axis], points: Sequence[Point], measure: Measure = MEASURES[0]
    ) -> None:
        """Other points, rows of the first axis one after the other; the mark stays, unless they are of other axes."""
        if tuple(axes) != self._axes:
            self.at = 0
        self._request, self._axes, self._points, self._measure = request, tuple(axes), tuple(points), measure
        self._points_changed()
        self.mark(self.at)

    def mark(self, at: int) -> None:
        """Put the mark on a point."""
        if not self._points or self._request is None:
            return
        self.at = min(max(at, 0), len(self._points) - 1)
        self._mark_moved()
        self.setAccessibleDescription(shown(point_words(self._axes, self._points[self.at], self._request)))
        self.marked.emit(self.at)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Keys move the mark, Enter makes its point the plan."""
        key = Qt.Key(event.key())
        to = self._led_to(key)
        if to is not None:
            self.mark(to)
        elif key in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            self.chosen.emit(self.at)
        else:
            super().keyPressEvent(event)

    def _points_changed(self) -> None:
        """Draws other points."""
        raise NotImplementedError

    def _mark_moved(self) -> None:
        """Draws the mark at another point."""
        raise NotImplementedError

    def _led_to(self, key: Qt.Key) -> int | None:
        """Where a key leads the mark, None for a key that does not move it."""
        raise NotImplementedError
