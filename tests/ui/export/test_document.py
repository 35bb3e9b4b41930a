"""The report as a document: pages of A4, its text as text, and written from the window in the background."""

from __future__ import annotations

import re
from pathlib import Path

from PySide6.QtGui import QFont
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from kvplanner.catalog import gpus, models
from kvplanner.engine.registry import engine
from kvplanner.engine.request import PlanRequest
from kvplanner.report.sheet import sheet
from kvplanner.ui.export.document import document
from kvplanner.ui.export.lines import BREAK, Lines, Run
from kvplanner.ui.window.window import MainWindow


def test_pages_of_a4_that_grow_with_the_plan(qapp: QApplication) -> None:
    pages = []
    for gpu in ("H100", "RTX 4090,RTX 3090,L40S,A6000"):
        request = PlanRequest(models.load("meta-llama/Llama-3.1-8B-Instruct"), gpus.machine(gpu))
        data = document(sheet(engine("vllm").plan(request)), when="2026-01-02")
        assert data.startswith(b"%PDF-")
        assert data.rstrip().endswith(b"%%EOF")
        boxes = re.findall(rb"/MediaBox \[0 0 ([0-9.]+) ([0-9.]+)\]", data)
        assert all(abs(float(w) - 595) < 1.5 and abs(float(h) - 842) < 1.5 for w, h in boxes), boxes
        pages.append(len(boxes))
    assert pages[0] >= 2
    assert pages[1] > pages[0]


def test_a_text_longer_than_a_page_runs_over(qapp: QApplication) -> None:
    made = sheet(engine("vllm").plan(PlanRequest(models.load("Qwen3-0.6B"), gpus.machine("H100"))))
    whole = document(made).count(b"/MediaBox")
    long = document(made._replace(assumed=("a note of many words " * 2_000,))).count(b"/MediaBox")
    assert long >= whole + 4


def test_lines_keep_to_their_width_and_hold_every_character(qapp: QApplication) -> None:
    """Whatever the text: words longer than a line, characters of two units, markup, which is text like any other."""
    font = QFont(qapp.font())
    font.setPixelSize(12)
    one = Lines(font, (Run("x"),), 200)
    assert len(one.heights) == len(Lines(font, (Run(""),), 200).heights) == 1
    for text, lines in (("<b>x</b>", 1), (f"x{BREAK}y", 2), ("\U0001f600" * 60, 2), ("x" * 300, 5)):
        made = Lines(font, (Run(text, bold=True), Run("z")), 200)
        assert len(made.heights) >= lines, text
        assert all(line.naturalTextWidth() <= 201 for line in made._lines), text
        assert sum(line.textLength() for line in made._lines) == len(text.encode("utf-16-le")) // 2 + 1
        formats = made._layout.formats()
        assert (formats[0].length, formats[1].start) == (len(text.encode("utf-16-le")) // 2,) * 2


def test_the_window_writes_each_kind(window: MainWindow, qtbot: QtBot, tmp_path: Path) -> None:
    for name, head in (("a.html", b"<!DOCTYPE html>"), ("a.pdf", b"%PDF-"), ("a.md", b"**Fits")):
        window.exports.write_report(tmp_path / name)
        qtbot.waitUntil((tmp_path / name).exists, timeout=20_000)
        assert (tmp_path / name).read_bytes().startswith(head)
    with qtbot.waitSignal(window.messages.posted):
        window.exports.write_report(tmp_path / "a.txt")
