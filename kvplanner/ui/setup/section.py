"""A section of the form: a heading, its rows, and a place for an error that belongs to the section."""

from __future__ import annotations

from PySide6.QtWidgets import QVBoxLayout, QWidget

from kvplanner.ui.widgets.labels import ErrorLabel, heading


class Section(QWidget):
    """Rows under a heading."""

    def __init__(self, title: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.title = title
        self.rows = QVBoxLayout(self)
        self.rows.setContentsMargins(0, 0, 0, 0)
        self.rows.setSpacing(4)
        self.rows.addWidget(heading(title, self))
        self.error = ErrorLabel(self)
        self.rows.addWidget(self.error)
        self.fields: list[QWidget] = []

    def add(self, widget: QWidget) -> None:
        """Append a row, above the place for errors."""
        self.rows.insertWidget(self.rows.count() - 1, widget)
        self.fields.append(widget)

    def set_error(self, text: str) -> None:
        """Say what is wrong here; "" takes it back."""
        self.error.say(text)
