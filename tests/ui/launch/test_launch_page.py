"""The command in the window: live, in each form, copied whole, and never of a plan that is not set."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QTabWidget
from pytestqt.qtbot import QtBot

from kvplanner.engine.probe import Answer, Answered
from kvplanner.report.launch import FORMS, snippet
from kvplanner.ui.launch.view import LaunchView
from kvplanner.ui.window.window import MainWindow


@pytest.fixture
def page(window: MainWindow) -> LaunchView:
    assert window.centre.show_tab("launch")
    found = window.centre.below.page("launch")
    assert isinstance(found, LaunchView)
    return found


def test_it_follows_the_plan_in_each_form(page: LaunchView, window: MainWindow) -> None:
    window.document.set_option("max_model_len", 4096)
    window.document.flush()
    window.centre.show_details()
    plan = window.document.plan
    assert plan is not None
    refused = {
        "modelfile": "no model files",
        "nodes": "One machine runs this plan",
        "ray": "One machine runs this plan",
    }
    for at, form in enumerate(FORMS):
        page.form.setCurrentIndex(at)
        if form in refused:
            assert not page.copy_button.isEnabled()
            assert refused[form] in page.text.toPlainText()
            continue
        assert page.text.toPlainText().rstrip() == snippet(form, plan).rstrip()
        assert "4096" in page.text.toPlainText()
        assert "tensor" in page.text.toPlainText(), "a server does not spread over its GPUs by itself"
        page.copy()
        assert QGuiApplication.clipboard().text() == page.text.toPlainText()


def test_the_tab_is_made_when_it_is_first_seen(window: MainWindow) -> None:
    tabs = window.centre.below.tabs
    assert isinstance(tabs, QTabWidget)
    assert [tabs.tabText(i) for i in range(tabs.count())][-2:] == ["Compare", "Launch"]
    assert "launch" not in window.centre.below._pages
    assert "compare" not in window.centre.below._pages


def test_another_engines_model_files(open_window: Callable[..., MainWindow], qtbot: QtBot) -> None:
    window = open_window("Llama-3.1-8B-Instruct", "RTX 4090", engine="ollama", weight_format="q4_k_m")
    window.view.show_launch()
    page = window.centre.below.page("launch")
    assert isinstance(page, LaunchView)
    page.form.setCurrentIndex(FORMS.index("modelfile"))
    assert page.text.toPlainText().lstrip("#").strip()
    assert "FROM " in page.text.toPlainText()


def test_the_engine_is_asked_by_a_worker_and_its_answer_stands_below(
    open_window: Callable[..., MainWindow], monkeypatch: pytest.MonkeyPatch, qtbot: QtBot
) -> None:
    window = open_window(model="Llama-3.1-8B-Instruct", gpu="RTX 4090", engine="llamacpp")
    window.view.show_launch()
    page = window.centre.below.page("launch")
    assert isinstance(page, LaunchView)
    window.centre.show_details()
    page.set_empty("")
    assert not page.check_button.isEnabled()
    assert "PATH" in page.check_button.toolTip() or "a GGUF file" in page.check_button.toolTip()
    plan = window.document.plan
    assert plan is not None
    held = plan.devices[0].segment("weights")
    assert held is not None
    row = Answered("CUDA0", 0, "weights", held.bytes, 1 << 20, held.estimate)
    answer = Answer("llama-fit-params", "llama-fit-params -m a.gguf", (row,))
    monkeypatch.setattr("kvplanner.observe.crosscheck.lacking", lambda plan, path: "")
    monkeypatch.setattr("kvplanner.observe.crosscheck.cross_check", lambda plan, path, cancelled: answer)
    page.set_empty("")
    assert page.check_button.isEnabled()
    page.check_button.click()
    qtbot.waitUntil(lambda: not page.answer.isHidden(), timeout=10_000)
    assert "llama-fit-params agrees" in page.answer.toPlainText()
    assert page.check_button.text() == "Ask the engine"
    window.document.set_option("ctx_size", 4096)
    window.document.flush()
    window.centre.show_details()
    assert page.answer.isHidden()


def test_sixteen_gpus_are_two_machines(open_window: Callable[..., MainWindow]) -> None:
    window = open_window("Llama-3.3-70B-Instruct", "16xH100", flags=("-tp", "8", "-pp", "2"))
    window.view.show_launch()
    page = window.centre.below.page("launch")
    assert isinstance(page, LaunchView)
    page.form.setCurrentIndex(FORMS.index("nodes"))
    assert page.copy_button.isEnabled()
    assert page.text.toPlainText().count("vllm serve") == 2
    assert "# Node 1: 8 GPUs (pp1/tp0 to pp1/tp7)" in page.text.toPlainText()
