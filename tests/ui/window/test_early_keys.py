"""Keys that come before the window has its menus and its form are not lost."""

from __future__ import annotations

from typing import Final

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from kvplanner.ui.window.application import Application
from kvplanner.ui.window.arguments import parse
from kvplanner.ui.window.early_keys import MOST
from kvplanner.ui.window.run import begin
from kvplanner.ui.window.window import MainWindow

CTRL: Final = Qt.KeyboardModifier.ControlModifier


@pytest.fixture
def bare(application: Application) -> MainWindow:
    """A window at its first frame: it shows, and has neither menus nor form."""
    window = application.first_window()
    window.ready.connect(lambda: begin(application, window, parse([])))
    window.show()
    window.activateWindow()
    assert not window.furnished
    return window


def test_what_is_typed_at_once_searches_for_a_model(bare: MainWindow, qtbot: QtBot) -> None:
    QTest.keyClicks(bare, "qwen3")
    qtbot.waitSignal(bare.filled, timeout=20_000).wait()
    chooser = bare.pickers.model_chooser
    assert chooser.isVisible()
    assert chooser._edit.text() == "qwen3"
    QTest.keyClicks(chooser._edit, " 30b")
    assert chooser._edit.text() == "qwen3 30b"


def test_a_shortcut_pressed_at_once_is_obeyed_once(bare: MainWindow, qtbot: QtBot) -> None:
    before = bare.services.unit()
    QTest.keyClick(bare, Qt.Key.Key_U, CTRL)
    qtbot.waitSignal(bare.filled, timeout=20_000).wait()
    assert bare.services.unit() != before
    bare.filled.emit()
    assert bare.services.unit() != before


def test_keys_are_answered_in_their_order(bare: MainWindow, qtbot: QtBot) -> None:
    QTest.keyClick(bare, Qt.Key.Key_2, CTRL)
    QTest.keyClicks(bare, "h200")
    qtbot.waitSignal(bare.filled, timeout=20_000).wait()
    assert not bare.pickers.model_chooser.isVisible()
    assert bare.pickers.gpu_chooser.isVisible()
    assert bare.pickers.gpu_chooser._edit.text() == "h200"


@pytest.mark.slow
def test_a_key_that_stays_down_fills_nothing(bare: MainWindow, qtbot: QtBot) -> None:
    QTest.keyClicks(bare, "x" * (3 * MOST))
    qtbot.waitSignal(bare.filled, timeout=20_000).wait()
    assert bare.pickers.model_chooser._edit.text() == "x" * MOST


def test_the_key_that_quits_waits_for_nothing(
    bare: MainWindow, application: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []
    monkeypatch.setattr(application, "quit", lambda: asked.append(True))
    QTest.keyClick(bare, Qt.Key.Key_Q, CTRL)
    assert asked == [True]
    assert not bare.furnished
    QApplication.processEvents()
