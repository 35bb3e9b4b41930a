"""Pictures of a plan: PNG, SVG and PDF from one drawing, as the bytes of a file.

Nothing here touches a widget or the screen: a picture may be drawn off the main thread, with a font that was taken
there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

from PySide6.QtCore import QBuffer, QByteArray, QIODevice, QMarginsF, QRect, QRectF, QSize, QSizeF, Qt
from PySide6.QtGui import QFont, QFontMetricsF, QGuiApplication, QImage, QImageWriter, QPageSize, QPainter, QPdfWriter

from kvplanner import __version__
from kvplanner.engine.plan import Plan
from kvplanner.engine.segment import SEGMENT_KINDS, SegmentKind
from kvplanner.errors import BadInput
from kvplanner.gpu.spec import Machine
from kvplanner.record import NamedTuple
from kvplanner.report.facts import engine_title, weights_text
from kvplanner.report.segments import heading_of
from kvplanner.report.verdict import Verdict, verdict
from kvplanner.report.words import Unit
from kvplanner.ui.bars.layout import arrange, height_of
from kvplanner.ui.bars.painter import Marks, paint
from kvplanner.ui.bars.shapes import COMFORT, HEADER, Cell, Layout, Row, View
from kvplanner.ui.bars.swatch import paint_swatch
from kvplanner.ui.theme.figures import shown
from kvplanner.ui.theme.geometry import Rect, Role, fitted
from kvplanner.ui.theme.ink import Type, colour, sized
from kvplanner.ui.theme.palette import THEMES, ThemeName, Tokens
from kvplanner.ui.verdict.icon import paint_status
from kvplanner.units import counted

WIDTH: Final = 1100.0
MARGIN: Final = 28.0
ICON: Final = 30.0
MARK: Final = 18.0  # the sign before a note
NOTES_SHOWN: Final = 4
LINE: Final = 18.0
DOTS_PER_INCH: Final = 96
NO_BREAK: Final = "\u00a0"
_BEFORE_UNIT: Final = re.compile(r"(?<=\d) (?=GiB|GB|MiB|MB|tokens)|(?<=≈) ")
MAX_SCALE: Final = 8.0


class Item(NamedTuple):
    """One entry of the legend."""

    kind: SegmentKind | None
    text: str
    x: float
    y: float


class Note(NamedTuple):
    """A line of what should be known of the plan; first: of its sentence, with a sign."""

    text: str
    first: bool


class Picture(NamedTuple):
    """A plan as a picture: texts with their places, the bars and the legend; sizes in pixels at scale 1."""

    width: float
    height: float
    title: str
    title_lines: tuple[str, ...]
    verdict: Verdict
    headline: tuple[str, ...]
    details: tuple[str, ...]
    notes: tuple[Note, ...]
    bars_y: float
    bars: Layout
    legend: tuple[Item, ...]
    foot: str
    foot_y: float


def png(
    plan: Plan, *, unit: Unit = "GiB", theme: ThemeName = "light", scale: float = 2.0, font: QFont | None = None
) -> bytes:
    """A PNG picture, `scale` times 1,100 pixels wide. Raises BadInput.

    font: the application's, where it was taken on the main thread.
    """
    if not 0.25 <= scale <= MAX_SCALE:
        raise BadInput(f"a scale of {scale:g} makes no picture", "", f"Give a scale from 0.25 to {MAX_SCALE:g}")
    type_ = Type(base_font(font))
    picture = compose(plan, unit, type_)
    image = QImage(
        QSize(round(picture.width * scale), round(picture.height * scale)), QImage.Format.Format_ARGB32_Premultiplied
    )
    if image.isNull():
        raise BadInput("there is not enough memory for the picture", "", "Give a smaller scale")
    painter = QPainter(image)
    painter.scale(scale, scale)
    draw(painter, picture, THEMES[theme], type_)
    painter.end()
    image.setText("Title", picture.title)
    buffer = _buffer()
    if not QImageWriter(buffer, QByteArray(b"png")).write(image):
        raise BadInput("the picture could not be encoded", "", "Try SVG or PDF")
    return bytes(buffer.data().data())


def svg(plan: Plan, *, unit: Unit = "GiB", theme: ThemeName = "light", font: QFont | None = None) -> bytes:
    """An SVG picture."""
    from PySide6.QtSvg import QSvgGenerator

    type_ = Type(base_font(font))
    picture = compose(plan, unit, type_)
    buffer = _buffer()
    generator = QSvgGenerator()
    generator.setOutputDevice(buffer)
    size = QSize(round(picture.width), round(picture.height))
    generator.setSize(size)
    generator.setViewBox(QRect(0, 0, size.width(), size.height()))
    generator.setResolution(DOTS_PER_INCH)
    generator.setTitle(picture.title)
    generator.setDescription(picture.verdict.headline)
    painter = QPainter(generator)
    draw(painter, picture, THEMES[theme], type_)
    painter.end()
    return bytes(buffer.data().data())


def pdf(plan: Plan, *, unit: Unit = "GiB", theme: ThemeName = "light", font: QFont | None = None) -> bytes:
    """A PDF page as large as the picture."""
    type_ = Type(base_font(font))
    picture = compose(plan, unit, type_)
    buffer = _buffer()
    writer = QPdfWriter(buffer)
    writer.setResolution(DOTS_PER_INCH)
    points = QSizeF(picture.width * 72 / DOTS_PER_INCH, picture.height * 72 / DOTS_PER_INCH)
    writer.setPageSize(QPageSize(points, QPageSize.Unit.Point, "plan", QPageSize.SizeMatchPolicy.ExactMatch))
    writer.setPageMargins(QMarginsF(0, 0, 0, 0))
    writer.setTitle(picture.title)
    writer.setCreator(f"kvplanner {__version__}")
    painter = QPainter(writer)
    draw(painter, picture, THEMES[theme], type_)
    painter.end()
    return bytes(buffer.data().data())


def base_font(font: QFont | None = None) -> QFont:
    """The family of a font, else the application's, at one size: a picture does not depend on the screen.

    Raises BadInput without an application.
    """
    if QGuiApplication.instance() is None:
        raise BadInput("pictures need the window system", "", "Write CSV, JSON or Markdown, or start the window")
    base = QFont(font or QGuiApplication.font())
    base.setPixelSize(14)
    return base


def wrapped(text: str, width: float, measure: Callable[[str], float], *, even: bool = False) -> tuple[str, ...]:
    """The text in lines no wider than `width`; a longer word stands alone, cut short.

    A number stays with its unit. even: lines about equally long, so that no word stands alone on the last one.
    """
    found = _lines(text, width, measure)
    if even and len(found) > 1:
        low, high = width / 3, width
        while high - low > 2:
            middle = (low + high) / 2
            low, high = (low, middle) if len(_lines(text, middle, measure)) == len(found) else (middle, high)
        found = _lines(text, high, measure)
    cut = (fitted(line, width, lambda words, _: measure(words), "text") for line in found if line)
    return tuple(line.replace(NO_BREAK, " ") for line in cut)


def _lines(text: str, width: float, measure: Callable[[str], float]) -> list[str]:
    lines: list[str] = []
    line = ""
    for word in _BEFORE_UNIT.sub(NO_BREAK, text).split(" "):
        longer = f"{line} {word}" if line else word
        if line and measure(longer) > width:
            lines.append(line)
            line = word
        else:
            line = longer
    return [*lines, line]


def compose(plan: Plan, unit: Unit, type_: Type) -> Picture:
    """Where everything goes."""
    told = verdict(plan, unit)
    room = WIDTH - 2 * MARGIN
    machine = Machine(tuple(d.device for d in plan.devices)).describe()
    title = f"{_planned(plan)} on {machine} · {engine_title(plan)} {plan.engine_version}"
    beside = room - ICON - 14
    large = QFontMetricsF(_headline_font(type_))
    headline = wrapped(told.headline, beside, large.horizontalAdvance, even=True)
    facts = (*told.details, *((told.tightest_text,) if told.tightest_text else ()))
    details = wrapped(" · ".join(facts), beside, lambda words: type_.width(words, "text"))
    lines = wrapped(title, room, lambda words: type_.width(words, "text"))
    notes = _notes(told.notes, beside - MARK, lambda words: type_.width(words, "text"))
    y = MARGIN + len(lines) * LINE + 8 + len(headline) * 24 + (len(details) + len(notes)) * LINE + 12
    view = View(unit, still=True)
    bars = arrange(plan, room, height_of(plan, view, COMFORT), type_.width, view)
    bars_y = y
    y += bars.height - HEADER + 30
    legend, y = _legend(plan, bars, type_, room, y)
    sizes = "GiB = 2³⁰ bytes" if unit == "GiB" else "GB = 10⁹ bytes"
    ranges = " · whiskers are 90 % ranges" if any(row.whiskers for row in bars.rows) else ""
    foot = f"Sizes in {sizes}{ranges} · rules {plan.rules} · kvplanner {__version__}"
    height = y + 34 + MARGIN - 8
    return Picture(WIDTH, height, title, lines, told, headline, details, notes, bars_y, bars, legend, foot, y + 14)


def _notes(texts: Sequence[str], width: float, measure: Callable[[str], float]) -> tuple[Note, ...]:
    """What the window warns of beside the verdict goes with its picture: the first few, and how many more there are."""
    more = len(texts) - NOTES_SHOWN
    said = [*texts[:NOTES_SHOWN], *([f"{counted(more, 'more note', 'more notes')} in the report"] if more > 0 else [])]
    return tuple(Note(line, not at) for text in said for at, line in enumerate(wrapped(text, width, measure)))


def _planned(plan: Plan) -> str:
    """The model, and what sets the plan apart from one of the model as it is stored, alone."""
    request = plan.request
    assumed = f", weights {weights_text(plan)}," if request.weight_format else ""
    return f"{request.model.id}{assumed}{f' with draft model {request.draft.id}' if request.draft else ''}"


def _legend(plan: Plan, bars: Layout, type_: Type, room: float, y: float) -> tuple[tuple[Item, ...], float]:
    """What the bars show, and no more."""
    planned = plan.fits is not None or any(d.segment("weights") for d in plan.devices)
    present = {cell.kind for row in bars.rows for cell in row.cells if planned and _seen(cell, row)}
    entries: list[tuple[SegmentKind | None, str]] = [(k, heading_of(k)) for k in SEGMENT_KINDS if k in present]
    if any(row.lack for row in bars.rows):
        entries.append((None, "Does not fit"))
    x = 0.0
    items: list[Item] = []
    for kind, text in entries:
        wide = type_.width(text, "small") + 22 + 18
        if x and x + wide > room:
            x, y = 0.0, y + LINE + 2
        items.append(Item(kind, text, MARGIN + x, y))
        x += wide
    return tuple(items), y + LINE if items else y - LINE


def _seen(cell: Cell, row: Row) -> bool:
    """Whether a segment is wide enough to be drawn, and not all under what does not fit."""
    left, right = round(cell.rect.x), round(min(cell.rect.right, row.lack.rect.x if row.lack else cell.rect.right))
    return right - left >= 1


def draw(painter: QPainter, picture: Picture, tokens: Tokens, type_: Type) -> None:
    """Draws a composed picture."""
    painter.setRenderHint(QPainter.RenderHint.Antialiasing, on=True)
    painter.fillRect(QRectF(0, 0, picture.width, picture.height), colour(tokens.panel))
    room = picture.width - 2 * MARGIN
    y = MARGIN
    for text in picture.title_lines:
        _line(painter, type_, "text", Rect(MARGIN, y, room, LINE), text, tokens.muted)
        y += LINE
    y += 8
    paint_status(painter, QRectF(MARGIN, y, ICON, ICON), picture.verdict.state, tokens)
    left = MARGIN + ICON + 14
    large = _headline_font(type_)
    for text in picture.headline:
        painter.setFont(large)
        painter.setPen(colour(tokens.text))
        painter.drawText(QRectF(left, y, room - ICON - 14, 24), int(Qt.AlignmentFlag.AlignVCenter), shown(text))
        y += 24
    for text in picture.details:
        _line(painter, type_, "text", Rect(left, y, room - ICON - 14, LINE), text, tokens.muted)
        y += LINE
    for note in picture.notes:
        if note.first:
            _line(painter, type_, "text", Rect(left, y, MARK, LINE), "▲", tokens.warning)
        _line(painter, type_, "text", Rect(left + MARK, y, room - ICON - 14 - MARK, LINE), note.text, tokens.muted)
        y += LINE
    painter.save()
    painter.translate(MARGIN, picture.bars_y - HEADER + 8)
    paint(painter, picture.bars, tokens, type_, Marks())
    painter.restore()
    for item in picture.legend:
        missing = item.kind is None
        paint_swatch(painter, QRectF(item.x, item.y + 2, 13, 13), item.kind, tokens, missing=missing)
        _line(painter, type_, "small", Rect(item.x + 20, item.y, 400, 17), item.text, tokens.text)
    _line(painter, type_, "small", Rect(MARGIN, picture.foot_y, room, LINE), picture.foot, tokens.muted)


def _headline_font(type_: Type) -> QFont:
    return sized(type_.fonts["title"], 1.35, bold=True)


def _line(painter: QPainter, type_: Type, role: Role, rect: Rect, text: str, ink: str) -> None:
    painter.setFont(type_.fonts[role])
    painter.setPen(colour(ink))
    painter.drawText(QRectF(*rect), int(Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignLeft), shown(text))


def _buffer() -> QBuffer:
    buffer = QBuffer()
    buffer.open(QIODevice.OpenModeFlag.ReadWrite)
    return buffer
