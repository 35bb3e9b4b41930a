"""A sweep over two settings as a map: the first downwards, the second across."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from PySide6.QtCore import QEvent, QRectF, Qt
from PySide6.QtGui import QColor, QFocusEvent, QMouseEvent, QPainter, QPaintEvent
from PySide6.QtWidgets import QWidget

from kvplanner.record import NamedTuple
from kvplanner.report.sweep import label_of
from kvplanner.ui.compare.measure import few, labelled, short_value
from kvplanner.ui.compare.points import PointsView
from kvplanner.ui.theme.figures import shown
from kvplanner.ui.theme.ink import Type, colour, fill_pattern, pen, tokens_of
from kvplanner.ui.theme.palette import Tokens, contrast, mix

if TYPE_CHECKING:
    from kvplanner.solve.sweep import Point

_LEFT: Final = 52
_TOP: Final = 18
_BOTTOM: Final = 34
_LABEL: Final = 52
_ROOM: Final = 34  # of a cell that has its number in it
_HEIGHT: Final = 15
_PALEST: Final = 0.18
_LEVELS: Final = 48  # of shades: more cannot be told apart


class _Ink(NamedTuple):
    """How a cell is filled. level: of _LEVELS, None for a point that has no value; patterned: not surely so."""

    level: int | None
    patterned: bool


def _ink(point: Point, value: float | None, top: float) -> _Ink:
    if value is None:
        return _Ink(None, point.fits is False and not point.refused)
    return _Ink(round(_LEVELS * min(max(value / top, 0.0), 1.0)), not point.sure)


def _shade(tokens: Tokens, level: int) -> str:
    return mix(tokens.accent, tokens.panel, _PALEST + (1 - _PALEST) * level / _LEVELS)


def _box(across: Sequence[int], down: Sequence[int], row: int, start: int, end: int) -> QRectF:
    return QRectF(across[start], down[row], across[end] - across[start], down[row + 1] - down[row])


class HeatMap(PointsView):
    """A cell for each point: the darker, the more."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__("Two settings against each other", parent)
        self._inks: list[_Ink] = []

    def _points_changed(self) -> None:
        values = [None if band is None else band[0] for band in map(self._measure.band, self._points)]
        top = max((value for value in values if value is not None), default=0.0) or 1.0
        self._inks = [_ink(point, value, top) for point, value in zip(self._points, values, strict=True)]
        self.update()

    @property
    def _size(self) -> tuple[int, int]:
        """Rows and columns."""
        return (len(self._axes[0].values), len(self._axes[1].values)) if len(self._axes) == 2 else (0, 0)

    def _edges(self) -> tuple[list[int], list[int]]:
        """Where columns and rows begin and the last ones end, in whole pixels."""
        rows, columns = self._size
        wide = (self.width() - _LEFT - 4) / max(columns, 1)
        high = (self.height() - _TOP - _BOTTOM) / max(rows, 1)
        across = [round(_LEFT + column * wide) for column in range(columns + 1)]
        return across, [round(_TOP + row * high) for row in range(rows + 1)]

    def cell(self, at: int) -> QRectF:
        """Where a point is drawn."""
        row, column = divmod(at, max(self._size[1], 1))
        across, down = self._edges()
        return _box(across, down, row, column, column + 1)

    def paintEvent(self, event: QPaintEvent) -> None:
        """Cells, labels, the mark."""
        if self._request is None or len(self._axes) != 2:
            return
        painter, tokens, type_ = QPainter(self), tokens_of(self), Type(self.font())
        across, down = self._edges()
        rows, columns = self._size
        for row in range(rows):
            inks = self._inks[row * columns : (row + 1) * columns]
            start = 0
            for end in range(1, columns + 1):  # cells alike are filled as one
                if end == columns or inks[end] != inks[start]:
                    self._fill(painter, tokens, _box(across, down, row, start, end), inks[start])
                    start = end
        box = _box(across, down, 0, 0, 1)
        if box.width() >= _ROOM and box.height() >= _HEIGHT:
            self._numbers(painter, tokens, type_)
        self._labels(painter, tokens, type_)
        painter.setPen(pen(tokens.text, 2))
        painter.drawRect(self.cell(self.at).adjusted(0, 0, -1, -1))
        if self.hasFocus():
            painter.setPen(QColor(tokens.accent))
            painter.drawRect(self.rect().adjusted(0, 0, -1, -1))
        painter.end()

    def _fill(self, painter: QPainter, tokens: Tokens, box: QRectF, ink: _Ink) -> None:
        if ink.level is None:
            painter.fillRect(box, colour(tokens.panel))
            if ink.patterned:
                fill_pattern(painter, box, "cross", pen(mix(tokens.danger, tokens.panel, 0.6)))
            return
        fill = _shade(tokens, ink.level)
        painter.fillRect(box, colour(fill))
        if ink.patterned:
            fill_pattern(painter, box, "up", pen(mix(tokens.panel, fill, 0.5)))

    def _numbers(self, painter: QPainter, tokens: Tokens, type_: Type) -> None:
        painter.setFont(type_.fonts["small"])
        for at, (point, ink) in enumerate(zip(self._points, self._inks, strict=True)):
            band = self._measure.band(point)
            if band is not None and ink.level is not None:
                fill = _shade(tokens, ink.level)
                painter.setPen(colour(max((tokens.text, tokens.panel), key=lambda text: contrast(text, fill))))
                painter.drawText(self.cell(at), int(Qt.AlignmentFlag.AlignCenter), shown(few(band[0])))

    def _labels(self, painter: QPainter, tokens: Tokens, type_: Type) -> None:
        assert self._request is not None
        rows, columns = self._size
        down, across = self._axes
        painter.setFont(type_.fonts["small"])
        painter.setPen(colour(tokens.muted))
        middle, right = Qt.AlignmentFlag.AlignVCenter, Qt.AlignmentFlag.AlignRight
        high = (self.height() - _TOP - _BOTTOM) / max(rows, 1)
        for row in labelled(rows, int(rows * high // _HEIGHT)):
            box = QRectF(0, self.cell(row * columns).center().y() - 8, _LEFT - 5, 16)
            painter.drawText(box, int(middle | right), shown(short_value(down.values[row])))
        for column in labelled(columns, int((self.width() - _LEFT) // _LABEL)):
            box = self.cell((rows - 1) * columns + column)
            place = QRectF(box.center().x() - _LABEL / 2, box.bottom() + 1, _LABEL, 15)
            painter.drawText(place, int(Qt.AlignmentFlag.AlignCenter), shown(short_value(across.values[column])))
        painter.drawText(QRectF(2, 0, self.width() - 4, _TOP), int(middle), f"{label_of(down, self._request)} ↓")
        foot = QRectF(_LEFT, self.height() - 17, self.width() - _LEFT - 4, 16)
        painter.drawText(foot, int(middle | Qt.AlignmentFlag.AlignHCenter), f"{label_of(across, self._request)} →")

    # keys and mouse --------------------------------------------------------------------------------------------

    def _mark_moved(self) -> None:
        self.update()

    def _led_to(self, key: Qt.Key) -> int | None:
        """Arrows lead to the cell beside, Home and End to the ends of a row."""
        _, columns = self._size
        row, column = divmod(self.at, max(columns, 1))
        last = len(self._points) - 1
        return {
            Qt.Key.Key_Left: self.at - 1 if column else self.at,
            Qt.Key.Key_Right: self.at + 1 if column < columns - 1 else self.at,
            Qt.Key.Key_Up: self.at - columns if row else self.at,
            Qt.Key.Key_Down: self.at + columns if self.at + columns <= last else self.at,
            Qt.Key.Key_Home: row * columns, Qt.Key.Key_End: row * columns + columns - 1,
        }.get(key)  # fmt: skip

    def _at(self, event: QMouseEvent) -> int | None:
        place = event.position()
        return next((at for at in range(len(self._points)) if self.cell(at).contains(place)), None)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        """Marks what is clicked."""
        at = self._at(event)
        if at is not None:
            self.mark(at)

    def mouseDoubleClickEvent(self, event: QMouseEvent) -> None:
        """Makes it the plan."""
        at = self._at(event)
        if at is not None:
            self.chosen.emit(at)

    def focusInEvent(self, event: QFocusEvent) -> None:
        """The frame shows where the keys go."""
        super().focusInEvent(event)
        self.update()

    def focusOutEvent(self, event: QFocusEvent) -> None:
        """And no longer."""
        super().focusOutEvent(event)
        self.update()

    def changeEvent(self, event: QEvent) -> None:
        """Another theme or font."""
        super().changeEvent(event)
        self.update()
