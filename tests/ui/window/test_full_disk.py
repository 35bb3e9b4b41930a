"""A disk without room: each thing that the window saves says so, loses nothing, and is saved once there is room."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from PySide6.QtGui import QPixmap
from pytestqt.qtbot import QtBot

from kvplanner.app import settings as s
from kvplanner.errors import BadInput
from kvplanner.ui.compare.page import ComparePage
from kvplanner.ui.compare.sweep import SweepPage
from kvplanner.ui.dialogs.calibrations import CalibrationsDialog
from kvplanner.ui.dialogs.crash import CrashDialog
from kvplanner.ui.dialogs.data import DataDialog
from kvplanner.ui.log.view import LogView
from kvplanner.ui.window import screenshot
from kvplanner.ui.window.application import Application
from kvplanner.ui.window.window import MainWindow
from tests.pack_kit import MARK, pack

LOG = Path(__file__).parents[2] / "diagnose" / "logs" / "vllm" / "0110-kv-too-small.log"
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


def test_a_log_report_says_so(
    window: MainWindow, application: Application, qtbot: QtBot, tmp_path: Path, full_disk: Full
) -> None:
    window.opening.open_path(LOG)
    view = window.centre.below.page("log")
    assert isinstance(view, LogView)
    qtbot.waitUntil(lambda: view.found is not None, timeout=10_000)
    path = tmp_path / "report.md"
    path.write_text("before")
    with full_disk():
        window.opening.logs.save_report(path)
        qtbot.waitUntil(lambda: "no space left on device" in said(window).lower())
    assert path.read_text() == "before"
    window.opening.logs.save_report(path)
    qtbot.waitUntil(lambda: not application.jobs.active)
    assert path.read_text("utf-8") != "before"
    assert not list(tmp_path.glob(".kvplanner*"))


@pytest.mark.slow
def test_a_sweep_says_so(
    open_window: Callable[..., MainWindow], application: Application, qtbot: QtBot, tmp_path: Path, full_disk: Full
) -> None:
    window = open_window(load="8@1500+500")
    window.view.show_compare()
    compare = window.centre.below.page("compare")
    assert isinstance(compare, ComparePage)
    compare.show_sweep()
    sweep = compare.sweep
    assert isinstance(sweep, SweepPage)
    qtbot.waitUntil(lambda: bool(sweep.points) and not application.jobs.active, timeout=20_000)
    path = tmp_path / "sweep.csv"
    path.write_text("before")
    with full_disk():
        sweep.write_to(str(path))
        qtbot.waitUntil(lambda: "no space left on device" in said(window).lower())
    assert path.read_text() == "before"
    sweep.write_to(str(path))
    qtbot.waitUntil(lambda: not application.jobs.active)
    assert path.read_text("utf-8").count("\n") > 10
    assert not list(tmp_path.glob(".kvplanner*"))


def test_a_data_pack_and_calibrations_say_so(window: MainWindow, qtbot: QtBot, tmp_path: Path, full_disk: Full) -> None:
    dialog = DataDialog(window.services.jobs, window)
    told: list[str] = []
    runs = CalibrationsDialog(window.services.runs, lambda error, text: told.append(f"{text}: {error}"), window)
    path = tmp_path / "runs.json"
    path.write_text("before")
    with full_disk():
        dialog.add(pack(tmp_path), MARK)
        qtbot.waitUntil(lambda: "no space left on device" in dialog.result_text.text().lower())
        runs.export_to(path)
    assert "The runs were not exported" in told[0]
    assert "No space left on device" in told[0]
    assert dialog.list.topLevelItemCount() == 1
    assert path.read_text() == "before"


def test_a_screenshot_says_so_and_leaves_what_was_there(window: MainWindow, tmp_path: Path, full_disk: Full) -> None:
    path = tmp_path / "window.png"
    path.write_text("before")
    with full_disk(), pytest.raises(BadInput, match="no space left on device"):
        screenshot.write(window.grab(), path)
    assert path.read_text() == "before"
    with pytest.raises(BadInput, match="could not be drawn"):
        screenshot.write(QPixmap(), path)
    assert path.read_text() == "before"
    screenshot.write(window.grab(), path)
    assert path.read_bytes().startswith(b"\x89PNG")
