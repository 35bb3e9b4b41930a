"""What an eye would find wrong in rich text: words that break, text under other widgets, too little contrast."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from PySide6.QtCore import QPoint, QPointF, QRect, QRectF
from PySide6.QtGui import QFontMetrics, QImage, QTextBlock, QTextFormat, QTextLine
from PySide6.QtWidgets import QAbstractButton, QLabel, QTextEdit, QWidget

from kvplanner.ui.theme.palette import luminance

READABLE = 4.5


class Line(NamedTuple):
    """A line as it was laid out: its text, what follows it in its block, and where it stands in the view."""

    text: str
    rest: str
    place: QRectF


def faults(view: QTextEdit, leaves: list[QWidget], window: QWidget, image: QImage) -> list[str]:
    """Everything of a text in sight that a reader would stumble over."""
    if not view.isVisible() or view.viewport().visibleRegion().isEmpty():
        return []
    found: list[str] = []
    shown = QRectF(view.viewport().rect())
    name = view.accessibleName()
    seen = [line for line in lines(view) if line.place.intersects(shown)]
    for line in seen:
        if line.text[-1:].isalnum() and line.rest[:1].isalnum():
            found.append(f"{line.text[-20:]!r} of {name!r} breaks within a word: {line.rest[:20]!r}")
        if line.place.right() > shown.right() + 1.5:
            found.append(f"{line.text[:40]!r} of {name!r} leaves its page: {line.place.getRect()} of {shown.getRect()}")
    for leaf in leaves:
        over = _text_place(leaf, view, window)
        under = next((line for line in seen if over is not None and _cover(line.place, over)), None)
        if under is not None:
            found.append(f"{under.text[:40]!r} of {name!r} stands under {_text(leaf)!r}")
    found += [f"{words!r} of {name!r}: contrast {ratio:.2f}" for words, ratio in faint(view, window, image)]
    return found


def lines(view: QTextEdit) -> Iterator[Line]:
    """Every line of a text, tables included."""
    layout = view.document().documentLayout()
    moved = QPointF(-view.horizontalScrollBar().value(), -view.verticalScrollBar().value())
    for block in _blocks(view):
        text, at = block.text(), layout.blockBoundingRect(block).topLeft() + moved
        for number in range(block.layout().lineCount()):
            line: QTextLine = block.layout().lineAt(number)
            first, end = line.textStart(), line.textStart() + line.textLength()
            yield Line(text[first:end], text[end:], line.naturalTextRect().translated(at))


def _blocks(view: QTextEdit) -> Iterator[QTextBlock]:
    block = view.document().begin()
    while block.isValid():
        if block.isVisible():
            yield block
        block = block.next()


def _text(leaf: QWidget) -> str:
    return leaf.text() if isinstance(leaf, QLabel | QAbstractButton) else ""


def _text_place(leaf: QWidget, view: QTextEdit, window: QWidget) -> QRectF | None:
    """Where the words of a widget that stands over the view are, in the view."""
    if not _text(leaf) or view.isAncestorOf(leaf) or leaf.parentWidget() is not view.parentWidget():
        return None
    metrics = QFontMetrics(leaf.font())
    box = QRect(QPoint(0, 0), metrics.size(0, _text(leaf)))
    box.moveCenter(leaf.mapTo(window, leaf.rect().center()))
    return QRectF(box.translated(-view.viewport().mapTo(window, QPoint(0, 0))))


def _cover(line: QRectF, over: QRectF) -> bool:
    """Whether they share more than the air between two lines."""
    shared = line.intersected(over)
    return shared.width() > 1.5 and shared.height() > 4


def faint(view: QTextEdit, window: QWidget, image: QImage) -> Iterator[tuple[str, float]]:
    """Words whose ink is hard to read on what the view stands on, with their contrast."""
    scale = image.devicePixelRatio()
    corner = view.viewport().visibleRegion().boundingRect().bottomRight() - QPoint(2, 2)
    place = (QPointF(view.viewport().mapTo(window, corner)) * scale).toPoint()
    ground = luminance(image.pixelColor(place).name())
    for block in _blocks(view):
        parts = block.begin()
        while not parts.atEnd():
            fragment = parts.fragment()
            form = fragment.charFormat()
            inked = form.hasProperty(QTextFormat.Property.ForegroundBrush.value)
            light = luminance((form.foreground().color() if inked else view.palette().text().color()).name())
            ratio = (max(light, ground) + 0.05) / (min(light, ground) + 0.05)
            if fragment.text().strip() and ratio < READABLE:
                yield fragment.text()[:40], ratio
            parts += 1
