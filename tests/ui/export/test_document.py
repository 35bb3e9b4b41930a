"""The report as a document: pages of A4, its text as text, and written from the window in the background."""

from __future__ import annotations

import re
from pathlib import Path

from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from kvplanner.catalog import gpus, models
from kvplanner.engine.registry import engine
from kvplanner.engine.request import PlanRequest
from kvplanner.report.sheet import sheet
from kvplanner.ui.export.document import document
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


def test_the_window_writes_each_kind(window: MainWindow, qtbot: QtBot, tmp_path: Path) -> None:
    for name, head in (("a.html", b"<!DOCTYPE html>"), ("a.pdf", b"%PDF-"), ("a.md", b"**Fits")):
        window.exports.write_report(tmp_path / name)
        qtbot.waitUntil((tmp_path / name).exists, timeout=20_000)
        assert (tmp_path / name).read_bytes().startswith(head)
    with qtbot.waitSignal(window.messages.posted):
        window.exports.write_report(tmp_path / "a.txt")
