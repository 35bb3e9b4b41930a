"""Another theme colours each widget once, and the same one none."""

from __future__ import annotations

from collections import Counter

from PySide6.QtCore import QEvent, QObject
from PySide6.QtGui import QPalette
from PySide6.QtWidgets import QApplication, QToolButton

from kvplanner.ui.theme.palette import CONTRAST_LIGHT, DARK, LIGHT
from kvplanner.ui.theme.theme import Choice
from kvplanner.ui.window.application import Application
from kvplanner.ui.window.window import MainWindow


class Dressed(QObject):
    """Counts what a widget is told of its style."""

    def __init__(self) -> None:
        super().__init__()
        self.count: Counter[QEvent.Type] = Counter()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        self.count[event.type()] += 1
        return False


def test_each_widget_is_coloured_once(window: MainWindow, application: Application) -> None:
    widget, seen = window.findChild(QToolButton), Dressed()
    assert isinstance(widget, QToolButton)
    widget.installEventFilter(seen)
    theme = application.theme
    changes: tuple[tuple[Choice, object, int], ...] = (
        ("dark", DARK, 1), ("light", LIGHT, 1), ("system", LIGHT, 0), ("contrast", CONTRAST_LIGHT, 1),
        ("light", LIGHT, 1),
    )  # fmt: skip
    for choice, tokens, most in changes:
        seen.count.clear()
        theme.set_choice(choice)
        QApplication.processEvents()
        assert theme.tokens == tokens
        assert seen.count[QEvent.Type.StyleChange] == 0, choice
        assert seen.count[QEvent.Type.PaletteChange] <= most, choice
        assert window.palette().color(QPalette.ColorRole.Window).name() == theme.tokens.window.lower()
