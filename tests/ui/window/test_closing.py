"""A window that is closed leaves nothing behind, and its memory is given back."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from pathlib import Path

import pytest
from PySide6.QtWidgets import QApplication, QMessageBox
from pytestqt.qtbot import QtBot

from kvplanner.app import memory
from kvplanner.app.jobs import JobControl
from kvplanner.engine.llamacpp import tensors
from kvplanner.engine.shared import identity
from kvplanner.gpu.names import short_name
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


def test_what_was_worked_out_for_closed_models_is_forgotten(
    open_window: Callable[..., MainWindow], application: Application, qtbot: QtBot
) -> None:
    """The results that are remembered by what a model is keep the model: a large one would stay for good."""

    def remembered() -> list[dict[object, object]]:
        return [found for found in identity._KEPT if found]

    window = open_window()
    for engine in ("llamacpp", "sglang", "vllm"):
        window.document.edit("Choose another engine", engine=engine, version=None, options={})
        window.document.flush()
        assert window.document.plan is not None
    qtbot.waitUntil(lambda: not application.jobs.active)
    assert len(remembered()) > 20
    assert tensors._block.cache_info().currsize > 0
    memory.give_back()  # as when a window is closed
    assert remembered() == []
    assert tensors._block.cache_info().currsize == short_name.cache_info().currsize == 0
    window.document.set_option("max_model_len", 4096)
    window.document.flush()
    assert window.document.plan is not None


@pytest.mark.parametrize("well", [True, False])
def test_the_last_window_waits_for_what_is_being_written_and_stays_where_that_fails(
    window: MainWindow, application: Application, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch, well: bool
) -> None:
    """A report that was saved just before the end was lost, and nobody was told."""
    closed: list[object] = []
    window.closed.connect(closed.append)
    monkeypatch.setattr(application.app, "quit", lambda: None)
    go = threading.Event()

    def write(control: JobControl) -> None:
        go.wait(60)
        if not well:
            raise OSError(28, "No space left on device")

    def failed(error: Exception) -> None:
        window.messages.error(error, "The report was not saved")

    application.jobs.submit("Saving", write, lambda _: None, failed, writes=True)
    assert not window.close()
    assert not closed
    go.set()
    qtbot.waitUntil(lambda: not application.jobs.active)
    if well:
        assert closed == [window]
    else:
        assert not closed
        assert "No space left" in window.centre.messages.strips[-1].message.text
        assert window.close()


def test_what_is_edited_after_the_question_is_asked_for_again(
    window: MainWindow, application: Application, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Discard was answered, then a file that was still being written failed and the window stayed."""
    monkeypatch.setattr(application.app, "quit", lambda: None)
    window.saving.save_to(tmp_path / "p.kvplan.json")
    qtbot.waitUntil(lambda: not application.jobs.active)
    window.document.set_option("max_model_len", 4096)
    assert window.saving.loses_edits()
    go = threading.Event()

    def write(control: JobControl) -> None:
        go.wait(60)
        raise OSError(28, "No space left on device")

    application.jobs.submit("Saving", write, lambda _: None, lambda error: None, writes=True)
    window.saving._answered(QMessageBox.StandardButton.Discard.value)
    go.set()
    qtbot.waitUntil(lambda: not application.jobs.active)
    assert window.isVisible()
    assert not window.saving.loses_edits()
    window.document.set_option("max_model_len", 2048)
    assert window.saving.loses_edits()


def test_a_further_window_may_close_while_the_first_waits_for_a_file(
    open_window: Callable[..., MainWindow], application: Application, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that waited was closed again once the file was there, and it was gone."""
    monkeypatch.setattr(application.app, "quit", lambda: None)
    go = threading.Event()
    first = open_window()
    application.jobs.submit("Saving", lambda control: go.wait(60), lambda _: None, lambda error: None, writes=True)
    assert not first.close()
    second = open_window()
    assert first.close()
    go.set()
    qtbot.waitUntil(lambda: not application.jobs.active)
    assert application.windows == [second]


def test_asked_again_a_window_closes_at_once(
    window: MainWindow, application: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(application.app, "quit", lambda: None)
    go = threading.Event()
    written: list[str] = []

    def write(control: JobControl) -> None:
        go.wait(60)
        written.append("whole")

    application.jobs.submit("Saving", write, lambda _: None, lambda error: None, writes=True)
    assert not window.close()
    threading.Timer(0.05, go.set).start()
    assert window.close()
    assert written == ["whole"], "the end of the application still finished it"
