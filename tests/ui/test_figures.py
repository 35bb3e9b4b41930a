"""Figures in the user's own separators: everywhere in the window, at once, and nowhere else."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import QLocale, Qt
from PySide6.QtGui import QGuiApplication, QImage
from PySide6.QtWidgets import QAbstractButton, QAbstractItemView, QLabel, QLineEdit, QTextEdit, QVBoxLayout, QWidget
from pytestqt.qtbot import QtBot

from kvplanner.app import settings as s
from kvplanner.report.csv import csv_text
from kvplanner.ui.setup import numbers
from kvplanner.ui.theme import figures
from kvplanner.ui.verdict.message import EngineMessage
from kvplanner.ui.widgets.plot import PlotPlace
from kvplanner.ui.window.window import MainWindow
from tests.ui.measure import painted


@pytest.fixture(autouse=True)
def plain_afterwards() -> Iterator[None]:
    yield
    figures.choose("comma_point")


@pytest.mark.parametrize(
    ("text", "german"),
    [
        ("Fits: KV cache for ≈ 212,000 tokens, 3.4 requests of 131,072 tokens at once",
         "Fits: KV cache for ≈ 212.000 tokens, 3,4 requests of 131.072 tokens at once"),
        ("0.92 × 23.65 GiB = 21.76 GiB", "0,92 × 23,65 GiB = 21,76 GiB"),
        ("14.96 – 15.20 GiB", "14,96 – 15,20 GiB"),
        ("14.96 – 15.20", "14,96 – 15,20"),
        ("1,234.5", "1.234,5"),
        ("−1.20", "−1,20"),
        ("8.03 B parameters · 16.06 GB", "8,03 B parameters · 16,06 GB"),
        ("measured 1.20, planned 3.40", "measured 1,20, planned 3,40"),
        ("41.26 GiB (38.97–41.98) of KV cache", "41,26 GiB (38,97–41,98) of KV cache"),
        ("0.41–0.79", "0,41–0,79"),
        ("Utilisation 0.97  Apply", "Utilisation 0,97  Apply"),
        ("80.00 GiB, 79.25 usable", "80,00 GiB, 79,25 usable"),
        ("Rules: vLLM 0.29–0.33, V2 runner", "Rules: vLLM 0.29–0.33, V2 runner"),
        ("Rules: vLLM 0.33.0", "Rules: vLLM 0.33.0"),
        ("since 0.13, CUDA 12.8, compute capability 8.6", "since 0.13, CUDA 12.8, compute capability 8.6"),
        ("Llama-3.1-8B-Instruct, Qwen2.5 7B, Llama 3.1 8B", "Llama-3.1-8B-Instruct, Qwen2.5 7B, Llama 3.1 8B"),
        ("--gpu-memory-utilization 0.92", "--gpu-memory-utilization 0.92"),
        ("'1,5' is not a count: write for example 8192", "'1,5' is not a count: write for example 8192"),
        ("/models/1.5/model", "/models/1.5/model"),
    ],
)  # fmt: skip
def test_figures_and_nothing_else(text: str, german: str) -> None:
    assert figures.shown(text) == text
    figures.choose("point_comma")
    assert figures.shown(text) == german


def test_every_number_on_a_bar_is_a_figure() -> None:
    figures.choose("point_comma")
    assert figures.shown_figures("weights 29.46") == "weights 29,46"
    assert figures.shown_figures("KV cache for ≈ 31,000 tokens, 0.5") == "KV cache for ≈ 31.000 tokens, 0,5"


def test_tags_of_rich_text_stay() -> None:
    figures.choose("space_comma")
    assert figures.shown_html('<td width="1.5%">1,024</td>') == '<td width="1.5%">1\u202f024</td>'


@pytest.mark.parametrize(
    ("locale", "number"),
    [("de_DE", "1.234,5"), ("fr_FR", "1\u202f234,5"), ("de_CH", "1'234.5"), ("en_US", "1,234.5"), ("ar_EG", "1,234.5")],
)
def test_the_system_says_which(locale: str, number: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(QLocale, "system", lambda: QLocale(locale))
    figures.choose(figures.SYSTEM)
    assert figures.shown("1,234.5") == number


@pytest.mark.parametrize("choice", [*figures.CHOICES])
@pytest.mark.parametrize(
    ("text", "whole", "value"),
    [
        ("32,768", True, 32768), ("32.768", True, 32768), ("32 768", True, 32768), ("32\u202f768", True, 32768),
        ("1’234’567", True, 1234567), ("0.92", False, 0.92), ("0,92", False, 0.92), ("1.234,5", False, 1234.5),
        ("1,234.5", False, 1234.5),
    ],
)  # fmt: skip
def test_either_way_can_be_typed(choice: str, text: str, whole: bool, value: float) -> None:
    figures.choose(choice)
    assert float(numbers.plain(text, whole=whole)) == value


@pytest.mark.parametrize("choice", [*figures.CHOICES])
@pytest.mark.parametrize(("text", "whole"), [("131,072", True), ("0.925", False), ("0.5", False), ("12,345", True)])
def test_what_stands_in_a_field_reads_back(choice: str, text: str, whole: bool) -> None:
    figures.choose(choice)
    assert numbers.plain(figures.shown(text), whole=whole) == text.replace(",", "")


# What tells that a figure was not written anew: groups by commas, or two decimals behind a point.
_ENGLISH = re.compile(r"(?<![\w.,/:-])(?:\d{1,3}(?:,\d{3})+(?![\w,])|\d+\.\d\d?(?![\w.]))")
_VERSIONS = re.compile(r"(?:vLLM|SGLang|[Rr]ules|newest \(|PyTorch|CUDA|driver|since|before|[A-Z]\w*-)[: ]*[\d.–-]+")


def english(window: MainWindow) -> list[str]:
    """Texts of the window that still show figures with a comma between thousands or a point before decimals."""
    image = QImage(window.size(), QImage.Format.Format_RGB32)
    with painted() as drawn:
        window.render(image)
    texts = {text.text for text in drawn.texts}
    for widget in window.findChildren(QWidget):
        if widget.isVisible() and not isinstance(widget, EngineMessage):
            text = widget.text() if isinstance(widget, QLabel | QAbstractButton | QLineEdit) else ""
            texts |= {text, widget.toolTip(), widget.accessibleName(), widget.accessibleDescription()}
    for edit in window.findChildren(QTextEdit):
        if edit.isVisible():
            texts.add(edit.toPlainText())
    for view in window.findChildren(QAbstractItemView):
        model = view.model()
        if view.isVisible() and model is not None:
            for row in range(min(model.rowCount(), 200)):
                for column in range(model.columnCount()):
                    for role in (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.ToolTipRole):
                        texts.add(str(model.index(row, column).data(role) or ""))
    return sorted(text for text in texts if _ENGLISH.search(_VERSIONS.sub("", text)))


@pytest.mark.slow
@pytest.mark.parametrize("gpu", ["2xRTX 4090", "H100"])
def test_the_whole_window_follows_at_once(open_window: Callable[..., MainWindow], qtbot: QtBot, gpu: str) -> None:
    window = open_window(gpu=gpu)
    window.document.set_option("max_num_seqs", 4096)
    window.document.set_option("gpu_memory_utilization", 0.85)
    window.document.flush()
    assert english(window), "nothing to tell by"
    window.view.numbers_point_comma()
    assert not (left := english(window)), "\n\n".join(left)
    assert window.panel.fields["max_model_len"].inputs[0].placeholderText() == "131.072"  # type: ignore[attr-defined]  # a page's own: the window gives widgets
    assert window.panel.fields["gpu_memory_utilization"].inputs[0].text() == "0,85"  # type: ignore[attr-defined]  # a page's own: the window gives widgets
    window.view.numbers_comma_point()
    assert window.panel.fields["gpu_memory_utilization"].inputs[0].text() == "0.85"  # type: ignore[attr-defined]  # a page's own: the window gives widgets
    assert english(window)


@pytest.mark.slow
@pytest.mark.parametrize("tab", ["Explain", "Start-up", "Ways", "What fits", "Compare", "Log"])
def test_every_tab_follows(open_window: Callable[..., MainWindow], qtbot: QtBot, tab: str, application: object) -> None:
    window = open_window(gpu="RTX 4090")
    window.view.numbers_point_comma()
    window.view.pin_plan()
    window.document.set_option("max_model_len", 16384)
    window.document.flush()
    window.centre.show_tab(tab)
    if tab == "Log":
        window.opening.logs.open_path(Path(__file__).parents[1] / "diagnose/logs/vllm/0110-kv-too-small.log")
    qtbot.waitUntil(lambda: not window.services.jobs.active, timeout=20_000)
    qtbot.wait(300)
    assert not (left := english(window)), "\n\n".join(left)


def test_values_beside_a_plot_follow(qtbot: QtBot) -> None:
    import pyqtgraph

    ground = QWidget()
    qtbot.addWidget(ground)
    column, place = QVBoxLayout(ground), PlotPlace(ground)
    column.addWidget(place)
    axis = place.give_way(pyqtgraph, column, name="Memory", left=40).getAxis("left")
    assert axis.tickStrings([0.5, 12.5], 1.0, 0.5) == ["0.5", "12.5"]
    figures.choose("point_comma")
    assert axis.tickStrings([0.5, 12.5], 1.0, 0.5) == ["0,5", "12,5"]


@pytest.mark.slow
def test_files_commands_and_copies_stay(open_window: Callable[..., MainWindow]) -> None:
    window = open_window()
    window.document.set_option("gpu_memory_utilization", 0.85)
    window.document.flush()
    clipboard, copying = QGuiApplication.clipboard(), window.copying

    def copied() -> list[str]:
        texts = []
        for copy in (copying.copy_command, copying.copy_json, copying.copy_text, copying.copy_markdown):
            copy()
            texts.append(clipboard.text())
        plan = window.document.plan
        assert plan is not None
        return [*texts, csv_text(plan)]

    before = copied()
    assert "--gpu-memory-utilization 0.85" in before[0]
    window.services.settings.set(s.NUMBERS, "point_comma")
    assert copied() == before
