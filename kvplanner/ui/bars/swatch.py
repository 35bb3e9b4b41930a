"""Small squares in a segment's colour and pattern, for tables and legends."""

from __future__ import annotations

from typing import Final

from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import QPainter, QPixmap

from kvplanner.engine.segment import SegmentKind
from kvplanner.ui.theme.ink import colour, fill_pattern, fill_plain, fill_segment, pen
from kvplanner.ui.theme.palette import Tokens

SWATCH: Final = 13


def swatch(kind: SegmentKind | None, tokens: Tokens, *, missing: bool = False, ratio: float = 2.0) -> QPixmap:
    """A small square in a segment's colour and pattern."""
    made = QPixmap(QSize(round(SWATCH * ratio), round(SWATCH * ratio)))
    made.setDevicePixelRatio(ratio)
    made.fill(Qt.GlobalColor.transparent)
    painter = QPainter(made)
    paint_swatch(painter, QRectF(0, 0, SWATCH, SWATCH), kind, tokens, missing=missing)
    painter.end()
    return made


def paint_swatch(
    painter: QPainter, box: QRectF, kind: SegmentKind | None, tokens: Tokens, *, missing: bool = False
) -> None:
    """The same at a place of a picture."""
    painter.setRenderHint(QPainter.RenderHint.Antialiasing, on=True)
    if missing:
        fill_plain(painter, box, colour(tokens.danger_soft))
        fill_pattern(painter, box, "up", pen(tokens.danger, 2.0), 6)
        painter.setPen(pen(tokens.danger))
        painter.drawRect(box.adjusted(0.5, 0.5, -0.5, -0.5))
    elif kind is not None:
        if kind != "headroom":
            fill_segment(painter, box, tokens.segments[kind])
        painter.setPen(pen(tokens.outline))
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.drawRect(box.adjusted(0.5, 0.5, -0.5, -0.5))
