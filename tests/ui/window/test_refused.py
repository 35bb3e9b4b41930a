"""Text that a field refuses is in no plan: whatever leaves the window says so or does not leave."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QClipboard, QGuiApplication
from PySide6.QtWidgets import QFileDialog
from pytestqt.qtbot import QtBot

from kvplanner.app import planstore
from kvplanner.engine.request import Load
from kvplanner.ui.setup import wish
from kvplanner.ui.setup.gpu_section import DeviceRow
from kvplanner.ui.setup.inputs import ValueEdit
from kvplanner.ui.window.tabbed import plan_mime
from kvplanner.ui.window.window import MainWindow
from tests.ui.window.kit import Keyboard


def clipboard() -> QClipboard:
    """What was copied."""
    return QGuiApplication.clipboard()


def type_into(edit: ValueEdit, text: str, *, enter: bool = True) -> None:
    """Replace what stands in a field."""
    edit.window().activateWindow()
    edit.setFocus()
    edit.selectAll()
    Keyboard().type(text)
    if enter:
        Keyboard().press(Qt.Key.Key_Return)


def context(window: MainWindow) -> ValueEdit:
    """The field of the context length."""
    return next(e for e in window.panel.fields["max_model_len"].inputs if isinstance(e, ValueEdit))


def said(window: MainWindow) -> str:
    """The last message."""
    strips = window.centre.messages.strips
    return strips[-1].message.text if strips else ""


@pytest.mark.parametrize("engine", ["vllm", "sglang", "llamacpp", "ollama"])
def test_a_version_that_is_none_stops_nothing_that_spells_options(window: MainWindow, engine: str) -> None:
    window.document.edit("Choose the engine", engine=engine, version="32k", options={})
    window.document.flush()
    assert window.document.error is not None
    clipboard().setText("before")
    window.copying.copy_command()
    assert clipboard().text() != "before"
    assert "have no plan: --engine-version: '32k' is no" in said(window)
    assert plan_mime(window).text() == clipboard().text()
    wish.ask(window.document, wish.Wish(context=4096))
    assert list(window.document.state.ask.options.values()) == [4096]


@pytest.mark.parametrize("enter", [True, False])
def test_no_copy_of_a_plan_without_what_the_form_shows(window: MainWindow, enter: bool) -> None:
    for copy in (window.copying.copy_text, window.copying.copy_markdown, window.copying.copy_json):
        type_into(context(window), "abc", enter=enter)
        clipboard().setText("before")
        copy()
        assert clipboard().text() == "before", copy
        assert "context length is refused" in said(window)
        type_into(context(window), "4096", enter=enter)
        copy()
        assert clipboard().text() != "before"
        assert window.document.state.ask.options == {"max_model_len": 4096}


def test_no_export_of_a_plan_without_what_the_form_shows(window: MainWindow) -> None:
    type_into(context(window), "abc")
    window.exports.png()
    assert not window.findChildren(QFileDialog)
    assert "to export: context length is refused" in said(window)


def test_a_refused_free_memory_counts_as_well(window: MainWindow) -> None:
    window.panel.gpus.toggle.setChecked(True)
    row = window.panel.gpus.findChildren(DeviceRow)[1]
    type_into(row.free, "much")
    clipboard().setText("before")
    window.copying.copy_text()
    assert clipboard().text() == "before"
    assert "free memory of GPU 1 is refused" in said(window)
    type_into(row.free, "20GiB")
    assert window.panel.refused == ("", "")
    window.copying.copy_text()
    assert clipboard().text() != "before"


def test_a_command_and_a_file_without_it_say_so(window: MainWindow, qtbot: QtBot, tmp_path: Path) -> None:
    window.document.edit("Load", load=Load(4, 100, 100))
    window.document.flush()
    type_into(context(window), "abc")
    window.copying.copy_command()
    assert "--max-model-len" not in clipboard().text()
    assert "Copied, without context length, which is refused: 'abc'" in said(window)
    path = tmp_path / "mine.kvplan.json"
    window.saving.save_to(path)
    qtbot.waitUntil(lambda: "Saved without context length" in said(window))
    assert planstore.read(path).ask.load == Load(4, 100, 100)
    type_into(context(window), "8192")
    window.saving.save_to(path)
    qtbot.waitUntil(lambda: not window.document.modified)
    assert "Saved without" not in said(window)
    assert planstore.read(path).ask.options == {"max_model_len": 8192}


def test_what_is_refused_is_not_lost_by_closing(
    open_window: Callable[..., MainWindow], qtbot: QtBot, tmp_path: Path
) -> None:
    window = open_window()
    path = tmp_path / "mine.kvplan.json"
    window.saving.save_to(path)
    qtbot.waitUntil(lambda: window.document.path == path)
    window.document.set_option("max_num_seqs", 7)
    window.document.flush()
    type_into(context(window), "abc")
    window.saving.save_to(path, then_close=True)
    assert "is refused" in said(window)
    assert window.document.modified
    assert window.isVisible()


def test_what_is_being_typed_is_saved(window: MainWindow, qtbot: QtBot, tmp_path: Path) -> None:
    type_into(context(window), "2048", enter=False)
    path = tmp_path / "mine.kvplan.json"
    window.saving.save_to(path)
    qtbot.waitUntil(lambda: window.document.path == path)
    assert planstore.read(path).ask.options == {"max_model_len": 2048}
