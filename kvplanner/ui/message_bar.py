"""The message bar: messages stand above the plan, in the layout, and never cover anything."""

from __future__ import annotations

from typing import Final

from PySide6.QtCore import QTimer, Signal
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QPushButton, QSizePolicy, QVBoxLayout, QWidget

from kvplanner.app.messages import Message, Messages
from kvplanner.ui.setup.field import WrappedLabel, quiet_button

LEVEL_WORDS: Final = {"info": "Note", "success": "Done", "warning": "Warning", "error": "Error"}
SHOWN_MS: Final = 8000
MOST: Final = 3


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


class MessageBar(QWidget):
    """The newest messages, one line each."""

    def __init__(self, messages: Messages, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._strips: list[MessageStrip] = []
        self._layout = QVBoxLayout(self)
        self._layout.setContentsMargins(0, 0, 0, 0)
        self._layout.setSpacing(4)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Maximum)
        self.hide()
        messages.posted.connect(self.show_message)
        messages.cleared.connect(self.clear)

    @property
    def strips(self) -> list[MessageStrip]:
        """The messages that show, oldest first."""
        return [strip for strip in self._strips if not strip.isHidden()]

    def show_message(self, message: Message) -> None:
        """Add a message; one of the same key or text goes."""
        for strip in self.strips:
            if (message.key and strip.message.key == message.key) or strip.message.text == message.text:
                strip.dismiss()
        from PySide6.QtGui import QAccessible, QAccessibleEvent

        strip = MessageStrip(message, self)
        self._layout.addWidget(strip)
        strip.show()
        self._strips.append(strip)
        strip.dismissed.connect(self._forget)
        for old in self.strips[:-MOST]:
            old.dismiss()
        self.show()
        QAccessible.updateAccessibility(QAccessibleEvent(strip, QAccessible.Event.Alert))

    def clear(self, key: str) -> None:
        """Take back the messages of a key."""
        for strip in self.strips:
            if strip.message.key == key:
                strip.dismiss()
        self._settle()

    def _forget(self, strip: MessageStrip) -> None:
        if strip in self._strips:
            self._strips.remove(strip)
        self._settle()

    def _settle(self) -> None:
        self.setVisible(bool(self.strips))
