"""Fixtures for the whole window: an application of its own per test, and nothing left running afterwards."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import QEvent, QLocale, QStandardPaths, QThreadPool, QTimer
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from kvplanner.app import settings as s
from kvplanner.app.library import Library
from kvplanner.app.start import start_state
from kvplanner.files import FOLDER_VARIABLE
from kvplanner.ui.window.application import Application
from kvplanner.ui.window.window import MainWindow
from tests.ui.kit import paint_theme, plain_look
from tests.ui.window.kit import words


@pytest.fixture(autouse=True)
def own_data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every test has settings and sessions of its own, and sees no GPU or model of this machine."""
    folder = tmp_path / "data"
    monkeypatch.setenv(FOLDER_VARIABLE, str(folder))
    for name in ("HF_HOME", "HF_HUB_CACHE", "OLLAMA_MODELS", "LLAMA_CACHE"):
        monkeypatch.setenv(name, str(tmp_path / "nothing"))
    monkeypatch.setenv("HOME", str(tmp_path))
    return folder


@pytest.fixture
def application(qapp: QApplication, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch) -> Iterator[Application]:
    """An application whose end leaves no thread, no timer and no window."""
    QStandardPaths.setTestModeEnabled(True)
    locale = QLocale()
    QLocale.setDefault(QLocale(QLocale.Language.English, QLocale.Country.UnitedKingdom))
    monkeypatch.setattr(Library, "probe_gpus", lambda self: self._probed(None))
    paint_theme(qapp, "light")  # a theme takes a dark ground for the system's wish, and another test may leave one
    qapp.setQuitOnLastWindowClosed(False)
    threads = {thread for thread in threading.enumerate() if not isinstance(thread, threading._DummyThread)}
    made = Application(qapp, theme="light")
    made.settings._values[s.TOURED.name] = True  # no card over what a test clicks; and nothing is written for that
    yield made
    made.shut_down()
    running = [t for w in made.windows for t in w.findChildren(QTimer) if t.isActive()]
    assert not running, f"timers still run: {[t.parent() for t in running]}"
    assert QThreadPool.globalInstance().activeThreadCount() == 0
    left = [t for t in threading.enumerate() if t not in threads and not isinstance(t, threading._DummyThread)]
    assert not left, f"threads still run: {left}"
    for window in made.windows:
        window.hide()
        window.deleteLater()
    made.deleteLater()
    QApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
    QApplication.processEvents()
    leftover = [w for w in QApplication.topLevelWidgets() if isinstance(w, MainWindow)]
    assert not leftover, "windows outlive the application"
    plain_look(qapp)
    # Other tests ask for the places of this machine, in its own language.
    QLocale.setDefault(locale)
    QStandardPaths.setTestModeEnabled(False)


@pytest.fixture
def open_window(application: Application, qtbot: QtBot) -> Callable[..., MainWindow]:
    """Makes a shown, filled window that plans what the arguments name."""

    def make(model: str = "Llama-3.1-8B-Instruct", gpu: str = "2xRTX 4090", **more: object) -> MainWindow:
        window = application.new_window()
        window.resize(1280, 800)
        window.show()
        window.fill()
        window.document.reset(start_state(words(model=model, gpu=gpu, **more), lambda: None))
        window.document.flush()
        qtbot.wait(1)
        return window

    return make


@pytest.fixture
def window(open_window: Callable[..., MainWindow]) -> MainWindow:
    """A window that plans Llama-3.1-8B-Instruct on two RTX 4090."""
    return open_window()
