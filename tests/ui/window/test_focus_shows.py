"""Where the keyboard is can be seen: every control that takes the focus looks another way with it."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QPoint, QRect, Qt
from PySide6.QtGui import QImage
from PySide6.QtWidgets import (
    QAbstractButton,
    QAbstractItemView,
    QApplication,
    QComboBox,
    QLineEdit,
    QPlainTextEdit,
    QSlider,
    QTabBar,
    QTextEdit,
    QWidget,
)
from pytestqt.qtbot import QtBot

from kvplanner.ui.window.focus import reveal
from kvplanner.ui.window.window import MainWindow
from tests.ui.window.kit import opened_options

LEAST_PIXELS = 40  # more than a text cursor


def looks(window: MainWindow, widget: QWidget) -> QImage:
    """A control and what stands right around it."""
    area = QRect(widget.mapTo(window, QPoint(0, 0)), widget.size()).adjusted(-4, -4, 4, 4)
    return window.grab(area).toImage()


def changed(one: QImage, other: QImage) -> int:
    """Pixels that differ."""
    before, after = (memoryview(image.constBits()).cast("I") for image in (one, other))
    return sum(a != b for a, b in zip(before, after, strict=True))


KINDS = (QAbstractButton, QLineEdit, QComboBox, QSlider, QTabBar, QAbstractItemView, QTextEdit, QPlainTextEdit)


def controls_of(ground: QWidget) -> list[QWidget]:
    """What Tab may lead to."""
    return [
        w
        for w in ground.findChildren(QWidget)
        if isinstance(w, KINDS) and w.isVisible() and w.isEnabled() and w.focusPolicy() & Qt.FocusPolicy.TabFocus
    ]


def unseen(window: MainWindow, controls: list[QWidget]) -> list[str]:
    """Controls that look the same with the keyboard and without it."""
    canvas, hidden = window.centre.bars.canvas, []
    for control in controls:
        other = canvas if control is not canvas else window.panel.model.button
        other.setFocus(Qt.FocusReason.TabFocusReason)
        reveal(control)
        QApplication.processEvents()
        before = looks(window, control)
        control.setFocus(Qt.FocusReason.TabFocusReason)
        QApplication.processEvents()
        if changed(before, looks(window, control)) < LEAST_PIXELS:
            hidden.append(f"{type(control).__name__} {control.accessibleName() or getattr(control, 'text', str)()}")
    return hidden


def test_focus_can_be_seen_on_every_control(window: MainWindow) -> None:
    opened_options(window)
    window.activateWindow()
    controls = controls_of(window)
    assert len(controls) > 30
    assert unseen(window, [*controls[:60], window.centre.bars.canvas]) == []


@pytest.mark.slow
@pytest.mark.parametrize("page", ["explain", "log", "ways", "fits", "compare", "launch"])
def test_focus_can_be_seen_in_every_page(window: MainWindow, qtbot: QtBot, page: str) -> None:
    window.resize(1600, 1000)
    window.activateWindow()
    assert window.centre.show_tab(page)
    if page == "compare":
        window.view.pin_plan()
        window.document.set_option("max_model_len", 8192)
        window.document.flush()
    window.centre.show_details()
    qtbot.wait(60)
    controls = controls_of(window.centre.below)
    assert len(controls) >= 3
    assert unseen(window, controls) == []
