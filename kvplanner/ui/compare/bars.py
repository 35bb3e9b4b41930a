"""The plans' memory as bars on one axis: of each the GPU that decides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from PySide6.QtCore import QEvent, QLineF, QRectF, QSize, Qt
from PySide6.QtGui import QHelpEvent, QPainter, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QToolTip, QWidget

from kvplanner.engine.plan import Plan
from kvplanner.report.bar import Cells, bar_cells
from kvplanner.report.segments import name_of
from kvplanner.ui.compare.model import heading
from kvplanner.ui.theme.ink import Type, colour, fill_pattern, fill_segment, pen, tokens_of
from kvplanner.ui.theme.palette import Tokens
from kvplanner.units import format_bytes

if TYPE_CHECKING:
    from kvplanner.report.words import Unit
    from kvplanner.solve.compare import Side

_BAR: Final = 16
_ROW: Final = 24
_LEFT: Final = 40
_RIGHT: Final = 78


class ComparedBars(QWidget):
    """One bar for each plan; a line where its memory ends."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._sides: tuple[Side, ...] = ()
        self._unit: Unit = "GiB"
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setAccessibleName("Memory of each plan's deciding GPU")

    def set_sides(self, sides: Sequence[Side], unit: Unit) -> None:
        """The plans to draw."""
        self._sides, self._unit = tuple(sides), unit
        self.setVisible(len(self._sides) > 1)
        self.setAccessibleDescription("; ".join(self._in_words(at) for at in range(len(self._sides))))
        self.updateGeometry()
        self.update()

    def sizeHint(self) -> QSize:
        """A row for each."""
        return QSize(200, _ROW * len(self._sides) + 4)

    def minimumSizeHint(self) -> QSize:
        """The same height."""
        return QSize(120, self.sizeHint().height())

    def _span(self) -> int:
        return max((_end(side.plan) for side in self._sides if side.plan is not None), default=1)

    def _width(self, plan: Plan) -> int:
        return max(round((self.width() - _LEFT - _RIGHT) * _end(plan) / self._span()), 1)

    def _cells(self, plan: Plan) -> tuple[Cells, ...]:
        return bar_cells(plan, plan.tightest, self._width(plan)) if plan.devices else ()

    def _in_words(self, at: int) -> str:
        plan = self._sides[at].plan
        name = heading(at, len(self._sides))
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

    def _order(self) -> list[int]:
        """The edited plan, then the pinned ones, as in the table."""
        count = len(self._sides)
        return [count - 1, *range(count - 1)] if count else []

    def _row(self, painter: QPainter, tokens: Tokens, type_: Type, row: int, at: int) -> None:
        top, side = row * _ROW + 4, self._sides[at]
        now = at == len(self._sides) - 1
        painter.setFont(type_.fonts["small_bold" if now else "small"])
        painter.setPen(colour(tokens.text))
        middle = Qt.AlignmentFlag.AlignVCenter
        painter.drawText(QRectF(2, top, _LEFT - 6, _BAR), int(middle), heading(at, len(self._sides)))
        plan = side.plan
        if plan is None or not plan.devices:
            return
        x = float(_LEFT)
        for cell in self._cells(plan):
            box = QRectF(x, top, cell.width, _BAR)
            if cell.kind is not None:
                fill_segment(painter, box, tokens.segments[cell.kind])
            else:
                painter.fillRect(box, colour(tokens.danger_soft))
                fill_pattern(painter, box, "cross", pen(tokens.danger))
            x += cell.width
        device = plan.devices[plan.tightest]
        end = _LEFT + round((self.width() - _LEFT - _RIGHT) * device.total_bytes / self._span())
        painter.setPen(pen(tokens.outline, 1))
        painter.drawRect(QRectF(_LEFT - 0.5, top - 0.5, end - _LEFT, _BAR))
        if device.lack is not None:
            painter.setPen(pen(tokens.danger, 2))
            painter.drawLine(QLineF(end, top - 2, end, top + _BAR + 2))
        painter.setPen(colour(tokens.muted))
        painter.setFont(type_.fonts["small"])
        room = QRectF(max(x, end) + 6, top, _RIGHT - 6, _BAR)
        painter.drawText(room, int(middle), format_bytes(device.total_bytes, self._unit))

    def event(self, event: QEvent) -> bool:
        """What lies under the pointer, as a hint."""
        if isinstance(event, QHelpEvent):
            text = self._hint(event.pos().x(), event.pos().y())
            if text:
                QToolTip.showText(event.globalPos(), text, self)
            else:
                QToolTip.hideText()
            return True
        return super().event(event)

    def _hint(self, x: int, y: int) -> str:
        row = (y - 4) // _ROW
        plan = self._sides[self._order()[row]].plan if 0 <= row < len(self._sides) else None
        if plan is None or not plan.devices:
            return ""
        left, device = float(_LEFT), plan.devices[plan.tightest]
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
