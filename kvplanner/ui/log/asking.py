"""What a log leaves out of a plan, asked for field by field."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QFormLayout, QLabel, QLineEdit, QWidget

_LABELS: Final = {"model": "&Model", "gpus": "&GPUs", "version": "&Release"}
_TIPS: Final = {
    "model": "The log names none, or a folder of another machine: a catalogue name, a folder or a file",
    "gpus": "The log does not name them: for example 2xRTX 4090",
    "version": "The log does not state the engine's release; empty for the newest known",
}


class Asking(QWidget):
    """A line for each field that is missing, with what the present plan has. entered(): Enter was pressed in one."""

    entered = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._form = QFormLayout(self)
        self._form.setContentsMargins(0, 4, 0, 4)
        self.note = QLabel("The log does not state:", self)
        self._form.addRow(self.note)
        self.fields: dict[str, QLineEdit] = {}
        for name, label in _LABELS.items():
            field = self.fields[name] = QLineEdit(self)
            field.setToolTip(_TIPS[name])
            field.setAccessibleName(label.replace("&", ""))
            field.returnPressed.connect(self.entered)
            self._form.addRow(label, field)
        self.set_missing({})

    def set_missing(self, proposed: Mapping[str, str]) -> None:
        """Asks for these, with a proposal for each; hides without any."""
        for name, field in self.fields.items():
            self._form.setRowVisible(field, name in proposed)
            field.setText(proposed.get(name, ""))
            field.setCursorPosition(0)
        self.setVisible(bool(proposed))

    def answers(self) -> dict[str, str]:
        """What stands in the fields that are asked for."""
        return {name: field.text().strip() for name, field in self.fields.items() if self._form.isRowVisible(field)}
