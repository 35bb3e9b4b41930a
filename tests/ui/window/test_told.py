"""Words of the window: what it calls things, no command of the terminal's, nothing cut off, nothing silent."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from PySide6.QtGui import QFontMetrics, QGuiApplication
from PySide6.QtWidgets import QApplication, QLabel
from pytestqt.qtbot import QtBot

from kvplanner.app import settings as s
from kvplanner.app.messages import in_window
from kvplanner.catalog import models
from kvplanner.model.whatif import WHATIF_FORMATS
from kvplanner.ui.setup.gpu_section import DeviceRow
from kvplanner.ui.setup.inputs import ValueEdit
from kvplanner.ui.setup.model_section import stored_text, would_store_text
from kvplanner.ui.widgets.labels import ErrorLabel
from kvplanner.ui.window.application import Application
from kvplanner.ui.window.commands.opening import distinct_names
from kvplanner.ui.window.window import MainWindow
from kvplanner.units import ByteUnit

SAMPLE = ("meta-llama/Llama-3.1-8B-Instruct", "deepseek-ai/DeepSeek-R1", "Qwen/Qwen3-0.6B")


def errors_of(window: MainWindow) -> str:
    """What the form shows in red."""
    return " ".join(label.message for label in window.panel.findChildren(ErrorLabel) if label.message)


def test_an_unknown_draft_model_sends_to_the_chooser(open_window: Callable[..., MainWindow], qtbot: QtBot) -> None:
    window = open_window("Qwen3-8B", gpu="H100")
    window.document.set_option("speculative_model", "nobody/nothing-1b")
    qtbot.waitUntil(lambda: window.document.error is not None)
    shown = " ".join(label.text() for label in window.findChildren(QLabel) if label.isVisibleTo(window))
    shown += errors_of(window) + " ".join(strip.message.text for strip in window.centre.messages.strips)
    assert "Choose Model… (Ctrl+1) searches the bundled ones" in shown
    assert "kvplanner models" not in shown


def test_an_unknown_gpu_sends_to_the_chooser(window: MainWindow) -> None:
    window.machines.choose("TPU")
    assert "Choose GPUs… (Ctrl+2) lists all" in errors_of(window)
    window.machines.choose("0.1x")
    assert "kvplanner" not in errors_of(window)


def test_menu_entries_are_called_so(window: MainWindow) -> None:
    for name, told in (("choose_model", "models"), ("choose_gpus", "gpus")):
        action = window.actions_of_window.by_name[name]
        called = f"{action.text().replace('&', '')} ({action.shortcut().toString()})"
        assert in_window(f"kvplanner {told} lists them") == f"{called} lists them"
    assert in_window("Name a GPU, for example --gpu H100") == "Name a GPU, for example H100"
    example = "no model is named. Example: kvplanner plan Llama-3.1-8B-Instruct --gpu H100"
    assert in_window(example) == "no model is named. Choose Model… (Ctrl+1), or name it in the command"
    assert in_window("Name the model that lies there: kvplanner plan MODEL -- …") == "Name the model that lies there"
    assert in_window("kvplanner was not closed properly") == "kvplanner was not closed properly"


@pytest.mark.parametrize("text", ["1,5", "3.7", "abc", "1 5x"])
def test_what_is_refused_is_quoted_as_it_was_typed(window: MainWindow, text: str) -> None:
    field = window.panel.fields["max_model_len"]
    edit = next(e for e in field.inputs if isinstance(e, ValueEdit))
    edit.setText(text)
    edit.editingFinished.emit()
    assert f"'{text}' is not a " in field.error.message
    load = window.panel.load
    assert load is not None
    load.users.setText(text)
    load.users.editingFinished.emit()
    assert f"'{text}' is not a " in load.error.message


def test_a_refused_size_is_quoted_as_it_was_typed(window: MainWindow) -> None:
    window.panel.gpus.toggle.setChecked(True)
    row = window.panel.gpus.findChildren(DeviceRow)[0]
    row.free.setText("1,5 much")
    row.free.editingFinished.emit()
    assert "'1,5 much'" in row.error.message


def test_a_what_if_is_called_as_in_the_list(window: MainWindow) -> None:
    for name in ("AWQ 4-bit", "GGUF Q4_K_M"):
        window.document.edit("What if", weight_format=name)
        window.document.flush()
        assert f" as {name} · stored 14.96 GiB" in window.panel.model.button.accessibleDescription()
        window.copying.copy_command()
        assert QGuiApplication.clipboard().text().startswith(f"# needs a checkpoint in {name}\n")


@pytest.mark.parametrize("unit", ["GiB", "GB"])
def test_no_size_of_a_model_is_cut(window: MainWindow, unit: ByteUnit) -> None:
    button = window.panel.model.button
    metrics, room = QFontMetrics(button._small()), button.width() - 20
    for entry in models.index():
        model = models.load(entry.id)
        texts = [stored_text(model, unit)]
        if entry.id in SAMPLE:
            texts += [would_store_text(model, name, unit) for name in WHATIF_FORMATS]
        for text in texts:
            assert metrics.horizontalAdvance(text) <= room, text


def test_a_broken_settings_file_is_told(
    qapp: QApplication, own_data_folder: Path, request: pytest.FixtureRequest
) -> None:
    own_data_folder.mkdir(parents=True)
    (own_data_folder / "settings.json").write_text('{"theme": ')
    application: Application = request.getfixturevalue("application")
    window = application.new_window()
    application.after_first_frame()
    told = [strip.message.text for strip in window.centre.messages.strips]
    assert told == [
        "The settings could not be read and begin anew; "
        f"the old file is kept as {own_data_folder / 'settings.broken.json'}"
    ]


def test_no_word_of_settings_that_are_whole(application: Application) -> None:
    window = application.new_window()
    application.after_first_frame()
    assert not window.centre.messages.strips


def test_a_crash_is_offered_until_it_is_answered(application: Application) -> None:
    """It went after eight seconds, while the pointer was on its way, and never came back."""
    window = application.new_window()
    window.messages.info("kvplanner was not closed properly last time: your plan was restored", key="crashed")
    window.help.offer_crash_report("Fatal Python error")
    (strip,) = window.centre.messages.strips
    assert strip.message.action is not None
    assert not strip.timer.isActive()


def test_messages_stay_while_one_of_them_is_about_to_be_clicked(
    window: MainWindow, monkeypatch: pytest.MonkeyPatch
) -> None:
    window.messages.info("a note")
    window.messages.success("Exported", action=("Open", lambda: None))
    strips = window.centre.messages.strips
    assert all(strip.timer.isActive() for strip in strips)
    monkeypatch.setattr(window.centre.messages, "underMouse", lambda: True)
    for strip in strips:
        strip.timer.timeout.emit()
    assert window.centre.messages.strips == strips
    monkeypatch.setattr(window.centre.messages, "underMouse", lambda: False)
    for strip in strips:
        strip.timer.timeout.emit()
    assert not window.centre.messages.strips


def test_recent_files_can_be_told_apart(window: MainWindow, tmp_path: Path) -> None:
    paths = [tmp_path / "a" / "p & q.kvplan.json", tmp_path / "b" / "p & q.kvplan.json", tmp_path / "c.kvplan.json"]
    for path in paths:
        path.parent.mkdir(exist_ok=True)
        path.write_text("{}")
        window.services.settings.remember(s.RECENT_FILES, str(path))
    window.services.settings.remember(s.RECENT_FILES, str(tmp_path / "gone.kvplan.json"))
    menu = window.actions_of_window.menus["recent"]
    menu.aboutToShow.emit()
    texts = [action.text() for action in menu.actions()]
    assert texts[:3] == ["c.kvplan.json", "p && q.kvplan.json — ~/b", "p && q.kvplan.json — ~/a"]
    assert menu.toolTipsVisible()
    assert [action.toolTip() for action in menu.actions()[:3]] == [str(path) for path in reversed(paths)]
    assert distinct_names(["/x/y/a", "/x/z/b"]) == ["a", "b"]
