"""A text in several looks, laid out in lines, on whichever thread.

QTextLayout is a plain value. A QTextDocument is a QObject that connects signals of its own: off the main thread it can
wait for a lock of Qt's, with Python's lock in hand, for a thread that has the one and waits for the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from PySide6.QtCore import QPointF, Qt
from PySide6.QtGui import QFont, QPainter, QTextCharFormat, QTextLayout, QTextLine, QTextOption

from kvplanner.record import NamedTuple
from kvplanner.ui.theme.ink import colour
from kvplanner.ui.theme.palette import LIGHT

BREAK: Final = "\u2028"  # ends a line within a text
_FIXED: Final = ["DejaVu Sans Mono", "Consolas", "monospace"]


class Run(NamedTuple):
    """A part of a text in one look, for light paper; size: pixels."""

    text: str
    ink: str = LIGHT.text
    size: int = 12
    bold: bool = False
    fixed: bool = False


class Lines:
    """The lines of a text, no wider than `width` pixels; a longer word is broken."""

    def __init__(self, font: QFont, runs: Sequence[Run], width: float, *, right: bool = False) -> None:
        self._layout = QTextLayout("".join(run.text for run in runs), font)  # the lines are views of it
        option = QTextOption(Qt.AlignmentFlag.AlignRight if right else Qt.AlignmentFlag.AlignLeft)
        option.setWrapMode(QTextOption.WrapMode.WrapAtWordBoundaryOrAnywhere)
        self._layout.setTextOption(option)
        self._layout.setFormats(_formats(font, runs))
        self._lines: list[QTextLine] = []
        self._layout.beginLayout()
        while (line := self._layout.createLine()).isValid():
            line.setLineWidth(width)
            self._lines.append(line)
        self._layout.endLayout()
        self.heights = tuple(line.height() for line in self._lines)
        self.height = sum(self.heights)

    def draw(self, painter: QPainter, at: int, x: float, y: float) -> None:
        """One of the lines, with its left upper corner there; nothing beyond the last."""
        if at < len(self._lines):
            self._lines[at].draw(painter, QPointF(x, y))


def _formats(font: QFont, runs: Iterable[Run]) -> list[QTextLayout.FormatRange]:
    found, start = [], 0
    for run in runs:
        made = QTextLayout.FormatRange()
        made.start, made.length = start, len(run.text.encode("utf-16-le", "surrogatepass")) // 2
        made.format = _look(font, run)
        found.append(made)
        start += made.length
    return found


def _look(font: QFont, run: Run) -> QTextCharFormat:
    own = QFont(font)
    own.setPixelSize(run.size)
    if run.bold:
        own.setWeight(QFont.Weight.DemiBold)
    if run.fixed:
        own.setFamilies(_FIXED)
    made = QTextCharFormat()
    made.setFont(own)
    made.setForeground(colour(run.ink))
    return made
