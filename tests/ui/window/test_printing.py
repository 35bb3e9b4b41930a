"""The report on paper: through the dialog, and what reaches the printer."""

from __future__ import annotations

from pathlib import Path

import pytest
from PySide6.QtPrintSupport import QPrintDialog, QPrinter
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from kvplanner.ui.window.application import Application
from kvplanner.ui.window.commands import printing
from kvplanner.ui.window.window import MainWindow


def test_the_report_is_printed(
    window: MainWindow, application: Application, qtbot: QtBot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[tuple[int, float]] = []
    original = printing.draw

    def draw(printer: QPrinter, *rest: object) -> None:
        printer.setOutputFormat(QPrinter.OutputFormat.PdfFormat)
        printer.setOutputFileName(str(tmp_path / "printed.pdf"))
        original(printer, *rest)  # type: ignore[arg-type]  # what the real one takes
        drawn.append((printer.width(), printer.resolution()))

    monkeypatch.setattr(printing, "draw", draw)
    window.actions_of_window.by_name["print"].trigger()
    (dialog,) = window.findChildren(QPrintDialog)
    dialog.accept()
    qtbot.waitUntil(lambda: bool(drawn), timeout=20_000)
    content = (tmp_path / "printed.pdf").read_bytes()
    assert content.startswith(b"%PDF")
    assert content.count(b"/Type /Page\n") >= 2, "a report has several pages"
    QApplication.processEvents()


def test_nothing_is_printed_without_a_plan(window: MainWindow) -> None:
    window.document.set_option("tensor_parallel_size", 3)
    window.document.flush()
    window.actions_of_window.by_name["print"].trigger()
    assert not window.findChildren(QPrintDialog)
    assert window.centre.messages.strips
