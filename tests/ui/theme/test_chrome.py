"""Scroll bars, tabs, menus and heads are drawn by the style: where their parts are, and that no style sheet is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from PySide6.QtCore import QPoint, QRect, Qt
from PySide6.QtGui import QColor, QPalette
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QComboBox, QMenu, QScrollBar, QStyle, QStyleOptionSlider, QTabBar
from pytestqt.qtbot import QtBot

import kvplanner
from kvplanner.ui.theme import chrome
from kvplanner.ui.theme.geometry import TAB_AIR, TAB_TIGHT, TIGHT
from kvplanner.ui.theme.palette import LIGHT
from kvplanner.ui.theme.style import Style
from kvplanner.ui.window.window import MainWindow

PART = QStyle.SubControl
LENGTH = 240


def test_no_style_sheet_is_in_force(window: MainWindow) -> None:
    """One would keep rules for every part of every widget: more than half of a window's memory."""
    assert isinstance(QApplication.style(), Style)
    assert QApplication.instance().styleSheet() == ""  # type: ignore[union-attr]  # there is one, else the test ends here
    source = Path(kvplanner.__file__).parent
    assert [p for p in source.rglob("*.py") if re.search(r"setStyleSheet\(", p.read_text("utf-8"))] == []


@pytest.mark.parametrize("across", [True, False])
@pytest.mark.parametrize("mirrored", [True, False])
@pytest.mark.parametrize("most", [0, 1, 50, 10**6])
def test_the_parts_of_a_scroll_bar_fill_it(across: bool, mirrored: bool, most: int) -> None:
    option = QStyleOptionSlider()
    option.orientation = Qt.Orientation.Horizontal if across else Qt.Orientation.Vertical
    option.direction = Qt.LayoutDirection.RightToLeft if mirrored else Qt.LayoutDirection.LeftToRight
    option.rect = QRect(5, 7, LENGTH, 10) if across else QRect(5, 7, 10, LENGTH)
    option.minimum, option.maximum, option.pageStep = 0, most, 100
    before = -1
    for position in sorted({0, most // 2, most}):
        option.sliderPosition = position
        slider = chrome.scroll_part(PART.SC_ScrollBarSlider, option)
        parts = [slider, *(chrome.scroll_part(p, option) for p in (PART.SC_ScrollBarSubPage, PART.SC_ScrollBarAddPage))]
        sizes = [part.width() if across else part.height() for part in parts]
        assert sum(sizes) == LENGTH
        assert sizes[0] >= min(28, LENGTH)
        assert all(option.rect.contains(part) for part in parts if not part.isEmpty())
        assert sizes[1] > before or most == 0, "it goes on with the position"
        before = sizes[1]
    ends = (slider.left(), slider.right()) if across else (slider.top(), slider.bottom())
    last = (5, LENGTH + 4) if across else (7, LENGTH + 6)
    assert ends[1] == last[1] if not (across and mirrored) else ends[0] == last[0]
    assert chrome.scroll_part(PART.SC_ScrollBarAddLine, option).isEmpty()


def test_a_scroll_bar_is_dragged_and_paged(window: MainWindow, qtbot: QtBot) -> None:
    bar = QScrollBar(Qt.Orientation.Vertical)
    qtbot.addWidget(bar)
    bar.setRange(0, 1000)
    bar.setPageStep(100)
    bar.resize(bar.sizeHint().width(), LENGTH)
    bar.show()
    assert bar.width() == 10
    QTest.mouseClick(bar, Qt.MouseButton.LeftButton, pos=QPoint(5, LENGTH - 5))
    assert bar.value() == 100
    image = bar.grab().toImage()
    assert image.pixelColor(5, LENGTH // 10 + 14).name() in (LIGHT.border, LIGHT.outline)
    assert image.pixelColor(5, LENGTH - 5) == bar.palette().color(QPalette.ColorRole.Window)
    QTest.mousePress(bar, Qt.MouseButton.LeftButton, pos=QPoint(5, 30))
    QTest.mouseMove(bar, QPoint(5, 30 + LENGTH))
    QTest.mouseRelease(bar, Qt.MouseButton.LeftButton, pos=QPoint(5, 30 + LENGTH))
    assert bar.value() == 1000


def test_a_tight_bar_of_tabs_leaves_less_air(window: MainWindow, qtbot: QtBot) -> None:
    wide, tight = QTabBar(), QTabBar()
    for bar in (wide, tight):
        qtbot.addWidget(bar)
        bar.setProperty(TIGHT, bar is tight)
        bar.addTab("Explain")
        bar.setExpanding(False)
    assert wide.tabSizeHint(0).width() - tight.tabSizeHint(0).width() == 2 * (TAB_AIR - TAB_TIGHT)
    assert tight.tabSizeHint(0).width() >= tight.fontMetrics().horizontalAdvance("Explain") + 2 * TAB_TIGHT


def test_a_menu_has_room_for_its_texts_ticks_and_keys(window: MainWindow, qtbot: QtBot) -> None:
    menu = QMenu()
    qtbot.addWidget(menu)
    menu.addAction("Copy as Text").setShortcut("Ctrl+Shift+C")
    plain, metrics = menu.sizeHint().width(), menu.fontMetrics()
    words = metrics.horizontalAdvance("Copy as Text") + metrics.horizontalAdvance("Ctrl+Shift+C")
    assert plain >= words + 48
    ticked = menu.addAction("Setup")
    ticked.setCheckable(True)
    assert menu.sizeHint().width() > plain
    separator = menu.addSeparator()
    menu.addAction("Quit")
    menu.resize(menu.sizeHint())
    assert menu.actionGeometry(separator).height() == 9
    before = menu.grab().toImage()
    ticked.setChecked(True)
    area = menu.actionGeometry(ticked)
    after = menu.grab().toImage()
    changed = [x for x in range(area.left(), area.right()) for y in range(area.top(), area.bottom())
               if before.pixel(x, y) != after.pixel(x, y)]  # fmt: skip
    assert changed
    assert max(changed) < area.left() + 36, "the tick is left of the text"


@pytest.mark.qt_log_ignore("does not support grabbing the keyboard", extend=True)
def test_the_list_of_a_choice_shows_its_lines(window: MainWindow, qtbot: QtBot) -> None:
    """Qt asks for them as for a menu's, but without the size of their texts."""
    box = QComboBox()
    qtbot.addWidget(box)
    box.addItems(["vLLM", "SGLang", "llama.cpp"])
    box.show()
    box.showPopup()
    lines = box.view()
    qtbot.waitUntil(lines.isVisible)
    lines.resize(200, 120)
    areas = [lines.visualRect(box.model().index(row, 0)) for row in range(3)]
    text = box.fontMetrics().height()
    assert all(text <= area.height() <= 2 * text for area in areas)
    image, panel = lines.viewport().grab().toImage(), QColor(LIGHT.panel)
    second = areas[1].intersected(image.rect())
    dark = [x for x in range(second.left(), second.right()) for y in range(second.top(), second.bottom())
            if image.pixelColor(x, y).lightness() < 120]  # fmt: skip
    assert dark, "its text"
    assert image.pixelColor(second.right() - 2, second.center().y()) == panel
    box.hidePopup()
