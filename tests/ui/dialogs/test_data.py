"""Data and packs in the window: the terminal's own list, and a question before a new key is trusted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import QCoreApplication, QEvent
from PySide6.QtWidgets import QMessageBox
from pytestqt.qtbot import QtBot

from kvplanner import packfile
from kvplanner.app.jobs import Jobs
from kvplanner.catalog import gpus, models
from kvplanner.ui.dialogs.data import DataDialog
from kvplanner.ui.window.window import MainWindow
from tests.pack_kit import MARK, pack


@pytest.fixture
def dialog(qtbot: QtBot) -> Iterator[DataDialog]:
    """The dialog; what is added in it ends with the test."""
    models.index(), gpus.index()  # the catalogues as they are for all other tests
    packfile.forget()
    jobs = Jobs()
    made = DataDialog(jobs)
    qtbot.addWidget(made)
    made.show()
    yield made
    jobs.stop()
    packfile.forget()


def shown(dialog: DataDialog) -> list[list[str]]:
    rows = [dialog.list.topLevelItem(at) for at in range(dialog.list.topLevelItemCount())]
    return [[row.text(column) for column in range(5)] for row in rows if row is not None]


def test_a_pack_is_added_once_its_key_is_trusted_and_removed(dialog: DataDialog, qtbot: QtBot, tmp_path: Path) -> None:
    assert [row[0] for row in shown(dialog)] == ["With kvplanner"]
    assert not dialog.remove_button.isEnabled()
    dialog.add(pack(tmp_path))
    qtbot.waitUntil(lambda: bool(dialog.findChildren(QMessageBox)))
    (question,) = dialog.findChildren(QMessageBox)
    assert MARK in question.informativeText()
    assert "The lab" in question.informativeText()
    assert question.defaultButton() is question.button(QMessageBox.StandardButton.Cancel)
    next(b for b in question.buttons() if "Trust" in b.text()).click()
    qtbot.waitUntil(lambda: len(shown(dialog)) == 2)
    assert shown(dialog)[1][0] == "Pack spring"
    assert shown(dialog)[1][3:] == ["1 model, 1 GPU, 1 constant of vLLM", f"{MARK} (The lab)"]
    assert "from the next start on" in dialog.result_text.text()
    added = dialog.list.topLevelItem(1)
    assert added is not None
    dialog.list.setCurrentItem(added)
    dialog.remove_button.click()
    assert len(shown(dialog)) == 1


def test_a_pack_that_cannot_be_used_says_why(dialog: DataDialog, qtbot: QtBot, tmp_path: Path) -> None:
    path = tmp_path / "broken.kvpack"
    path.write_text("<b>junk</b>\n")
    dialog.add(path)
    qtbot.waitUntil(lambda: "not a data pack" in dialog.result_text.text())
    assert dialog.add_button.isEnabled()
    assert len(shown(dialog)) == 1


def test_a_pack_that_is_being_kept_is_finished_before_the_program_ends(
    dialog: DataDialog, qtbot: QtBot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, object] = {}
    monkeypatch.setattr(Jobs, "submit", lambda jobs, *work, **how: asked.update(how))
    dialog.add(pack(tmp_path))
    assert asked["writes"] is True


def test_it_stands_in_the_help_menu(open_window: Callable[..., MainWindow]) -> None:
    window = open_window()
    window.help.data()
    assert isinstance(window.help.dialog, DataDialog)
    window.help.dialog.reject()


def test_a_pack_that_is_dropped_is_asked_about(
    open_window: Callable[..., MainWindow], qtbot: QtBot, tmp_path: Path
) -> None:
    window = open_window()
    window.opening.open_path(pack(tmp_path))
    assert isinstance(window.help.dialog, DataDialog)
    qtbot.waitUntil(lambda: bool(window.help.dialog and window.help.dialog.findChildren(QMessageBox)))
    window.help.dialog.reject()


@pytest.mark.parametrize("broken", [False, True])
def test_it_may_be_closed_while_a_pack_is_checked(
    open_window: Callable[..., MainWindow], qtbot: QtBot, tmp_path: Path, broken: bool
) -> None:
    """Nobody is told, and nothing fails: pytest-qt sees what a slot raises."""
    window = open_window()
    jobs = window.services.jobs
    dialog = DataDialog(jobs, window)
    path = pack(tmp_path)
    if broken:
        path.write_text("junk")
    dialog.add(path, MARK)
    dialog.deleteLater()
    QCoreApplication.sendPostedEvents(dialog, QEvent.Type.DeferredDelete)
    qtbot.waitUntil(lambda: not jobs.active)
    packfile.forget()
