"""The panel's bars: for each GPU what is planned and, under it, what is measured, on one axis."""

from __future__ import annotations

from typing import Final

from PySide6.QtCore import QEvent, QLineF, QPointF, QRect, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QBrush, QFocusEvent, QHelpEvent, QKeyEvent, QMouseEvent, QPainter, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QSizePolicy, QToolTip, QWidget

from kvplanner.observe.overlay import Part
from kvplanner.record import NamedTuple
from kvplanner.ui.bars.access import Accessible
from kvplanner.ui.gpu_panel.rows import BarRow, axis_end
from kvplanner.ui.theme.figures import shown, shown_figures
from kvplanner.ui.theme.geometry import fitted, tick_step, tick_text, ticks
from kvplanner.ui.theme.ink import Type, colour, fill_segment, pen, tokens_of
from kvplanner.ui.theme.palette import Tokens, mix
from kvplanner.units import ByteUnit, in_unit

_CAPTION_GAP: Final = 10
_USUAL_LINE: Final = 15
_GAP: Final = 9
_AXIS: Final = 22
_LABEL_MIN, _LABEL_MAX = 84, 240
_FADE: Final = 0.45
_VERTICAL: Final = Qt.AlignmentFlag.AlignVCenter
_RIGHT: Final = _VERTICAL | Qt.AlignmentFlag.AlignRight
_LEFT: Final = _VERTICAL | Qt.AlignmentFlag.AlignLeft


class _Heights(NamedTuple):
    """Pixels of a measured bar, of the plan's above it, and of a line of text."""

    bar: int
    plan: int
    line: int


def _heights(line: int) -> _Heights:
    """For letters of this height."""
    growth = max(line / _USUAL_LINE, 1.0)
    return _Heights(round(18 * growth), round(11 * growth), round(17 * growth))


class _Place(NamedTuple):
    """Where a row's parts are drawn."""

    row: BarRow
    top: int
    plan_top: int
    bar_top: int
    text_top: int
    bottom: int


class MeasuredBars(Accessible):
    """selected(uuid): the user chose a GPU with the mouse or the arrow keys."""

    selected = Signal(str)
    access_title = "Measured memory per GPU"

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._rows: tuple[BarRow, ...] = ()
        self._unit: ByteUnit = "GiB"
        self._fill: float | None = None
        self._current = -1
        self._type = Type(self.font())
        self._high = _heights(self.fontMetrics().height())
        self._places: tuple[_Place, ...] = ()
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)

    def set_rows(self, rows: tuple[BarRow, ...], unit: ByteUnit, fill: float | None) -> None:
        """What is shown; fill: how full the engine's KV cache is (0 to 1), None when not known."""
        if (rows, unit, fill) == (self._rows, self._unit, self._fill):
            return
        resized = len(rows) != len(self._rows) or [bool(r.planned) for r in rows] != [
            bool(r.planned) for r in self._rows
        ]
        self._rows, self._unit, self._fill = rows, unit, fill
        self._current = min(self._current, len(rows) - 1)
        self._place()
        if resized:
            self.setMinimumHeight(self.sizeHint().height())
            self.updateGeometry()
        self.parts_changed()
        self.update()

    def rows(self) -> tuple[BarRow, ...]:
        """What is shown."""
        return self._rows

    def current(self) -> str:
        """UUID of the chosen GPU, "" when none is."""
        return self._rows[self._current].uuid if 0 <= self._current < len(self._rows) else ""

    def sizeHint(self) -> QSize:
        """All rows and the axis."""
        return QSize(460, (self._places[-1].bottom if self._places else 0) + _AXIS)

    # -- layout ---------------------------------------------------------------------------------------------------

    def _place(self) -> None:
        top = 2
        found = []
        for row in self._rows:
            plan_top = top
            bar_top = plan_top + (self._high.plan + 2 if row.planned else 0)
            text_top = bar_top + self._high.bar + 1
            bottom = text_top + self._high.line + _GAP
            found.append(_Place(row, top, plan_top, bar_top, text_top, bottom))
            top = bottom
        self._places = tuple(found)

    def _label_width(self) -> float:
        width = self._type.width
        widths = [
            max(width(r.title, "title") + 8 + width(r.tail, "small"), width(r.detail, "small")) for r in self._rows
        ]
        return min(max([_LABEL_MIN, *widths]) + 14, _LABEL_MAX, max(self.width() * 0.3, _LABEL_MIN))

    def _caption_width(self) -> float:
        """Room for what the two bars of a device are."""
        return max(self._type.width(caption, "small") for caption in ("measured", "planned")) + _CAPTION_GAP

    def _scale(self) -> tuple[float, float]:
        """(x of zero, pixels per byte)."""
        left = self._label_width() + self._caption_width()
        return left, max(self.width() - left - 2.0, 40.0) / axis_end(self._rows)

    # -- painting -------------------------------------------------------------------------------------------------

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draws every row and the axis."""
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing, False)
        tokens = tokens_of(self)
        left, scale = self._scale()
        if self._rows:
            self._paint_axis(painter, tokens, left, scale)
        for i, place in enumerate(self._places):
            self._paint_row(painter, tokens, place, left, scale, i == self._current and self.hasFocus())
        painter.end()

    def _paint_axis(self, painter: QPainter, tokens: Tokens, left: float, scale: float) -> None:
        end = axis_end(self._rows)
        value = in_unit(end, self._unit)
        width = end * scale
        bottom = self._places[-1].bottom - _GAP + 4
        step = tick_step(value, width, 76)
        painter.setFont(self._type.fonts["small"])
        painter.setPen(pen(tokens.border))
        painter.drawLine(QLineF(left, bottom + 0.5, left + width, bottom + 0.5))
        last = f"{value:,.2f} {self._unit}"
        room = width - self._type.width(last, "small") - 10
        for tick in ticks(value, width, 76):
            x = round(left + width * tick / value)
            painter.setPen(pen(tokens.border))
            painter.drawLine(QLineF(x + 0.5, bottom, x + 0.5, bottom + 4))
            text = tick_text(tick, step)
            half = self._type.width(text, "small") / 2
            if x - left + half < room:
                painter.setPen(colour(tokens.muted))
                painter.drawText(QPointF(max(x - half, left), bottom + 17), shown(text))
        painter.setPen(colour(tokens.muted))
        painter.drawText(QPointF(left + width - self._type.width(last, "small"), bottom + 17), shown(last))

    def _paint_row(
        self, painter: QPainter, tokens: Tokens, place: _Place, left: float, scale: float, focused: bool
    ) -> None:
        row = place.row
        if row.faded:
            painter.setOpacity(_FADE)
        self._paint_label(painter, tokens, place, left)
        if row.planned:
            self._paint_plan(painter, tokens, place, left, scale)
        self._paint_bar(painter, tokens, place, left, scale)
        painter.setOpacity(1.0)
        painter.setFont(self._type.fonts["small"])
        painter.setPen(colour(tokens.danger if row.warn else tokens.muted))
        room = self.width() - left
        text = fitted(row.numbers, room, self._type.width)
        painter.drawText(QRectF(left, place.text_top, room, self._high.line), _LEFT, shown_figures(text))
        if focused:
            painter.setPen(pen(tokens.accent, 1.6))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawRoundedRect(QRectF(0.5, place.top - 1.5, self.width() - 1, place.bottom - place.top - 4), 4, 4)

    def _paint_label(self, painter: QPainter, tokens: Tokens, place: _Place, left: float) -> None:
        row = place.row
        captions_at = left - self._caption_width()
        width = captions_at - 8
        painter.setFont(self._type.fonts["small"])
        painter.setPen(colour(tokens.muted))
        captions = [("measured", place.bar_top, self._high.bar)]
        if row.planned:
            captions.append(("planned", place.plan_top - 1, self._high.plan + 2))
        for text, y, height in captions:
            painter.drawText(QRectF(captions_at, y, left - captions_at - 8, height), _RIGHT, text)
        painter.setFont(self._type.fonts["title"])
        painter.setPen(colour(tokens.text))
        top = place.plan_top - 1
        title = fitted(row.title, width, self._type.width, "title")
        painter.drawText(QRectF(4, top, width, self._high.line + 1), _LEFT, title)
        painter.setFont(self._type.fonts["small"])
        painter.setPen(colour(tokens.muted))
        after = self._type.width(title, "title") + 8
        painter.drawText(QRectF(4 + after, top, max(width - after, 0), self._high.line + 1), _LEFT, shown(row.tail))
        painter.drawText(
            QRectF(4, top + self._high.line + 1, width, self._high.line),
            _LEFT,
            shown(fitted(row.detail, width, self._type.width)),
        )

    def _paint_plan(self, painter: QPainter, tokens: Tokens, place: _Place, left: float, scale: float) -> None:
        start = 0
        for segment in place.row.planned:
            box = _box(left, scale, start, segment.bytes, place.plan_top, self._high.plan)
            fill_segment(painter, box, tokens.segments[segment.kind])
            if segment.kind == "kv_cache" and self._fill is not None:
                full = QRectF(box.left(), box.top(), round(box.width() * self._fill), box.height())
                painter.fillRect(full, colour(mix(tokens.text, tokens.segments["kv_cache"].fill, 0.55)))
            if segment.kind == "headroom":
                painter.setPen(pen(tokens.border))
                painter.drawRect(box.adjusted(0.5, 0.5, -0.5, -0.5))
            start += segment.bytes
        painter.setPen(pen(tokens.panel))
        start = 0
        for segment in place.row.planned[:-1]:
            start += segment.bytes
            x = round(left + start * scale) + 0.5
            painter.drawLine(QLineF(x, place.plan_top, x, place.plan_top + self._high.plan))

    def _paint_bar(self, painter: QPainter, tokens: Tokens, place: _Place, left: float, scale: float) -> None:
        row = place.row
        if row.total is None:
            box = QRectF(left, place.bar_top, self.width() - left - 2, self._high.bar)
            painter.fillRect(box, QBrush(colour(tokens.border), Qt.BrushStyle.BDiagPattern))
            painter.setPen(pen(tokens.border))
            painter.drawRect(box.adjusted(0.5, 0.5, -0.5, -0.5))
            return
        start = 0
        frame = _box(left, scale, 0, row.total, place.bar_top, self._high.bar)
        painter.fillRect(frame, colour(tokens.panel))
        for part in row.parts:
            box = _box(left, scale, start, part.bytes, place.bar_top, self._high.bar)
            self._paint_part(painter, tokens, part, box)
            start += part.bytes
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.setPen(pen(tokens.outline))
        painter.drawRect(frame.adjusted(0.5, 0.5, -0.5, -0.5))
        if row.budget is not None:
            self._paint_budget(painter, tokens, place, left + row.budget[1] * scale)

    def _paint_budget(self, painter: QPainter, tokens: Tokens, place: _Place, x: float) -> None:
        x = min(round(x) + 0.5, self.width() - 1.5)
        painter.setPen(pen(tokens.text, 2.0))
        painter.drawLine(QLineF(x, place.plan_top - 1, x, place.bar_top + self._high.bar + 1))

    def _paint_part(self, painter: QPainter, tokens: Tokens, part: Part, box: QRectF) -> None:
        if part.kind == "engine":
            painter.fillRect(box, colour(tokens.panel))
            painter.fillRect(box, QBrush(colour(tokens.text), Qt.BrushStyle.FDiagPattern))
            painter.setPen(pen(tokens.text))
            painter.drawRect(box.adjusted(0.5, 0.5, -0.5, -0.5))
            self._paint_name(painter, tokens, part, box)
            return
        ink = tokens.segments["driver_reserved" if part.kind == "driver" else "other"]
        fill_segment(painter, box, ink)
        painter.setPen(pen(tokens.panel))
        painter.drawLine(QLineF(box.right() - 0.5, box.top(), box.right() - 0.5, box.bottom()))

    def _paint_name(self, painter: QPainter, tokens: Tokens, part: Part, box: QRectF) -> None:
        text = f"{part.name} {in_unit(part.bytes, self._unit):.2f}"
        width = self._type.width(text, "small_bold") + 10
        if width + 12 > box.width():
            return
        plate = QRectF(box.left() + 6, box.top() + 2, width, box.height() - 4)
        painter.fillRect(plate, colour(tokens.panel))
        painter.setFont(self._type.fonts["small_bold"])
        painter.setPen(colour(tokens.text))
        painter.drawText(plate, Qt.AlignmentFlag.AlignCenter, shown_figures(text))

    # -- mouse and keyboard ---------------------------------------------------------------------------------------

    def _row_at(self, y: float) -> int:
        return next((i for i, p in enumerate(self._places) if p.top <= y < p.bottom), -1)

    def _choose(self, index: int) -> None:
        if 0 <= index < len(self._rows):
            self._current = index
            self.tell_focus()
            self.selected.emit(self._rows[index].uuid)
            self.update()

    def mousePressEvent(self, event: QMouseEvent) -> None:
        """Chooses the GPU under the mouse."""
        self._choose(self._row_at(event.position().y()))

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Up and down walk the GPUs."""
        steps = {Qt.Key.Key_Down.value: 1, Qt.Key.Key_Up.value: -1}
        step = steps.get(event.key())
        if step is None:
            super().keyPressEvent(event)
        else:
            self._choose(min(max(self._current + step, 0), len(self._rows) - 1))

    def focusInEvent(self, event: QFocusEvent) -> None:
        """The first GPU is chosen when none is."""
        if self._current < 0 and self._rows:
            self._choose(0)
        self.update()

    def focusOutEvent(self, event: QFocusEvent) -> None:
        """The frame goes."""
        self.update()

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Everything is drawn from the width."""
        self.update()

    def changeEvent(self, event: QEvent) -> None:
        """Another font or theme."""
        if event.type() in (QEvent.Type.FontChange, QEvent.Type.ApplicationFontChange):
            self._type = Type(self.font())
        self._high = _heights(self.fontMetrics().height())
        self.update()

    def event(self, event: QEvent) -> bool:
        """Shows every figure of the GPU under the mouse."""
        if isinstance(event, QHelpEvent) and event.type() == QEvent.Type.ToolTip:
            index = self._row_at(event.pos().y())
            QToolTip.showText(event.globalPos(), shown(self._rows[index].tip) if index >= 0 else "", self)
            return True
        return super().event(event)

    # -- for assistive technology ---------------------------------------------------------------------------------

    def access_count(self) -> int:
        """GPUs."""
        return len(self._rows)

    def access_name(self, index: int) -> str:
        """A GPU's line."""
        return self._rows[index].spoken

    def access_text(self, index: int) -> str:
        """All its figures."""
        return self._rows[index].tip

    def access_rect(self, index: int) -> QRect:
        """Where it is drawn."""
        place = self._places[index]
        return QRect(0, place.top, self.width(), place.bottom - place.top)

    def access_current(self) -> int:
        """The chosen GPU."""
        return self._current


def _box(left: float, scale: float, start: int, size: int, top: int, height: int) -> QRectF:
    """A part of a bar on whole pixels, at least one wide so that nothing disappears."""
    x0, x1 = round(left + start * scale), round(left + (start + size) * scale)
    return QRectF(x0, top, max(x1 - x0, 1), height)
