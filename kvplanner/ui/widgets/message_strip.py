"""One message of the message bar: its text, what can be done about it, and how it goes away."""

from __future__ import annotations

from typing import Final

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QApplication, QFrame, QHBoxLayout, QLabel, QPushButton, QWidget

from kvplanner.app.messages import Message
from kvplanner.ui.widgets.labels import WrappedLabel, quiet_button

LEVEL_WORDS: Final = {"info": "Note", "success": "Done", "warning": "Warning", "error": "Error"}
SHOWN_MS: Final = 8000
AGAIN_MS: Final = 1000


class MessageStrip(QFrame):
    """One message with its buttons. dismissed(strip).

    Confirmations and notes go by themselves, but not a note that offers something, and none while the pointer or the
    focus is on the messages: what is about to be clicked stays where it is.
    """

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
        self.timer = QTimer(self)
        self.timer.setSingleShot(True)
        self.timer.timeout.connect(self._time_is_up)
        if message.level == "success" or (message.level == "info" and message.action is None):
            self.timer.start(SHOWN_MS)

    def _time_is_up(self) -> None:
        """Goes, unless the pointer or the focus is on this message or one beside it."""
        bar, focus = self.parentWidget() or self, QApplication.focusWidget()
        if bar.underMouse() or (focus is not None and bar.isAncestorOf(focus)):
            self.timer.start(AGAIN_MS)
        else:
            self.dismiss()

    def dismiss(self) -> None:
        """Take the message away."""
        self.hide()
        self.dismissed.emit(self)
        self.deleteLater()
