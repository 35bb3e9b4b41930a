"""The message bar: messages stand above the plan, in the layout, and never cover anything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from PySide6.QtWidgets import QSizePolicy, QVBoxLayout, QWidget

from kvplanner.app.messages import Message, Messages

if TYPE_CHECKING:
    from kvplanner.ui.widgets.message_strip import MessageStrip

MOST: Final = 3


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

        from kvplanner.ui.widgets.message_strip import MessageStrip

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
