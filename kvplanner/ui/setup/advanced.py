"""Advanced: every option of the engine from its declarations, searchable, the changed ones first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QHBoxLayout, QLineEdit, QVBoxLayout, QWidget

from kvplanner.ui.setup.field import WrappedLabel, heading, muted_label, quiet_button, tab_stops
from kvplanner.ui.setup.inputs import ROW_HEIGHT
from kvplanner.ui.setup.option_field import OptionField, field_for

if TYPE_CHECKING:
    from kvplanner.engine.base import Option, OptionValue, Resolved


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


class OptionEntry(QWidget):
    """An option with what it does, its flag, its default and why."""

    def __init__(self, option: Option, parent: QWidget) -> None:
        super().__init__(parent)
        self.option = option
        self._shown: object = None
        self._words: list[str] = []
        self._about = ""
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
        self._shown = (value, resolved)
        self.field.set_value(value, resolved)
        option = self.option
        reason = resolved.reason if resolved and resolved.origin != "user" and resolved.reason else option.default
        parts = [option.env] if option.env else [option.spelled, *option.flags[1:], option.env_also]
        if reason:
            parts.append(f"default: {reason}")
        if not option.modelled:
            parts.append("not modelled: the plan does not follow it")
        if value is not None:
            parts.append(option.section)  # its heading is "Changed" then
        self._about = f"{option.help}\n{' · '.join(part for part in parts if part)}"
        self._show_text()

    def matches(self, words: Sequence[str]) -> bool:
        """Whether all words of a search stand in what the row says, or in its heading."""
        text = searched(f"{self.field.title} {self._about} {self.option.section}")
        return all(word in text for word in words)

    def mark(self, words: list[str]) -> None:
        """Set what a search found in bold."""
        words = [word for word in words if len(word) > 1]  # a letter is everywhere
        if words != self._words:
            self._words = words
            self._show_text()

    def _show_text(self) -> None:
        title, about = self.field.title, self._about
        found = bool(self._words)
        if found:
            title, about = marked(title, self._words), marked(about, self._words)
        for label in (self.field.label, self.about):
            label.setTextFormat(Qt.TextFormat.RichText if found else Qt.TextFormat.PlainText)
        self.field.label.setText(title)
        # A long name of an environment variable may break at its words.
        self.about.setText(about.replace("_", "_\u200b"))


class AdvancedSection(QWidget):
    """Closed it is one line; its rows are made when it is first opened. edited as OptionField.edited."""

    edited = Signal(str, object, str)
    sealed = Signal()
    opened = Signal(bool)
    error_changed = Signal()
    reset_all = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.toggle = quiet_button("▸", "Show every option of the engine", self)
        self.toggle.setCheckable(True)
        top = QHBoxLayout()
        self.title = heading("Advanced", self)
        top.addWidget(self.title)
        top.addStretch(1)
        top.addWidget(self.toggle)
        self._body = QWidget(self)
        self._body.hide()
        self.search = QLineEdit(self._body)
        self.search.setPlaceholderText("Search flags and what they do")
        self.search.setAccessibleName("Search options")
        self.search.setClearButtonEnabled(True)
        self.search.setMinimumHeight(ROW_HEIGHT)
        self.search.setTextMargins(4, 0, 4, 0)
        self._reset = quiet_button("Reset all", "Give every option back to its default", self._body)
        self._rows = QWidget(self._body)
        self._list = QVBoxLayout(self._rows)
        self._list.setContentsMargins(0, 0, 0, 0)
        self._list.setSpacing(0)
        self._none = muted_label("No option says that. Flags that do not touch memory are not listed.", self._body)
        self._none.hide()
        body = QVBoxLayout(self._body)
        body.setContentsMargins(0, 4, 0, 0)
        body.addWidget(self.search)
        body.addWidget(self._none)
        body.addWidget(self._rows)
        body.addWidget(self._reset)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addLayout(top)
        layout.addWidget(self._body)
        self._options: tuple[Option, ...] = ()
        self._values: Mapping[str, OptionValue] = {}
        self._resolved: Mapping[str, Resolved] = {}
        self.entries: dict[str, OptionEntry] = {}
        self._made: dict[Option, OptionEntry] = {}
        self._headings: dict[str, QWidget] = {}
        self._order: list[str] = []
        self.toggle.toggled.connect(self._toggled)
        self.search.textChanged.connect(self._arrange)
        self._reset.clicked.connect(self.reset_all)

    def set_options(self, options: Sequence[Option]) -> None:
        """The options of an engine version."""
        if tuple(options) == self._options:
            return
        self._options = tuple(options)
        for entry in self.entries.values():
            entry.hide()
        self.entries = {}
        if self.toggle.isChecked():
            self._build()

    def show_values(self, values: Mapping[str, OptionValue], resolved: Mapping[str, Resolved]) -> None:
        """What the user set and what the plan made of the rest."""
        self._values, self._resolved = values, resolved
        known = {option.name for option in self._options}
        changed = sum(name in known for name in values)
        arrow = "▾" if self.toggle.isChecked() else "▸"
        self.toggle.setText(f"{len(self._options)} options, {changed} changed {arrow}")
        self._reset.setEnabled(changed > 0)
        for name, entry in self.entries.items():
            entry.show_value(values.get(name), resolved.get(name))

    def tab_stops(self) -> list[QWidget]:
        """What a keyboard reaches, in the order in which it is read."""
        stops: list[QWidget] = [self.toggle, self.search]
        for name in self._order:
            if name in self.entries:
                stops += tab_stops(self.entries[name].field)
        return [*stops, self._reset]

    def field(self, name: str) -> OptionField | None:
        """The field of an option, opening the section for it; None when the engine has no such option."""
        if all(option.name != name for option in self._options):
            return None
        if not self.toggle.isChecked():
            self.toggle.setChecked(True)
        return self.entries[name].field

    def _toggled(self, on: bool) -> None:
        if on and not self.entries:
            self._build()
        elif on:
            self._arrange()
        self._body.setVisible(on)
        self.show_values(self._values, self._resolved)
        self.opened.emit(on)

    def _build(self) -> None:
        """Rows by declaration, kept for all versions: what changes between versions is a handful of options."""
        for option in self._options:
            entry = self._made.get(option)
            if entry is None:
                entry = self._made[option] = OptionEntry(option, self._rows)
                entry.field.edited.connect(self.edited)
                entry.field.sealed.connect(self.sealed)
                entry.field.error_changed.connect(self.error_changed)
            self.entries[option.name] = entry
        self._arrange()

    def _arrange(self) -> None:
        """Order by changed, then section; hide what the search does not ask for."""
        words = searched(self.search.text()).split()
        changed = [o for o in self._options if o.name in self._values]
        groups: dict[str, list[Option]] = {"Changed": changed} if changed else {}
        for option in self._options:
            if option.name not in self._values:
                groups.setdefault(option.section, []).append(option)
        # Each row that appears in a visible widget would arrange the whole form anew.
        self._rows.hide()
        for other, old in self._headings.items():
            old.setVisible(False)
            if other not in groups:
                self._list.removeWidget(old)
        any_shown = False
        self._order = []
        at = 0
        for title, options in groups.items():
            shown = [o for o in options if self.entries[o.name].matches(words)]
            head = self._headings.get(title)
            if head is None:
                head = self._headings[title] = heading(title, self._rows)
                head.setContentsMargins(0, 8, 0, 0)
            self._list.insertWidget(at, head)
            head.setVisible(bool(shown))
            at += 1
            for option in options:
                entry = self.entries[option.name]
                self._list.insertWidget(at, entry)
                if option in shown:
                    entry.mark(words)
                entry.setVisible(option in shown)
                self._order.append(option.name)
                at += 1
            any_shown = any_shown or bool(shown)
        self._none.setVisible(not any_shown)
        self._rows.show()
