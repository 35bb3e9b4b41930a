"""Draws a layout with a QPainter: the same strokes on the screen, in PNG, SVG and PDF."""

from __future__ import annotations

from typing import Final

from PySide6.QtCore import QLineF, QPointF, QRectF, Qt
from PySide6.QtGui import QPainter, QPolygonF

from kvplanner.engine.segment import SegmentKind
from kvplanner.record import NamedTuple
from kvplanner.ui.bars.shapes import PAD, Bracket, Cell, IdleRow, Lack, Layout, Row, Strip, Text, Whisker
from kvplanner.ui.theme.figures import shown_figures
from kvplanner.ui.theme.geometry import Rect
from kvplanner.ui.theme.ink import Type, colour, fill_pattern, fill_plain, fill_segment, pen, snapped
from kvplanner.ui.theme.palette import Tokens, mix

_ALIGN: Final = {
    "left": int(Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignLeft | Qt.TextFlag.TextDontClip),
    "right": int(Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignRight | Qt.TextFlag.TextDontClip),
    "center": int(Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignHCenter | Qt.TextFlag.TextDontClip),
}


class Marks(NamedTuple):
    """What the user does with the picture: selected and hovered segments, keyboard focus, the line above the bars."""

    selected: tuple[int, SegmentKind | None] | None = None
    hovered: Cell | None = None
    focused: bool = False
    readout: str = ""


def paint(painter: QPainter, layout: Layout, tokens: Tokens, type_: Type, marks: Marks) -> None:
    """The whole picture; the ground stays as it is."""
    _Brush(painter, layout, tokens, type_, marks).all()


class _Brush:
    def __init__(self, painter: QPainter, layout: Layout, tokens: Tokens, type_: Type, marks: Marks) -> None:
        self.painter = painter
        self.layout = layout
        self.tokens = tokens
        self.type = type_
        self.marks = marks

    def all(self) -> None:
        painter = self.painter
        painter.setRenderHint(QPainter.RenderHint.Antialiasing, on=True)
        painter.setBrush(Qt.BrushStyle.NoBrush)
        self.grid_lines()
        for row in self.layout.rows:
            self.row(row)
        for idle in self.layout.idle:
            self.idle(idle)
        self.axis()
        self.header()

    def text(self, text: Text | None, ink: str) -> None:
        if text is None or not text.text:
            return
        self.painter.setFont(self.type.fonts[text.role])
        self.painter.setPen(colour(ink))
        self.painter.drawText(QRectF(*text.rect), _ALIGN[text.align], shown_figures(text.text))

    def header(self) -> None:
        layout, marks = self.layout, self.marks
        if marks.readout:
            room = layout.header.w - (layout.delta.rect.w + 8 if layout.delta else 0)
            said = _shortened(marks.readout, room, self.type)
            self.text(Text(Rect(0, 0, room, layout.header.h - 6), said, "small"), self.tokens.muted)
        if layout.delta:
            rect = layout.delta.rect
            ink = self.tokens.danger if layout.delta.text.startswith("−") else self.tokens.success
            self.text(layout.delta._replace(rect=rect._replace(h=rect.h - 6)), ink)

    def grid_lines(self) -> None:
        top, bottom = self.layout.header.h, self.layout.axis_y
        self.painter.setPen(pen(mix(self.tokens.border, self.tokens.panel, 0.6)))
        xs = [round(tick.x) + 0.5 for tick in self.layout.ticks[1:-1] if not tick.capacity]
        self.painter.drawLines([QLineF(x, top, x, bottom) for x in xs])

    def axis(self) -> None:
        if not self.layout.ticks:
            return
        y = round(self.layout.axis_y) + 0.5
        end = self.layout.ticks[-1].x
        self.painter.setPen(pen(self.tokens.outline))
        marks = [QLineF(x, y, x, y + 4) for x in (min(round(t.x) + 0.5, round(end) - 0.5) for t in self.layout.ticks)]
        self.painter.drawLines([QLineF(round(self.layout.x0), y, round(end), y), *marks])
        for tick in self.layout.ticks:
            self.text(tick.text, self.tokens.text if tick.capacity else self.tokens.muted)

    def row(self, row: Row) -> None:
        painter, tokens = self.painter, self.tokens
        if row.frame.w:
            fill_plain(painter, snapped(row.frame), colour(tokens.panel))
        for cell in row.cells:
            self.cell(cell)
        if row.lack:
            self.lack(row.lack)
        self.outline(row)
        for cell in row.cells:
            self.cell_label(cell)
        self.ghost(row)
        if row.fill:
            box = snapped(row.fill)
            fill_plain(self.painter, box, colour(self.tokens.text))
            fill_plain(self.painter, QRectF(box.x(), box.y() - 1, box.width(), 1), colour(self.tokens.panel))
        for whisker in row.whiskers:
            self.whisker(whisker, row.frame)
        if row.bracket:
            self.bracket(row.bracket)
        if row.cut:
            self.tear(row.frame._replace(w=self.layout.ticks[-1].x - row.frame.x))
        self.text(row.capacity, tokens.muted)
        self.text(row.gap, tokens.muted)
        self.text(row.title, tokens.text)
        self.text(row.detail, tokens.muted)
        if row.toggle:
            self.chevron(row)
        if row.strip:
            self.strip(row.strip)
        self.cell_marks(row)

    def idle(self, row: IdleRow) -> None:
        box = snapped(row.frame)
        fill_plain(self.painter, box, colour(self.tokens.panel))
        self.painter.setPen(pen(self.tokens.outline, 1, Qt.PenStyle.DashLine))
        self.painter.drawRect(box.adjusted(0.5, 0.5, -0.5, -0.5))
        self.text(row.title, self.tokens.muted)
        self.text(row.text, self.tokens.muted)

    def cell(self, cell: Cell) -> None:
        box = snapped(cell.rect)
        if cell.kind == "headroom" or box.width() < 1:
            return
        fill_segment(self.painter, box, self.tokens.segments[cell.kind])
        if box.width() > 3:
            fill_plain(self.painter, QRectF(box.right() - 1, box.y(), 1, box.height()), colour(self.tokens.panel))

    def cell_label(self, cell: Cell) -> None:
        if not cell.label:
            return
        ink = self.tokens.segments[cell.kind]
        wide = self.type.width(cell.label, "text")
        if ink.pattern not in ("solid", "empty"):
            high = min(cell.rect.h - 6, 18)
            top = cell.rect.y + (cell.rect.h - high) / 2
            fill_plain(self.painter, QRectF(cell.rect.x + PAD - 3, top, wide + 6, high), colour(ink.fill))
        text = Text(Rect(cell.rect.x + PAD, cell.rect.y, wide + 2, cell.rect.h), cell.label, "text")
        self.text(text, ink.text)

    def outline(self, row: Row) -> None:
        box = snapped(row.frame)
        if box.width() < 1:
            return
        self.painter.setPen(pen(self.tokens.outline))
        self.painter.drawRect(box.adjusted(0.5, 0.5, -0.5, -0.5))
        if row.lack and row.lack.rect.right > row.frame.right + 0.5:
            self.painter.setPen(pen(self.tokens.text, 2))
            self.painter.drawLine(QLineF(box.right(), box.y() - 4, box.right(), box.bottom() + 3))

    def lack(self, lack: Lack) -> None:
        box, tokens = snapped(lack.rect), self.tokens
        if box.width() < 2:
            box.setWidth(2)
        fill_plain(self.painter, box, colour(tokens.danger_soft))
        fill_pattern(self.painter, box, "up", pen(tokens.danger, 2.2), 8)
        style = Qt.PenStyle.DashLine if lack.asked else Qt.PenStyle.SolidLine
        self.painter.setPen(pen(tokens.danger, 1.5, style))
        self.painter.drawRect(box.adjusted(0.75, 0.75, -0.75, -0.75))
        self.text(lack.text, tokens.danger)

    def ghost(self, row: Row) -> None:
        for cell in row.ghost:
            box = snapped(cell.rect)
            ink = self.tokens.segments[cell.kind]
            fill_plain(self.painter, box, colour(mix(ink.fill, self.tokens.panel, 0.55)))
            fill_plain(self.painter, QRectF(box.right() - 1, box.y(), 1, box.height()), colour(self.tokens.text))
        if row.ghost:
            first, last = snapped(row.ghost[0].rect), snapped(row.ghost[-1].rect)
            line = QRectF(first.x(), first.bottom(), last.right() - first.x(), 1)
            fill_plain(self.painter, line, colour(self.tokens.panel))

    def whisker(self, whisker: Whisker, frame: Rect) -> None:
        """Under the bar in its segment's colour, hung from the border that it moves."""
        y = round(whisker.y) + 0.5
        left, right = whisker.left, max(whisker.right, whisker.left + 3)
        middle = min(max(whisker.middle, left), right)
        fill = self.tokens.segments[whisker.kind].fill
        lines = [
            QLineF(left, y, right, y),
            QLineF(left, y - 2, left, y + 2),
            QLineF(right, y - 2, right, y + 2),
            QLineF(middle, frame.bottom + 1, middle, y),
        ]
        self.painter.setPen(pen(mix(fill, self.tokens.text, 0.8), 1.8))
        self.painter.drawLines(lines)

    def bracket(self, bracket: Bracket) -> None:
        left, right, y = round(bracket.left) + 0.5, round(bracket.right) - 0.5, round(bracket.y) + 0.5
        self.painter.setPen(pen(self.tokens.muted))
        foot = y + 5
        self.painter.drawLines([QLineF(left, foot, left, y), QLineF(left, y, right, y), QLineF(right, y, right, foot)])
        if bracket.text:
            fill_plain(self.painter, QRectF(*bracket.text.rect), colour(self.tokens.panel))
        self.text(bracket.text, self.tokens.muted)

    def tear(self, frame: Rect) -> None:
        """A zigzag at the right end: the bar goes on."""
        x = frame.right
        steps = 6
        edge = [QPointF(x - (9 if i % 2 else 3), frame.y + frame.h * i / steps) for i in range(steps + 1)]
        shape = QPolygonF([QPointF(x + 2, frame.y - 1), *edge, QPointF(x + 2, frame.bottom + 1)])
        self.painter.setPen(Qt.PenStyle.NoPen)
        self.painter.setBrush(colour(self.tokens.panel))
        self.painter.drawPolygon(shape)
        self.painter.setBrush(Qt.BrushStyle.NoBrush)
        self.painter.setPen(pen(self.tokens.text, 1.2))
        self.painter.drawPolyline(QPolygonF(edge))

    def chevron(self, row: Row) -> None:
        y = row.title.rect.y + row.title.rect.h / 2
        shape = [(1, -2), (9, -2), (5, 3)] if row.opened else [(3, -4), (3, 4), (8, 0)]
        self.painter.setPen(Qt.PenStyle.NoPen)
        self.painter.setBrush(colour(self.tokens.muted))
        self.painter.drawPolygon(QPolygonF([QPointF(dx, y + dy) for dx, dy in shape]))
        self.painter.setBrush(Qt.BrushStyle.NoBrush)

    def strip(self, strip: Strip) -> None:
        tokens = self.tokens
        for part, rect in strip.parts:
            box = snapped(rect)
            if part.kind == "engine":
                fill_plain(self.painter, box, colour(tokens.panel))
                fill_pattern(self.painter, box, "down", pen(tokens.text, 1.6), 5)
            else:
                shade = tokens.outline if part.kind == "driver" else tokens.muted
                fill_plain(self.painter, box, colour(shade))
            self.painter.setPen(pen(tokens.text))
            self.painter.drawRect(box.adjusted(0.5, 0.5, -0.5, -0.5))
        self.text(strip.text, tokens.muted)

    def cell_marks(self, row: Row) -> None:
        marks = self.marks
        for cell in row.cells:
            chosen = marks.selected is not None and marks.selected[0] in row.positions
            if chosen and marks.selected is not None and marks.selected[1] == cell.kind:
                self.frame(cell.rect, focused=marks.focused)
            elif marks.hovered is not None and (marks.hovered.device, marks.hovered.kind) == (cell.device, cell.kind):
                self.painter.setPen(pen(self.tokens.text, 1))
                self.painter.drawRect(snapped(cell.rect).adjusted(0.5, 0.5, -0.5, -0.5))

    def frame(self, rect: Rect, *, focused: bool) -> None:
        """The selected segment: outlined; doubly and in the accent colour while the keyboard is here."""
        box = snapped(rect)
        if focused:
            self.painter.setPen(pen(self.tokens.panel, 4.5))
            self.painter.drawRect(box.adjusted(-1, -1, 1, 1))
            self.painter.setPen(pen(self.tokens.accent, 2.5))
            self.painter.drawRect(box.adjusted(-1.5, -1.5, 1.5, 1.5))
            return
        inset = 1.0 if box.width() > 4 else -1.0
        inner = box.adjusted(inset, inset, -inset, -inset)
        self.painter.setPen(pen(self.tokens.panel, 4))
        self.painter.drawRect(inner)
        self.painter.setPen(pen(self.tokens.text, 2))
        self.painter.drawRect(inner)


def _shortened(line: str, room: float, type_: Type) -> str:
    """A readout without its last parts where they have no room."""
    parts = line.split(" · ")
    while len(parts) > 1 and type_.width(" · ".join(parts), "small") > room:
        parts.pop()
    return " · ".join(parts)
