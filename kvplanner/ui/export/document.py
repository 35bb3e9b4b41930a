"""A report as a PDF of A4 pages, for light paper: blocks of text, tables and bars, one below the other.

Nothing here touches a widget or the screen: a document may be drawn off the main thread, with a font that was taken
there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import Final

from PySide6.QtCore import QBuffer, QIODevice, QLineF, QMarginsF, QRectF, Qt
from PySide6.QtGui import QFont, QPagedPaintDevice, QPageSize, QPainter, QPdfWriter

from kvplanner import __version__
from kvplanner.report.sheet import Group, Sheet
from kvplanner.ui.export.lines import BREAK, Lines, Run
from kvplanner.ui.export.pictures import DOTS_PER_INCH, base_font
from kvplanner.ui.theme.ink import colour, fill_pattern, fill_segment, pen, sized
from kvplanner.ui.theme.palette import LIGHT
from kvplanner.ui.verdict.icon import paint_status

MARGIN: Final = 56.0
FOOT: Final = 36.0
GAP: Final = 6.0
_ICON: Final = 30.0
_BAR: Final = 26.0
_SWATCH: Final = 11.0
_LEGEND_LINE: Final = 17.0
# Shares of the page's width, in hundredths: name, size, range, share, basis, how.
_MEMORY: Final = (21, 9, 13, 8, 11, 38)
_PAIR: Final = (27, 73)
_INPUTS: Final = (30, 17, 15, 38)
_CELL_GAP: Final = 8.0


def _muted(text: str) -> Run:
    return Run(text, LIGHT.muted)


def _bold(text: str) -> Run:
    return Run(text, bold=True)


def document(made: Sheet, *, when: str = "", font: QFont | None = None) -> bytes:
    """The bytes of the PDF. when: the day that its feet name. Raises BadInput without an application."""
    buffer = QBuffer()
    buffer.open(QIODevice.OpenModeFlag.ReadWrite)
    writer = QPdfWriter(buffer)
    writer.setResolution(DOTS_PER_INCH)
    writer.setPageSize(QPageSize(QPageSize.PageSizeId.A4))
    writer.setPageMargins(QMarginsF(0, 0, 0, 0))
    writer.setTitle(made.title)
    writer.setCreator(f"kvplanner {__version__}")
    write_on(writer, made, when=when, font=font)
    return bytes(buffer.data().data())


def write_on(writer: QPagedPaintDevice, made: Sheet, *, when: str = "", font: QFont | None = None) -> None:
    """The report on the pages of a file or a printer that counts DOTS_PER_INCH and keeps no margins of its own."""
    paper = _Paper(writer, base_font(font), " · ".join(part for part in (made.title, when) if part))
    _write(paper, made)
    paper.end()


class _Paper:
    """Pages that fill from the top: a block that has no room on one begins the next."""

    def __init__(self, writer: QPagedPaintDevice, font: QFont, foot: str) -> None:
        self._writer, self._foot, self._page = writer, foot, 1
        self.font = QFont(font)
        self.font.setPixelSize(12)
        self.painter = QPainter(writer)
        self.painter.setRenderHint(QPainter.RenderHint.Antialiasing, on=True)
        self.width = writer.width() - 2 * MARGIN
        self.bottom = writer.height() - MARGIN
        self.y = MARGIN

    def room(self, height: float) -> None:
        """Begin another page where this one has less left."""
        if self.y + height > self.bottom and self.y > MARGIN:
            self._number()
            self._writer.newPage()
            self._page, self.y = self._page + 1, MARGIN

    def _number(self) -> None:
        self.painter.setFont(sized(self.font, 0.8))
        self.painter.setPen(colour(LIGHT.muted))
        box = QRectF(MARGIN, self._writer.height() - FOOT, self.width, 16)
        self.painter.drawText(box, int(Qt.AlignmentFlag.AlignLeft), self._foot)
        self.painter.drawText(box, int(Qt.AlignmentFlag.AlignRight), str(self._page))

    def end(self) -> None:
        """The last page's foot."""
        self._number()
        self.painter.end()

    def block(self, *runs: Run, indent: float = 0.0, gap: float = GAP, keep: float = 0.0) -> None:
        """A text. keep: what must still have room below it."""
        self._flow([(MARGIN + indent, Lines(self.font, runs, self.width - indent))], keep)
        self.y += gap

    def row(
        self, cells: Sequence[str], shares: Sequence[int], *, head: bool = False, numbers: Sequence[int] = ()
    ) -> None:
        """A line of a table; shares: of the width, in hundredths; numbers: the columns that stand to the right."""
        beside, x = [], MARGIN
        for at, (cell, share) in enumerate(zip(cells, shares, strict=True)):
            wide, run = self.width * share / 100, _muted(cell) if head else Run(cell)
            beside.append((x, Lines(self.font, (run,), wide - _CELL_GAP, right=at in numbers)))
            x += wide
        self._flow(beside)
        self.y += 3

    def _flow(self, beside: Sequence[tuple[float, Lines]], keep: float = 0.0) -> None:
        """Texts side by side: on one page where they have room on one, else on as many as they need."""
        if (height := max(text.height for _, text in beside) + keep) <= self.bottom - MARGIN:
            self.room(height)
        for at, heights in enumerate(zip_longest(*(text.heights for _, text in beside), fillvalue=0.0)):
            self.room(max(heights))
            for x, text in beside:
                text.draw(self.painter, at, x, self.y)
            self.y += max(heights)

    def heading(self, text: str) -> None:
        """A section begins."""
        self.y += 10
        self.block(Run(text, size=14, bold=True), keep=60, gap=2)
        self.painter.setPen(pen(LIGHT.border))
        self.painter.drawLine(round(MARGIN), round(self.y), round(MARGIN + self.width), round(self.y))
        self.y += GAP

    def code(self, text: str) -> None:
        """Lines as they are."""
        for line in text.split("\n"):
            self.block(Run(line, size=11, fixed=True), indent=8, gap=1)
        self.y += GAP


def _write(paper: _Paper, made: Sheet) -> None:
    told = made.verdict
    paper.block(_muted(made.title))
    paint_status(paper.painter, QRectF(MARGIN, paper.y, _ICON, _ICON), told.state, LIGHT)
    indent = _ICON + 12
    paper.block(Run(told.headline, size=18, bold=True), indent=indent)
    for line in (*told.details, told.tightest_text):
        if line:
            paper.block(_muted(line), indent=indent, gap=1)
    if told.engine_message:
        paper.code(told.engine_message)
    paper.heading("Memory")
    for group in made.groups:
        _group(paper, group, made)
    _pairs(paper, "What it holds and serves", made.figures)
    paper.heading("What was planned")
    for line in made.about:
        paper.block(Run(line), gap=2)
    _pairs(paper, "Set", made.options)
    _pairs(paper, "As the engine chooses", made.defaults)
    if made.assumed:
        paper.heading("What was assumed")
        for line in made.assumed:
            paper.block(Run(f"• {line}"), gap=2)
    for form, command in made.commands:
        paper.heading(f"Command ({form})")
        paper.code(command)
    _ways(paper, made)
    _explained(paper, made)
    paper.y += GAP
    paper.block(_muted(made.foot))


def _ways(paper: _Paper, made: Sheet) -> None:
    if made.ways:
        paper.heading(made.ways_title)
        for at, way in enumerate(made.ways, 1):
            runs = [Run(f"{at}. "), _bold(way.title), Run(f": {way.outcome}")]
            if way.costs:
                runs.append(_muted(BREAK + way.costs))
            if way.flags:
                runs.append(Run(BREAK + way.flags, size=11, fixed=True))
            paper.block(*runs)


def _pairs(paper: _Paper, title: str, pairs: Iterable[tuple[str, str]]) -> None:
    found = list(pairs)
    if found:
        paper.heading(title)
        for pair in found:
            paper.row(pair, _PAIR)


def _group(paper: _Paper, group: Group, made: Sheet) -> None:
    roles = f" · {group.roles}" if group.roles else ""
    paper.block(_bold(f"{group.title}: {group.gpu}, {group.size}{roles}"), keep=150)
    if group.free:
        paper.block(_muted(group.free))
    if group.bar:
        _bar(paper, group)
    paper.row(("part", made.unit, "range", "share", "basis", "how"), _MEMORY, head=True, numbers=(1, 2, 3))
    for row in group.rows:
        cells = (row.title, row.size, row.span, row.share, row.basis, row.formula)
        paper.row(cells, _MEMORY, numbers=(1, 2, 3))
    paper.y += GAP


def _bar(paper: _Paper, group: Group) -> None:
    painter, left, wide = paper.painter, MARGIN, paper.width
    if group.bracket is not None:
        start, width = left + wide * group.bracket.start, wide * group.bracket.width
        painter.setFont(sized(paper.font, 0.85))
        painter.setPen(colour(LIGHT.muted))
        painter.drawText(QRectF(start, paper.y, wide, 14), int(Qt.AlignmentFlag.AlignLeft), group.bracket.text)
        paper.y += 16
        painter.setPen(pen(LIGHT.muted))
        ends = start, start + width
        painter.drawLine(QLineF(ends[0], paper.y, ends[1], paper.y))
        painter.drawLines([QLineF(x, paper.y, x, paper.y + 5) for x in ends])
        paper.y += 6
    x = left
    for part in group.bar:
        box = QRectF(round(x), paper.y, max(round(x + part.share * wide) - round(x), 0), _BAR)
        if part.kind is None:
            fill_pattern(painter, box, "cross", pen(LIGHT.danger))
        else:
            fill_segment(painter, box, LIGHT.segments[part.kind])
        x += part.share * wide
    painter.setPen(pen(LIGHT.outline))
    painter.drawRect(QRectF(left, paper.y, wide * group.ends, _BAR))
    paper.y += _BAR + 8
    _legend(paper, group)


def _legend(paper: _Paper, group: Group) -> None:
    painter = paper.painter
    painter.setFont(sized(paper.font, 0.88))
    x = MARGIN
    for part in group.bar:
        wide = painter.fontMetrics().horizontalAdvance(part.text) + _SWATCH + 20
        if x + wide > MARGIN + paper.width and x > MARGIN:
            x, paper.y = MARGIN, paper.y + _LEGEND_LINE
        box = QRectF(round(x), round(paper.y + 2), _SWATCH, _SWATCH)
        if part.kind is None:
            fill_pattern(painter, box, "cross", pen(LIGHT.danger))
        else:
            fill_segment(painter, box, LIGHT.segments[part.kind])
        painter.setPen(pen(LIGHT.outline))
        painter.drawRect(box)
        painter.setPen(colour(LIGHT.text))
        place = QRectF(x + _SWATCH + 5, paper.y, wide, _LEGEND_LINE)
        painter.drawText(place, int(Qt.AlignmentFlag.AlignLeft), part.text)
        x += wide
    paper.y += _LEGEND_LINE + 8


def _explained(paper: _Paper, made: Sheet) -> None:
    paper.heading("How each number comes about")
    for group in made.groups:
        if len(made.groups) > 1:
            paper.block(_bold(f"{group.title}: {group.gpu}"), keep=60)
        for found in group.explained:
            paper.block(_bold(found.title), Run(f": {found.value}"), keep=40, gap=1)
            if found.band:
                paper.block(_muted(found.band), gap=1)
            for formula in found.formulas:
                for line in formula.lines():
                    paper.block(Run(line, size=10, fixed=True), indent=8, gap=1)
            for item in found.inputs:
                paper.row((item.name, item.value, item.other, item.source), _INPUTS, numbers=(1, 2))
            paper.y += GAP
    for basis, meaning in made.bases:
        paper.row((basis, meaning), _PAIR)
