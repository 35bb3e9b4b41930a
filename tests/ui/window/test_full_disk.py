"""A disk without room: each thing that the window saves says so, loses nothing, and is saved once there is room."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from kvplanner.app import settings as s
from kvplanner.ui.dialogs.crash import CrashDialog
from kvplanner.ui.window.application import Application
from kvplanner.ui.window.window import MainWindow

Full = Callable[[], AbstractContextManager[None]]


def said(window: MainWindow) -> str:
    """The last message."""
    strips = window.centre.messages.strips
    return strips[-1].message.text if strips else ""


def test_a_plan_file_stays_whole_and_its_edits_unsaved(
    window: MainWindow, application: Application, qtbot: QtBot, tmp_path: Path, full_disk: Full
) -> None:
    path = tmp_path / "a.kvplan.json"

    def saved() -> bytes:
        window.saving.save_to(path)
        qtbot.waitUntil(lambda: not application.jobs.active)
        return path.read_bytes()

    before = saved()
    window.document.set_option("max_model_len", 4096)
    with full_disk():
        assert saved() == before
        assert "not saved" in said(window)
        assert "no space left on device" in said(window).lower()
        assert window.document.modified, "closing asks"
        window.document.flush()
    assert [one.name for one in tmp_path.glob("*.kvplan.json*")] == [path.name]
    assert not list(tmp_path.glob(".kvplanner*"))
    assert json.loads(saved())["options"] == {"max_model_len": 4096}
    assert not window.document.modified
    assert said(window) == ""


@pytest.mark.parametrize("ending", [".png", ".svg", ".pdf", ".csv", ".json", ".md", ".html"])
def test_an_export_says_so_and_leaves_what_was_there(
    window: MainWindow, application: Application, qtbot: QtBot, tmp_path: Path, full_disk: Full, ending: str
) -> None:
    path = tmp_path / f"plan{ending}"
    path.write_text("before")
    write = window.exports.write_report if ending == ".html" else window.exports.write_to
    with full_disk():
        write(path)
        qtbot.waitUntil(lambda: bool(said(window)))
    assert "no space left on device" in said(window).lower()
    assert path.read_text() == "before"
    assert not list(tmp_path.glob(".kvplanner*"))


def test_settings_of_two_windows_are_kept_for_later(window: MainWindow, full_disk: Full) -> None:
    settings = window.services.settings
    with full_disk():
        window.view.theme_dark()
        window.view.unit_gb()
        assert settings.get(s.UNIT) == "GB"
    window.view.theme_light()
    again = s.Settings()
    assert (again.get(s.THEME), again.get(s.UNIT)) == ("light", "GB")


def test_a_crash_report_says_so(window: MainWindow, tmp_path: Path, full_disk: Full) -> None:
    dialog = CrashDialog("Traceback", window)
    with full_disk():
        dialog.save_to(str(tmp_path / "crash.txt"))
    assert "no space left" in " ".join(label.text() for label in [dialog.result_text]).lower()
    assert not list(tmp_path.glob("crash*"))
