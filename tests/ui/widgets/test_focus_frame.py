"""The frame around what has the keyboard."""

from __future__ import annotations

from PySide6.QtCore import QEvent
from PySide6.QtGui import QFocusEvent
from PySide6.QtWidgets import QApplication, QTableWidget
from pytestqt.qtbot import QtBot

from kvplanner.ui.widgets.focus_frame import FocusFrame


def test_it_follows_the_focus(qtbot: QtBot) -> None:
    table = QTableWidget(2, 2)
    qtbot.addWidget(table)
    frame = FocusFrame(table)
    table.show()
    QApplication.sendEvent(table, QFocusEvent(QEvent.Type.FocusIn))
    assert frame.isVisible()
    table.resize(300, 200)
    assert frame.geometry() == table.rect()
    QApplication.sendEvent(table, QFocusEvent(QEvent.Type.FocusOut))
    assert not frame.isVisible()


def test_an_area_that_is_deleted_with_the_focus_is_asked_nothing(qtbot: QtBot) -> None:
    """Its C++ part is gone for Python when Qt takes the focus away."""
    table = QTableWidget(2, 2)
    frame = FocusFrame(table)
    table.show()
    table.activateWindow()
    table.setFocus()
    qtbot.waitUntil(table.hasFocus)
    with qtbot.captureExceptions() as raised:
        table.deleteLater()
        QApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
    assert raised == []
    del frame
