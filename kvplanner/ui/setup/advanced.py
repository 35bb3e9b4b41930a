"""Advanced: every option of the engine from its declarations, searchable, the changed ones first."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from PySide6.QtCore import QPoint, Signal
from PySide6.QtWidgets import QApplication, QHBoxLayout, QLineEdit, QScrollArea, QVBoxLayout, QWidget

from kvplanner.ui.setup.advanced_row import OptionEntry, matches, searched
from kvplanner.ui.setup.column import Column
from kvplanner.ui.setup.field import tab_stops
from kvplanner.ui.setup.inputs import ROW_HEIGHT
from kvplanner.ui.widgets.labels import heading, muted_label, quiet_button

if TYPE_CHECKING:
    from kvplanner.engine.option import Option, OptionValue, Resolved
    from kvplanner.ui.setup.option_field import OptionField

CHANGED: Final = "Changed"
LIKELY_HEIGHT: Final = 68
HEAD: Final = "# "


class AdvancedSection(QWidget):
    """Closed it is one line; its rows are made when it is first opened. edited as OptionField.edited.

    allowed: as of OptionField. filled(): rows came or changed places, and all that are asked for stand.
    """

    edited = Signal(str, object, str)
    sealed = Signal()
    opened = Signal(bool)
    filled = Signal()
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
        self._rows = Column(self._make, LIKELY_HEIGHT, self._body)
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
        self.allowed: Callable[[str], Sequence[int]] = lambda name: ()
        self._options: tuple[Option, ...] = ()
        self._values: Mapping[str, OptionValue] = {}
        self._resolved: Mapping[str, Resolved] = {}
        self.entries: dict[str, OptionEntry] = {}
        self._declared: list[Option] = []  # of all versions; a row's key is its place here
        self._keys: dict[str, str] = {}
        self._made: dict[str, OptionEntry] = {}
        self._order: list[str] = []
        self._told: list[str] = []
        self._words: list[str] = []
        self._changed: frozenset[str] = frozenset()  # as the rows stand
        self._editing = self._late = ""
        self.toggle.toggled.connect(self._toggled)
        self.search.textChanged.connect(self._arrange)
        self._rows.filled.connect(self._stands)
        self._rows.height_changed.connect(self._lay_out)
        self._reset.clicked.connect(self.reset_all)
        application = QApplication.instance()
        assert isinstance(application, QApplication)
        application.focusChanged.connect(self._focus_moved)

    @property
    def filling(self) -> bool:
        """Whether rows are still being made."""
        return self._rows.filling

    def set_options(self, options: Sequence[Option]) -> None:
        """The options of an engine version."""
        if tuple(options) == self._options:
            return
        self._options = tuple(options)
        known = {option: str(at) for at, option in enumerate(self._declared)}
        for option in self._options:
            if option not in known:
                known[option] = str(len(self._declared))
                self._declared.append(option)
        self._keys = {option.name: known[option] for option in self._options}
        # Rows by declaration, kept for all versions: what changes between versions is a handful of options.
        self.entries = {name: self._made[key] for name, key in self._keys.items() if key in self._made}
        if self.toggle.isChecked():
            self._arrange()

    def show_values(self, values: Mapping[str, OptionValue], resolved: Mapping[str, Resolved]) -> None:
        """What the user set and what the plan made of the rest."""
        self._values, self._resolved = values, resolved
        changed = frozenset(name for name in values if name in self._keys)
        arrow = "▾" if self.toggle.isChecked() else "▸"
        self.toggle.setText(f"{len(self._options)} options, {len(changed)} changed {arrow}")
        self._reset.setEnabled(bool(changed))
        for name, entry in [*self.entries.items()]:  # a value may change the heights, and so bring another row in sight
            entry.show_value(values.get(name), resolved.get(name))
        moved = changed ^ self._changed
        here = self._editing or self._late
        if moved == {here} and self._holds_focus(here):
            self._late = here  # it is being edited where it stands
        elif moved and self.toggle.isChecked():
            self._arrange()
        elif not moved:
            self._late = ""

    def tab_stops(self) -> list[QWidget]:
        """What a keyboard reaches, in the order in which it is read."""
        stops: list[QWidget] = [self.toggle, self.search]
        for name in self._order:
            if name in self.entries:
                stops += tab_stops(self.entries[name].field)
        return [*stops, self._reset]

    def field(self, name: str) -> OptionField | None:
        """The field of an option, opening the section for it; None when the engine has no such option."""
        key = self._keys.get(name)
        if key is None:
            return None
        if not self.toggle.isChecked():
            self.toggle.setChecked(True)
        self._rows.widget(key)
        return self.entries[name].field

    def _toggled(self, on: bool) -> None:
        self._body.setVisible(on)
        if on:
            self._lay_out()  # tells the rows how wide they are
            self._arrange()
        else:
            self._rows.empty()
        self.show_values(self._values, self._resolved)
        self.opened.emit(on)

    def _make(self, key: str) -> QWidget:
        if key.startswith(HEAD):
            head = heading(key.removeprefix(HEAD), self._rows)
            head.setContentsMargins(0, 8, 0, 0)
            head.hide()
            return head
        option = self._declared[int(key)]
        entry = OptionEntry(option, self._rows)
        entry.hide()
        entry.field.allowed = lambda name: self.allowed(name)
        entry.field.edited.connect(self._edit)
        entry.field.sealed.connect(self.sealed)
        entry.field.error_changed.connect(self.error_changed)
        entry.show_value(self._values.get(option.name), self._resolved.get(option.name))
        entry.set_place(apart=option.name in self._changed, words=self._words)
        self.entries[option.name] = self._made[key] = entry
        return entry

    def _arrange(self) -> None:
        """Order by changed, then section; hide what the search does not ask for."""
        if not self.toggle.isChecked():
            return
        self._words = searched(self.search.text()).split()
        self._changed, self._late = frozenset(self._values) & self._keys.keys(), ""
        groups: dict[str, list[Option]] = {CHANGED: []}
        for option in self._options:
            title = CHANGED if option.name in self._changed else option.section
            groups.setdefault(title, []).append(option)
        items: list[tuple[str, bool]] = []
        self._order = []
        for title, options in groups.items():
            if not options:
                continue
            found = {o.name for o in options if matches(o, self._resolved.get(o.name), self._words)}
            items.append((HEAD + title, bool(found)))
            for option in options:
                name = option.name
                items.append((self._keys[name], name in found))
                self._order.append(name)
                if name in found and name in self.entries:
                    self.entries[name].set_place(apart=title == CHANGED, words=self._words)
        self._none.setVisible(not any(shown for _, shown in items))
        self._rows.arrange(items)

    def _lay_out(self) -> None:
        """Give all above the rows their places now: on its own each level takes a turn, and is seen as it was."""
        for widget in (self._body, self, self.parentWidget()):
            layout = widget.layout() if widget is not None else None
            if layout is not None:
                layout.activate()

    def _stands(self) -> None:
        made = [name for name in self._order if name in self.entries]
        if made != self._told:
            self._told = made
            self.filled.emit()

    # a row that is being edited stays where it is until the focus leaves it ---------------------------------------

    def _edit(self, name: str, value: object, key: str) -> None:
        self._editing = name
        self.edited.emit(name, value, key)
        self._editing = ""

    def _holds_focus(self, name: str) -> bool:
        entry, focus = self.entries.get(name), QApplication.focusWidget()
        return entry is not None and focus is not None and entry.isAncestorOf(focus)

    def _focus_moved(self, _old: QWidget | None, now: QWidget | None) -> None:
        """What has the focus now stays where it is in sight."""
        if not self._late or now is None or self._holds_focus(self._late):
            return
        ground = self.parentWidget()
        while ground is not None and not isinstance(ground, QScrollArea):
            ground = ground.parentWidget()
        content = ground.widget() if ground is not None else None
        if ground is None or content is None or not content.isAncestorOf(now):
            self._arrange()
            return
        before = now.mapTo(content, QPoint()).y()
        self._arrange()
        self._lay_out()
        bar = ground.verticalScrollBar()
        bar.setValue(bar.value() + now.mapTo(content, QPoint()).y() - before)
