"""A row of Advanced: an option with what it does, its flag, its default and why, and what a search found in it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QVBoxLayout, QWidget

from kvplanner.report.options import option_label
from kvplanner.ui.setup.option_field import OptionField, field_for
from kvplanner.ui.widgets.labels import WrappedLabel

if TYPE_CHECKING:
    from kvplanner.engine.option import Option, OptionValue, Resolved


def searched(text: str) -> str:
    """A text as it is searched: flags are found with dashes and with underscores."""
    return text.replace("_", "-").lower()


def marked(text: str, words: Sequence[str]) -> str:
    """A text as HTML, with what a search found in bold."""
    from html import escape  # its table of entities is only needed for a search

    found = searched(text)
    bold = [False] * len(text)
    for word in words:
        at = found.find(word)
        while at >= 0:
            bold[at : at + len(word)] = [True] * len(word)
            at = found.find(word, at + 1)
    runs = ((on, "".join(text[i] for i in run)) for on, run in groupby(range(len(text)), key=bold.__getitem__))
    parts = ((on, escape(run).replace("\n", "<br>")) for on, run in runs)
    return "".join(f"<b>{part}</b>" if on else part for on, part in parts)


def about(option: Option, resolved: Resolved | None, *, apart: bool = False) -> str:
    """What an option does, and below it its flag and what the default is; apart: not under its section's heading."""
    reason = resolved.reason if resolved and resolved.origin != "user" and resolved.reason else option.default
    parts = [option.env] if option.env else [option.spelled, *option.flags[1:], option.env_also]
    if reason:
        parts.append(f"default: {reason}")
    if not option.modelled:
        parts.append("not modelled: the plan does not follow it")
    if apart:
        parts.append(option.section)
    return f"{option.help}\n{' · '.join(part for part in parts if part)}"


def matches(option: Option, resolved: Resolved | None, words: Sequence[str]) -> bool:
    """Whether all words of a search stand in what an option's row says, or in its section's heading."""
    if not words:
        return True
    text = searched(f"{option_label(option)} {about(option, resolved)} {option.section}")
    return all(word in text for word in words)


class OptionEntry(QWidget):
    """An option with what it does, its flag, its default and why."""

    def __init__(self, option: Option, parent: QWidget) -> None:
        super().__init__(parent)
        self.option = option
        self._shown: object = None
        self._words: list[str] = []
        self._resolved: Resolved | None = None
        self._apart = False
        self.field: OptionField = field_for(option, self)
        self.about = WrappedLabel("", self, exact=True)
        self.about.setProperty("role", "muted")
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 4, 0, 4)
        layout.setSpacing(1)
        layout.addWidget(self.field)
        layout.addWidget(self.about)

    def show_value(self, value: OptionValue | None, resolved: Resolved | None) -> None:
        """Show a value, its flag and what the default is."""
        if self._shown == (value, resolved) and self.field.error.isHidden():
            return
        self._shown, self._resolved = (value, resolved), resolved
        self.field.set_value(value, resolved)
        self._show_text()

    def write_anew(self) -> None:
        """Figures look otherwise now."""
        self.field.write_anew()
        self._show_text()

    def set_place(self, *, apart: bool, words: Sequence[str]) -> None:
        """Whether the row stands apart from its section, and what a search found: set in bold."""
        words = [word for word in words if len(word) > 1]  # a letter is everywhere
        if (apart, words) != (self._apart, self._words):
            self._apart, self._words = apart, words
            self._show_text()

    def _show_text(self) -> None:
        title, text = self.field.title, about(self.option, self._resolved, apart=self._apart)
        found = bool(self._words)
        if found:
            title, text = marked(title, self._words), marked(text, self._words)
        for label in (self.field.label, self.about):
            label.setTextFormat(Qt.TextFormat.RichText if found else Qt.TextFormat.PlainText)
        self.field.label.setText(title)
        # A long name of an environment variable may break at its words.
        self.about.setText(text.replace("_", "_\u200b"))
