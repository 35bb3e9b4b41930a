"""A window that is closed leaves nothing behind, and its memory is given back."""

from __future__ import annotations

import weakref
from collections.abc import Callable

import pytest
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from kvplanner.app import memory
from kvplanner.ui.window.application import Application
from kvplanner.ui.window.window import MainWindow


def test_a_closed_window_is_gone_and_its_memory_given_back(
    open_window: Callable[..., MainWindow],
    application: Application,
    qtbot: QtBot,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given: list[bool] = []

    really = memory.give_back

    def give_back() -> None:
        really()
        given.append(not [w for w in QApplication.allWidgets() if w.window() is w and w.objectName() == "closed"])

    monkeypatch.setattr(memory, "give_back", give_back)
    first, second = open_window(), open_window()
    first.setObjectName("closed")
    gone = weakref.ref(first)
    assert given == []
    first.close()
    del first
    qtbot.waitUntil(lambda: bool(given))
    assert given == [True], "once, and after its parts"
    assert gone() is None
    assert application.windows == [second]
