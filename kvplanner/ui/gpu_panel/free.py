"""The row that takes what other programs hold into the plan: once, or kept up to date."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QCheckBox, QHBoxLayout, QLabel, QPushButton, QSizePolicy, QWidget


class FreeRow(QWidget):
    """wanted(): plan with what is free now."""

    wanted = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._usable, self._on_air = False, True
        self.text = QLabel(self)
        self.text.setWordWrap(True)
        self.text.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Preferred)
        self.use = QPushButton("&Plan with this", self)
        self.use.setToolTip("Take what is free now as the memory that the engine finds when it starts")
        self.use.clicked.connect(self.wanted)
        self.keep = QCheckBox("&keep up to date", self)
        self.keep.setToolTip("The plan follows what other programs hold")
        self.keep.toggled.connect(self._toggled)
        line = QHBoxLayout(self)
        line.setContentsMargins(0, 2, 0, 2)
        line.addWidget(self.text, 1)
        line.addWidget(self.use)
        line.addWidget(self.keep)
        self.hide()

    @property
    def live(self) -> bool:
        """Whether the plan follows."""
        return self.keep.isChecked()

    def set_live(self, on: bool) -> None:
        """Whether what shows is this machine now: a recording changes no plan."""
        self._on_air = on
        self._enable()

    def set_text(self, text: str, usable: bool) -> None:
        """What other programs hold; usable: the plan uses these GPUs."""
        self.text.setText(text)
        self._usable = usable
        self._enable()
        self.setVisible(bool(text))

    def _enable(self) -> None:
        for widget in (self.use, self.keep):
            widget.setEnabled(self._usable and self._on_air)

    def _toggled(self, on: bool) -> None:
        if on:
            self.wanted.emit()
