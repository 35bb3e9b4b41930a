"""Texts of several lines, quiet lines, headings, errors, and buttons that look like text."""

from __future__ import annotations

from typing import Final

from PySide6.QtCore import QEvent, QSize, Qt
from PySide6.QtGui import QFont, QResizeEvent, QShowEvent
from PySide6.QtWidgets import QLabel, QSizePolicy, QToolButton, QWidget

from kvplanner.ui.theme.figures import shown

LONGEST_RUN: Final = 24
LEAST_LINE: Final = 40


def breakable(text: str) -> str:
    """A text whose long words may break within, since file names have no blanks: after a mark, or anywhere in a run."""
    import re

    place = re.compile(rf"([_\-./]|\w{{{LONGEST_RUN}}})(?=.)")
    words = (place.sub("\\1\u200b", word) if len(word) > LONGEST_RUN else word for word in text.split(" "))
    return " ".join(words)


class Wrapped(QLabel):
    """A label of several lines. Layouts ask for its height over and over: it lays its text out once for each width."""

    as_shown = staticmethod(shown)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._heights: dict[int, int] = {}
        self.setTextFormat(Qt.TextFormat.PlainText)
        self.setWordWrap(True)

    def setText(self, text: str) -> None:
        """Another text has other heights."""
        text = self.as_shown(text)
        if text != self.text():
            self._heights.clear()
            super().setText(text)

    def heightForWidth(self, width: int) -> int:
        """The height that the lines of this width take."""
        known = self._heights.get(width)
        if known is None:
            known = self._heights[width] = self.height_of(width)
        return known

    def height_of(self, width: int) -> int:
        """The same, worked out."""
        return super().heightForWidth(width)

    def changeEvent(self, event: QEvent) -> None:
        """Another font has other heights, too."""
        self._heights.clear()
        super().changeEvent(event)


class Elided(QLabel):
    """One line that is cut with an ellipsis where it has no room; the whole of it is its hint then."""

    def __init__(self, text: str = "", parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.full = ""
        self.hint = ""
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Preferred)
        self.setText(text)

    def setText(self, text: str) -> None:
        """Another line."""
        text = shown(text)
        if text != self.full:
            self.full = text
            self.setAccessibleName(text)
            self.updateGeometry()
        self._cut()

    def sizeHint(self) -> QSize:
        """Room for the whole line."""
        margins = self.contentsMargins()
        wide = self.fontMetrics().horizontalAdvance(self.full) + margins.left() + margins.right() + 2
        return QSize(wide if self.full else 0, super().sizeHint().height())

    def minimumSizeHint(self) -> QSize:
        """A few letters."""
        return QSize(min(LEAST_LINE, self.sizeHint().width()), super().minimumSizeHint().height())

    def resizeEvent(self, event: QResizeEvent) -> None:
        """More or less of it."""
        super().resizeEvent(event)
        self._cut()

    def _cut(self) -> None:
        room = self.contentsRect().width()
        shown = self.fontMetrics().elidedText(self.full, Qt.TextElideMode.ElideRight, max(room, 0))
        if shown != self.text():
            super().setText(shown)
        self.setToolTip(self.full if shown != self.full else self.hint)


class WrappedLabel(QLabel):
    """A text of several lines that gets the height it takes: layouts within layouts lose it. exact: and no more."""

    def __init__(self, text: str = "", parent: QWidget | None = None, *, exact: bool = False) -> None:
        super().__init__(shown(text), parent)
        self.setTextFormat(Qt.TextFormat.PlainText)
        self._exact = exact
        self.setWordWrap(True)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Preferred)

    def setText(self, text: str) -> None:
        """Another text may need another height."""
        super().setText(shown(text))
        if self.isVisible():
            self._fit()

    def resizeEvent(self, event: QResizeEvent) -> None:
        """At another width the text takes another height."""
        super().resizeEvent(event)
        self._fit()

    def showEvent(self, event: QShowEvent) -> None:
        """The text may have changed while it was hidden."""
        super().showEvent(event)
        self._fit()

    def _fit(self) -> None:
        height = max(0, self.heightForWidth(self.width()))
        self.setMinimumHeight(height)
        if self._exact:
            self.setMaximumHeight(height)


class ErrorLabel(WrappedLabel):
    """What is wrong, hidden while nothing is. It may quote what was typed: plain text, and long words break."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__("", parent)
        self.setTextFormat(Qt.TextFormat.PlainText)
        self.setProperty("role", "error")
        self.message = ""
        self.hide()

    def say(self, text: str) -> None:
        """Show a message, "" for none."""
        self.message = text
        self.setText(breakable(text))
        self.setVisible(bool(text))


def spoken(widget: QWidget, name: str) -> None:
    """Name a list, which stands where it belongs already, for a screen reader.

    On Linux a list's name is what is chosen in it, whatever its accessible name: a label says what it is for, here one
    that cannot be seen.
    """
    widget.setAccessibleName(name)
    label = QLabel(name, widget.parentWidget())
    label.setBuddy(widget)
    label.hide()


def muted_label(text: str = "", parent: QWidget | None = None) -> QLabel:
    """A quiet line of text that wraps."""
    label = QLabel(text, parent)
    label.setProperty("role", "muted")
    label.setWordWrap(True)
    return label


def heading(text: str, parent: QWidget | None = None) -> QLabel:
    """A section's title."""
    label = QLabel(text.upper(), parent)
    label.setProperty("role", "heading")
    label.setAccessibleName(text)
    font = label.font()
    font.setPointSizeF(font.pointSizeF() * 0.85)
    font.setWeight(QFont.Weight.DemiBold)
    font.setLetterSpacing(QFont.SpacingType.AbsoluteSpacing, 0.6)
    label.setFont(font)
    return label


def quiet_button(text: str, name: str, parent: QWidget | None = None) -> QToolButton:
    """A button that looks like text until it is pointed at; `name` is what a screen reader says."""
    button = QToolButton(parent)
    button.setText(text)
    button.setProperty("quiet", "true")
    button.setAccessibleName(name)
    button.setToolTip(name)
    button.setFocusPolicy(Qt.FocusPolicy.TabFocus)
    return button
