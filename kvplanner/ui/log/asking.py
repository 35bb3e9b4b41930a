"""What a log leaves out of a plan, asked for field by field."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QCompleter, QGridLayout, QLabel, QLineEdit, QVBoxLayout, QWidget

from kvplanner.engine.option import Option
from kvplanner.report.options import option_label
from kvplanner.ui.widgets.labels import Wrapped

_LABELS: Final = {"model": "&Model", "gpus": "&GPUs", "version": "&Release"}
_TIPS: Final = {
    "model": "The log names none, or a folder of another machine: a catalogue name, a folder or a file",
    "gpus": "The log does not name them: for example 2xRTX 4090",
    "version": "The log does not state the engine's release; empty for the newest known",
}
NEEDED: Final = "The log does not state:"
ASSUMED: Final = "These neither, which are taken at their defaults unless you know better:"
_COLUMNS: Final = 2
_SHORT: Final = 12  # letters that a field has room for


class Asking(QWidget):
    """A line for each field that is missing, with what the present plan has. entered(): Enter was pressed in one.

    Options that the log leaves open stand below, empty for the engine's default, which shows in them.
    """

    entered = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.note = QLabel(NEEDED, self)
        self.assumed = Wrapped(self)
        self.assumed.setText(ASSUMED)
        self.assumed.setProperty("role", "muted")
        needed = self._needed = QGridLayout()
        self._options = QGridLayout()
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 4, 0, 4)
        column.setSpacing(4)
        column.addWidget(self.note)
        column.addLayout(needed)
        column.addWidget(self.assumed)
        column.addLayout(self._options)
        self.fields: dict[str, QLineEdit] = {}
        self.options: dict[str, QLineEdit] = {}
        self._labels: dict[str, QLabel] = {}
        self._asked: tuple[Option, ...] = ()
        self._shown: list[QWidget] = []
        for row, (name, text) in enumerate(_LABELS.items()):
            self.fields[name], self._labels[name] = self._line(needed, row, 0, text, _TIPS[name])
        needed.setColumnStretch(1, 1)
        self.set_missing({})

    def _line(self, grid: QGridLayout, row: int, column: int, text: str, tip: str) -> tuple[QLineEdit, QLabel]:
        label, field = QLabel(text, self), QLineEdit(self)
        label.setBuddy(field)
        field.setToolTip(tip)
        field.setAccessibleName(text.replace("&", ""))
        field.returnPressed.connect(self.entered)
        grid.addWidget(label, row, column)
        grid.addWidget(field, row, column + 1)
        return field, label

    def set_missing(
        self, proposed: Mapping[str, str], options: Sequence[Option] = (), seen: Mapping[str, str] | None = None
    ) -> None:
        """Asks for these, with a proposal for each; hides without any. seen: what the log lets guess of options."""
        for name, field in self.fields.items():
            field.setVisible(name in proposed)
            self._labels[name].setVisible(name in proposed)
            field.setText(proposed.get(name, ""))
            field.setCursorPosition(0)
        self._ask_options(tuple(options), seen or {})
        self.note.setVisible(bool(proposed))
        self.assumed.setVisible(bool(self._asked))
        self.setVisible(bool(proposed or self._asked))

    def ask(self, name: str, proposal: str) -> None:
        """Asks for one more, or again."""
        self.fields[name].setText(proposal)
        for widget in (self.fields[name], self._labels[name], self.note):
            widget.show()
        self.show()

    def _ask_options(self, options: tuple[Option, ...], seen: Mapping[str, str]) -> None:
        for widget in self._shown:  # leaves its layout as it is deleted
            widget.hide()
            widget.deleteLater()
        self._asked, self.options, self._shown = options, {}, []
        for place, option in enumerate(options):
            row, column = divmod(place, _COLUMNS)
            tip = f"{option.help}. Default: {option.default}"
            field, label = self._line(self._options, row, 2 * column, option_label(option), tip)
            self._shown += (field, label)
            field.setPlaceholderText(option.default if len(option.default) <= _SHORT else "default")
            field.setText(seen.get(option.name, ""))
            if option.choices:
                completer = QCompleter(list(option.choices), field)
                completer.setFilterMode(Qt.MatchFlag.MatchContains)
                field.setCompleter(completer)
            field.show()
            self.options[option.name] = field
        for column in range(_COLUMNS):
            self._options.setColumnStretch(2 * column + 1, 1)

    def answers(self) -> dict[str, str]:
        """What stands in the fields that are asked for."""
        return {name: field.text().strip() for name, field in self.fields.items() if not field.isHidden()}

    def chosen(self) -> dict[str, str]:
        """What was said of options, those left empty apart."""
        return {name: text for name, field in self.options.items() if (text := field.text().strip())}
