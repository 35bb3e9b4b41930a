"""How the verdict's texts are broken: its sentence into lines about equally long, its facts between two of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import ceil
from typing import Final

from PySide6.QtCore import QEvent, QRect, Qt
from PySide6.QtGui import QFontMetrics, QFontMetricsF, QPainter, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QWidget

from kvplanner.report import words
from kvplanner.ui.theme.figures import shown, verbatim
from kvplanner.ui.theme.ink import colour, tokens_of
from kvplanner.ui.widgets.labels import Wrapped

DOT: Final = " · "
_BEFORE_UNIT: Final = re.compile(r"(?<=\d) (?=GiB|GB|MiB|MB|tokens)")


def with_its_unit(text: str, space: str = "\u00a0") -> str:
    """A text of which no number ends a line whose unit begins the next. space: as it is written in the text."""
    return _BEFORE_UNIT.sub(space, text)


def balanced_width(text: str, metrics: QFontMetrics, room: int) -> int:
    """The least width at which a text takes no more lines than in `room`: so no word stands alone on the last one."""

    def height(width: int) -> int:
        return metrics.boundingRect(QRect(0, 0, width, 10_000), Qt.TextFlag.TextWordWrap, text).height()

    wanted = height(room)
    if wanted <= metrics.height() * 1.5:
        return room
    low, high = room // 3, room
    while high - low > 4:
        middle = (low + high) // 2
        low, high = (low, middle) if height(middle) <= wanted else (middle, high)
    return high


class Headline(Wrapped):
    """A sentence whose lines are about equally long; it takes the height of any other label."""

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draws the words at the least width that needs no more lines."""
        painter = QPainter(self)
        box, metrics = QRect(self.rect()), self.fontMetrics()
        text = with_its_unit(self.text())
        needed = metrics.boundingRect(box, Qt.TextFlag.TextWordWrap, text).height()
        text = text if needed <= box.height() + metrics.leading() else self.text()
        box.setWidth(balanced_width(text, metrics, max(box.width(), 1)))
        painter.setPen(colour(tokens_of(self).text))  # a palette set while another arrives would not stay
        flags = Qt.TextFlag.TextWordWrap | Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter
        painter.drawText(box, int(flags), text)
        painter.end()


class Details(Wrapped):
    """Short facts in lines of whole facts with dots between them, none at a line's end; the last may be a link."""

    as_shown = staticmethod(verbatim)  # each fact has been made so before it is measured

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._facts: tuple[str, ...] = ()
        self._link = ""
        self._apart = False

    def show_facts(self, facts: Sequence[str], link: str, *, apart: bool = False) -> None:
        """Shows facts and, where it is not "", a last one as a link; apart: each in a line of its own."""
        self._facts, self._link, self._apart = tuple(map(shown, facts)), shown(link), apart
        self._flow()

    def height_of(self, width: int) -> int:
        """Lines of whole facts are as high as their number says; at a width that is not its own, wrapped ones about."""
        rows, fits = self._rows(width)
        if not fits and self._lines(width) == self.text():
            return super().height_of(width)
        metrics = QFontMetricsF(self.font())
        count = len(rows) if fits else sum(self._wrapped(row, width) for row in rows)
        return count * ceil(metrics.height() + max(metrics.leading(), 0))

    def _wrapped(self, row: list[int], width: int) -> int:
        """The lines that a line takes which is too long for this width."""
        facts, metrics = (*self._facts, self._link), self.fontMetrics()
        text = with_its_unit(DOT.join(facts[number] for number in row))
        box = metrics.boundingRect(QRect(0, 0, max(width, 1), 10_000), Qt.TextFlag.TextWordWrap, text)
        return max(round(box.height() / metrics.lineSpacing()), 1)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Other lines for another width."""
        super().resizeEvent(event)
        self._flow()

    def changeEvent(self, event: QEvent) -> None:
        """Follows theme and font."""
        super().changeEvent(event)
        if event.type() in (QEvent.Type.PaletteChange, QEvent.Type.FontChange):
            self._flow()

    def _flow(self) -> None:
        self._heights.clear()
        text = self._lines(self.width())
        if text != self.text():
            self.setText(text)

    def _rows(self, width: int) -> tuple[list[list[int]], bool]:
        """Which facts stand in which line of this width, and whether each line has room for its own."""
        metrics = self.fontMetrics()
        rows: list[list[int]] = []
        taken, fits = width, True
        gap = metrics.horizontalAdvance(DOT)
        for number, fact in enumerate((*self._facts, self._link) if self._link else self._facts):
            wide = metrics.horizontalAdvance(fact) + 2
            if self._apart or taken + gap + wide > width:
                rows.append([])
                taken = -gap
            taken += gap + wide
            fits = fits and taken <= width
            rows[-1].append(number)
        return rows, fits

    def _lines(self, width: int) -> str:
        tokens = tokens_of(self)
        facts = [*map(_kept_together, self._facts), _linked(self._link, tokens.accent)]
        rows, _ = self._rows(width)
        lines = (DOT.join(facts[number] for number in row) for row in rows)
        return f'<span style="color:{tokens.muted}">{"<br>".join(lines)}</span>'


def _kept_together(text: str) -> str:
    """Rich text of which no number is left alone at a line's end."""
    return with_its_unit(words.rich(text), "&nbsp;").replace("≈ ", "≈&nbsp;")


def _linked(text: str, ink: str) -> str:
    plain = words.rich(text).replace(" ", "&nbsp;")
    return f'<a href="tightest" style="color:{ink};text-decoration:underline">{plain}</a>'
