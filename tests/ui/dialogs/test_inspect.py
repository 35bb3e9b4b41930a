"""The Inspect view: the terminal's own words about the chosen model."""

from __future__ import annotations

from pytestqt.qtbot import QtBot

from kvplanner.catalog import models
from kvplanner.report.inspect import inspect
from kvplanner.report.inspect_text import lines
from kvplanner.ui.dialogs.inspect import InspectDialog


def test_it_tells_what_the_terminal_tells(qtbot: QtBot) -> None:
    model = models.load("Qwen/Qwen3-Next-80B-A3B-Instruct")
    dialog = InspectDialog(model)
    qtbot.addWidget(dialog)
    assert dialog.text.toPlainText().splitlines() == "\n".join(lines(inspect(model))).splitlines()
    assert "48 layers" in dialog.text.toPlainText()
    assert dialog.windowTitle() == "Inspect Qwen3-Next-80B-A3B-Instruct"


def test_it_reads_without_a_mouse(qtbot: QtBot) -> None:
    dialog = InspectDialog(models.load("Qwen/Qwen3-8B"))
    qtbot.addWidget(dialog)
    dialog.show()
    assert dialog.text.accessibleName()
    assert dialog.text.tabChangesFocus()
    dialog.copy()
