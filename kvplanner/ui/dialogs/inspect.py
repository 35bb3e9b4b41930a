"""Inspect: what the chosen model is, in the same words as the terminal's `inspect`."""

from __future__ import annotations

from typing import Final

from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QDialog, QDialogButtonBox, QPlainTextEdit, QVBoxLayout, QWidget

from kvplanner.model.model import Model
from kvplanner.report.inspect import inspect
from kvplanner.report.inspect_text import lines
from kvplanner.ui.theme.ink import fixed

_SIZE: Final = (920, 600)


class InspectDialog(QDialog):
    """A model's parameters, layers, tensors, caches and oddities, to read and to copy."""

    def __init__(self, model: Model, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setWindowTitle(f"Inspect {model.id.rsplit('/', 1)[-1]}")
        self.text = QPlainTextEdit("\n".join(lines(inspect(model))), self)
        self.text.setReadOnly(True)
        self.text.setFont(fixed(self.font()))
        self.text.setAccessibleName("What the model is")
        self.text.setTabChangesFocus(True)
        buttons = QDialogButtonBox(QDialogButtonBox.StandardButton.Close, self)
        copy = buttons.addButton("&Copy as text", QDialogButtonBox.ButtonRole.ActionRole)
        copy.clicked.connect(self.copy)
        buttons.rejected.connect(self.reject)
        layout = QVBoxLayout(self)
        layout.addWidget(self.text, 1)
        layout.addWidget(buttons)
        self.resize(*_SIZE)

    def copy(self) -> None:
        """The whole text to the clipboard."""
        QGuiApplication.clipboard().setText(self.text.toPlainText())
