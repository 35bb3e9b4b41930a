"""Keys that are pressed before the window has its menus and its form: kept, and pressed again once they are there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from PySide6.QtCore import QEvent, QObject, Qt
from PySide6.QtGui import QAction, QKeyEvent, QKeySequence
from PySide6.QtWidgets import QApplication, QWidget

if TYPE_CHECKING:
    from kvplanner.ui.window.window import MainWindow

MOST: Final = 40  # a key that lies under a book is no wish


def keep(event: QKeyEvent, window: MainWindow) -> None:
    """Take a key that nothing answers to yet. The one that quits waits for nothing."""
    if event.key() == Qt.Key.Key_Q and event.modifiers() == Qt.KeyboardModifier.ControlModifier:
        window.services.windows.quit()
        return
    keys = window.findChild(EarlyKeys) or EarlyKeys(window)
    keys.add(event)


class EarlyKeys(QObject):
    """The keys of a window that is not furnished yet; gone once they are pressed again."""

    def __init__(self, window: MainWindow) -> None:
        super().__init__(window)
        self._window = window
        self._kept: list[QKeyEvent] = []
        window.filled.connect(self._press)

    def add(self, event: QKeyEvent) -> None:
        """Another one, after those that are kept."""
        if len(self._kept) < MOST:
            self._kept.append(event.clone())

    def _press(self) -> None:
        """In the order in which they came, each where the one before has led: a chooser that opens takes the rest."""
        kept, self._kept = self._kept, []
        self.deleteLater()
        for event in kept:
            action = self._action(event)
            if action is not None:
                action.trigger()
                continue
            focused: tuple[QWidget | None, ...] = (QApplication.focusWidget(), self._window.focusWidget())
            target = next((widget for widget in focused if widget is not None), self._window)
            for kind in (QEvent.Type.KeyPress, QEvent.Type.KeyRelease):
                again = QKeyEvent(kind, event.key(), event.modifiers(), event.text(), event.isAutoRepeat())
                QApplication.sendEvent(target, again)

    def _action(self, event: QKeyEvent) -> QAction | None:
        """The command whose shortcut a key is, where it can be given."""
        if event.key() in (Qt.Key.Key_unknown, 0):
            return None
        pressed = QKeySequence(event.keyCombination())
        actions = self._window.findChildren(QAction)
        return next((each for each in actions if each.isEnabled() and pressed in each.shortcuts()), None)
