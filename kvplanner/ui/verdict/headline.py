"""The verdict's sentence, in lines about equally long."""

from __future__ import annotations

import re
from typing import Final

from PySide6.QtCore import QRect, Qt
from PySide6.QtGui import QFontMetrics, QPainter, QPaintEvent

from kvplanner.ui.theme.ink import colour, tokens_of
from kvplanner.ui.widgets.labels import Wrapped

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
