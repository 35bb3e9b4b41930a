"""Helpers for tests that drive the window."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from PySide6.QtCore import Qt
from PySide6.QtGui import QAccessible, QAccessibleInterface
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QWidget

from kvplanner.request.words import PlanWords
from kvplanner.ui.explain.view import ExplainView
from kvplanner.ui.setup.advanced import AdvancedSection
from kvplanner.ui.setup.option_field import SliderField, TextField
from kvplanner.ui.startup.view import StartupView
from kvplanner.ui.window.centre import Centre
from kvplanner.ui.window.window import MainWindow


def words(**fields: Any) -> PlanWords:
    """Plan arguments."""
    return PlanWords(**fields)


def text_field(window: MainWindow, option: str) -> TextField | SliderField:
    """The input of an option that has text to edit."""
    field = window.panel.fields[option]
    assert isinstance(field, TextField | SliderField)
    return field


def explanation(centre: Centre) -> ExplainView:
    """The page that explains the selection."""
    page = centre.below.page("explain")
    assert isinstance(page, ExplainView)
    return page


def chart(centre: Centre) -> StartupView:
    """The chart of start-up, in its tab or below the table."""
    page = centre.below.page("startup")
    assert isinstance(page, StartupView)
    return page


def opened_options(window: MainWindow) -> AdvancedSection:
    """The section of all options, opened, once all its rows stand."""
    section = window.panel.advanced
    assert section is not None
    section.toggle.setChecked(True)
    settled(section)
    return section


def settled(section: AdvancedSection) -> None:
    """Wait until its rows have their places."""
    calm = 0
    for _ in range(2000):
        QTest.qWait(1)
        calm = 0 if section.filling else calm + 1
        if calm == 2:  # what was shown last may have asked for another height
            return
    raise AssertionError("rows are still on the move")


class Keyboard:
    """Sends keys to whatever has the focus, as a person would, and counts them."""

    def __init__(self) -> None:
        self.pressed = 0

    def _target(self) -> QWidget:
        widget = QApplication.focusWidget()
        assert widget is not None, "nothing has the focus"
        return widget

    def type(self, text: str) -> None:
        """One key press per character."""
        for character in text:
            self.pressed += 1
            QTest.keyClicks(self._target(), character)

    def press(self, key: Qt.Key, modifiers: Qt.KeyboardModifier = Qt.KeyboardModifier.NoModifier) -> None:
        """One key press."""
        self.pressed += 1
        QTest.keyClick(self._target(), key, modifiers)


def accessible_tree(widget: QWidget) -> Iterator[QAccessibleInterface]:
    """Every visible accessible object below a widget, as a screen reader would meet it."""
    root = QAccessible.queryAccessibleInterface(widget)
    assert root is not None, "nothing of this widget is told to a screen reader"
    waiting = [root]
    while waiting:
        item = waiting.pop()
        yield item
        for i in range(item.childCount()):
            child = item.child(i)
            if child.isValid() and not child.state().invisible:
                waiting.append(child)
