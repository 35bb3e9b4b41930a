"""Where the keyboard is can be seen: every control that takes the focus looks another way with it."""

from __future__ import annotations

from PySide6.QtCore import QPoint, QRect, Qt
from PySide6.QtGui import QImage
from PySide6.QtWidgets import QAbstractButton, QApplication, QComboBox, QLineEdit, QSlider, QTabBar, QWidget

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


def test_focus_can_be_seen_on_every_control(window: MainWindow) -> None:
    opened_options(window)
    window.activateWindow()
    kinds = (QAbstractButton, QLineEdit, QComboBox, QSlider, QTabBar)
    controls = [
        w
        for w in window.findChildren(QWidget)
        if isinstance(w, kinds) and w.isVisible() and w.isEnabled() and w.focusPolicy() & Qt.FocusPolicy.TabFocus
    ]
    canvas = window.centre.bars.canvas
    hidden: list[str] = []
    for control in [*controls[:60], canvas]:
        other = canvas if control is not canvas else window.panel.model.button
        other.setFocus(Qt.FocusReason.TabFocusReason)
        reveal(control)
        QApplication.processEvents()
        before = looks(window, control)
        control.setFocus(Qt.FocusReason.TabFocusReason)
        QApplication.processEvents()
        if changed(before, looks(window, control)) < LEAST_PIXELS:
            hidden.append(f"{type(control).__name__} {control.accessibleName() or getattr(control, 'text', str)()}")
    assert len(controls) > 30
    assert hidden == []
