"""The plans' memory as bars on one axis: of each the GPU that decides."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import TYPE_CHECKING, Final

from PySide6.QtCore import QEvent, QLineF, QRectF, QSize, Qt
from PySide6.QtGui import QHelpEvent, QPainter, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QToolTip, QWidget

from kvplanner.engine.plan import Plan
from kvplanner.report.bar import Cells, bar_cells
from kvplanner.report.segments import name_of
from kvplanner.ui.compare.model import heading
from kvplanner.ui.theme.figures import shown
from kvplanner.ui.theme.ink import Type, colour, fill_pattern, fill_segment, pen, tokens_of
from kvplanner.ui.theme.palette import Tokens
from kvplanner.units import format_bytes

if TYPE_CHECKING:
    from kvplanner.report.words import Unit
    from kvplanner.solve.compare import Side

_GAP: Final = 8
_LEAST_BAR: Final = 16


class ComparedBars(QWidget):
    """One bar for each plan; a line where its memory ends."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._in_turn = False
        self._sides: tuple[Side, ...] = ()
        self._unit: Unit = "GiB"
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setAccessibleName("Memory of each plan's deciding GPU")

    def set_sides(self, sides: Sequence[Side], unit: Unit, *, in_turn: bool = False) -> None:
        """The plans to draw; in_turn: one after the other and by their names, as servers start."""
        self._sides, self._unit, self._in_turn = tuple(sides), unit, in_turn
        self.setVisible(len(self._sides) > 1)
        self.setAccessibleDescription(shown("; ".join(self._in_words(at) for at in range(len(self._sides)))))
        self.updateGeometry()
        self.update()

    def _measures(self) -> tuple[int, int, int, int]:
        """Of the present letters: a bar's height, a row's, the room for the names, and that for the sizes."""
        type_ = Type(self.font())
        bar = max(_LEAST_BAR, ceil(type_.height("Now", "small", 200)))
        plans = [side.plan for side in self._sides if side.plan is not None and side.plan.devices]
        sizes = [format_bytes(plan.devices[plan.tightest].total_bytes, self._unit) for plan in plans]
        wide = max((type_.width(size, "small") for size in sizes), default=0)
        return bar, bar + _GAP, round(type_.width("Now", "small_bold")) + 2 * _GAP, round(wide) + 2 * _GAP

    def sizeHint(self) -> QSize:
        """A row for each."""
        return QSize(200, self._measures()[1] * len(self._sides) + 4)

    def minimumSizeHint(self) -> QSize:
        """The same height."""
        return QSize(120, self.sizeHint().height())

    def _span(self) -> int:
        return max((_end(side.plan) for side in self._sides if side.plan is not None), default=1)

    def _width(self, plan: Plan) -> int:
        return max(round(self._room() * _end(plan) / self._span()), 1)

    def _room(self) -> int:
        """What names and sizes leave of the width."""
        _, _, left, right = self._measures()
        return self.width() - left - right

    def _cells(self, plan: Plan) -> tuple[Cells, ...]:
        return bar_cells(plan, plan.tightest, self._width(plan)) if plan.devices else ()

    def _in_words(self, at: int) -> str:
        plan = self._sides[at].plan
        name = self._heading(at)
        if plan is None or not plan.devices:
            return f"{name}: no plan"
        device = plan.devices[plan.tightest]
        parts = ", ".join(f"{name_of(s.kind)} {format_bytes(s.bytes, self._unit)}" for s in device.in_use)
        lack = f", {format_bytes(device.lack.bytes, self._unit)} missing" if device.lack else ""
        return f"{name}: {parts}{lack}"

    def paintEvent(self, event: QPaintEvent) -> None:
        """Letters, bars, what each holds in all."""
        painter, tokens = QPainter(self), tokens_of(self)
        type_ = Type(self.font())
        for row, at in enumerate(self._order()):
            self._row(painter, tokens, type_, row, at)
        painter.end()

    def _heading(self, at: int) -> str:
        return self._sides[at].name if self._in_turn else heading(at, len(self._sides))

    def _order(self) -> list[int]:
        """The edited plan, then the pinned ones, as in the table."""
        count = len(self._sides)
        if self._in_turn:
            return [*range(count)]
        return [count - 1, *range(count - 1)] if count else []

    def _row(self, painter: QPainter, tokens: Tokens, type_: Type, row: int, at: int) -> None:
        bar, high, names, sizes = self._measures()
        top, side = row * high + 4, self._sides[at]
        now = not self._in_turn and at == len(self._sides) - 1
        painter.setFont(type_.fonts["small_bold" if now else "small"])
        painter.setPen(colour(tokens.text))
        middle = Qt.AlignmentFlag.AlignVCenter
        painter.drawText(QRectF(2, top, names - 6, bar), int(middle), self._heading(at))
        plan = side.plan
        if plan is None or not plan.devices:
            return
        x = float(names)
        for cell in self._cells(plan):
            box = QRectF(x, top, cell.width, bar)
            if cell.kind is not None:
                fill_segment(painter, box, tokens.segments[cell.kind])
            else:
                painter.fillRect(box, colour(tokens.danger_soft))
                fill_pattern(painter, box, "cross", pen(tokens.danger))
            x += cell.width
        device = plan.devices[plan.tightest]
        end = names + round(self._room() * device.total_bytes / self._span())
        painter.setPen(pen(tokens.outline, 1))
        painter.drawRect(QRectF(names - 0.5, top - 0.5, end - names, bar))
        if device.lack is not None:
            painter.setPen(pen(tokens.danger, 2))
            painter.drawLine(QLineF(end, top - 2, end, top + bar + 2))
        painter.setPen(colour(tokens.muted))
        painter.setFont(type_.fonts["small"])
        room = QRectF(max(x, end) + 6, top, sizes - 6, bar)
        painter.drawText(room, int(middle), shown(format_bytes(device.total_bytes, self._unit)))

    def event(self, event: QEvent) -> bool:
        """What lies under the pointer, as a hint."""
        if isinstance(event, QHelpEvent):
            text = self._hint(event.pos().x(), event.pos().y())
            if text:
                QToolTip.showText(event.globalPos(), shown(text), self)
            else:
                QToolTip.hideText()
            return True
        return super().event(event)

    def _hint(self, x: int, y: int) -> str:
        _, high, names, _ = self._measures()
        row = (y - 4) // high
        plan = self._sides[self._order()[row]].plan if 0 <= row < len(self._sides) else None
        if plan is None or not plan.devices:
            return ""
        left, device = float(names), plan.devices[plan.tightest]
        for cell in self._cells(plan):
            if left <= x < left + cell.width:
                if cell.kind is None:
                    return f"missing: {format_bytes(device.lack.bytes, self._unit)}" if device.lack else ""
                segment = device.segment(cell.kind)
                return f"{name_of(cell.kind)}: {format_bytes(segment.bytes, self._unit)}" if segment else ""
            left += cell.width
        return ""


def _end(plan: Plan | None) -> int:
    """Where a plan's bar ends: its memory, or what it would need."""
    if plan is None or not plan.devices:
        return 1
    device = plan.devices[plan.tightest]
    return max(device.total_bytes, device.lack.end if device.lack else 0)
