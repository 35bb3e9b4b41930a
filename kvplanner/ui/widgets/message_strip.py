"""One message of the message bar: its text, what can be done about it, and how it goes away."""

from __future__ import annotations

from typing import Final

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QPushButton, QWidget

from kvplanner.app.messages import Message
from kvplanner.ui.widgets.labels import WrappedLabel, quiet_button

LEVEL_WORDS: Final = {"info": "Note", "success": "Done", "warning": "Warning", "error": "Error"}
SHOWN_MS: Final = 8000


class MessageStrip(QFrame):
    """One message with its buttons. dismissed(strip)."""

    dismissed = Signal(object)

    def __init__(self, message: Message, parent: QWidget) -> None:
        super().__init__(parent)
        self.message = message
        self.setProperty("level", message.level)
        self.setAccessibleName(f"{LEVEL_WORDS[message.level]}: {message.text}")
        text = WrappedLabel(message.text, self)
        word = QLabel(f"<b>{LEVEL_WORDS[message.level]}</b>", self)
        word.setTextFormat(Qt.TextFormat.RichText)
        line = QHBoxLayout(self)
        line.setContentsMargins(12, 5, 6, 5)
        line.addWidget(word)
        line.addWidget(text, 1)
        if message.action is not None:
            label, action = message.action
            button = QPushButton(label, self)
            button.clicked.connect(action)
            button.clicked.connect(self.dismiss)
            line.addWidget(button)
        if message.details:
            copy = quiet_button("Copy details", "Copy the details of this message", self)
            copy.clicked.connect(lambda: QGuiApplication.clipboard().setText(message.details))
            line.addWidget(copy)
        close = quiet_button("✕", "Dismiss this message", self)
        close.clicked.connect(self.dismiss)
        line.addWidget(close)
        if message.level in ("info", "success"):
            timer = QTimer(self)
            timer.setSingleShot(True)
            timer.setInterval(SHOWN_MS)
            timer.timeout.connect(self.dismiss)
            timer.start()

    def dismiss(self) -> None:
        """Take the message away."""
        self.hide()
        self.dismissed.emit(self)
        self.deleteLater()
