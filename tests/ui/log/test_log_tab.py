"""The Log tab: a log that is opened, pasted or dropped is read, shown, and becomes the plan when wanted."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtGui import QGuiApplication
from pytestqt.qtbot import QtBot

from kvplanner.diagnose.diagnosis import diagnose_file
from kvplanner.ui.log.view import EMPTY, LogView, as_html
from kvplanner.ui.theme.palette import DARK
from kvplanner.ui.window.window import MainWindow

LOGS = Path(__file__).parents[2] / "diagnose" / "logs"
SMALL = LOGS / "vllm" / "0110-kv-too-small.log"


def page(window: MainWindow) -> LogView:
    found = window.centre.below.page("log")
    assert isinstance(found, LogView)
    return found


def test_an_opened_log_shows_and_becomes_the_plan(window: MainWindow, qtbot: QtBot) -> None:
    window.opening.open_path(SMALL)
    view = page(window)
    assert window.centre.below.current is view
    qtbot.waitUntil(lambda: view.found is not None, timeout=10_000)
    assert "one request of 131,072 tokens needs 16.00 GiB" in view.text.toPlainText()
    assert "planned" not in view.text.toPlainText()
    view.plan_button.click()
    qtbot.waitUntil(lambda: window.document.state.ask.version == "0.11.0", timeout=10_000)
    state = window.document.state
    assert state.model_text == "meta-llama/Llama-3.1-8B-Instruct"
    assert state.ask.options["gpu_memory_utilization"] == 0.95
    assert state.ask.options["enforce_eager"] is True
    qtbot.waitUntil(lambda: "planned" in view.text.toPlainText(), timeout=10_000)
    window.document.undo()
    assert window.document.state.ask.version != "0.11.0"


def test_a_pasted_log_is_read_and_other_text_is_an_error_that_leaves_the_plan(window: MainWindow, qtbot: QtBot) -> None:
    QGuiApplication.clipboard().setText(SMALL.read_text(encoding="utf-8"))
    window.opening.paste_command()
    view = page(window)
    qtbot.waitUntil(lambda: view.found is not None, timeout=10_000)
    before, shown = window.document.state, view.text.toPlainText()
    with qtbot.waitSignal(window.messages.posted, timeout=10_000) as posted:
        window.opening.logs.read_text("a list\nof words\n")
    assert posted.args is not None
    assert "The log was not read" in posted.args[0].text
    assert (window.document.state, view.text.toPlainText()) == (before, shown)


def test_a_log_of_two_named_gpus_chooses_them(window: MainWindow, qtbot: QtBot) -> None:
    window.opening.open_path(LOGS / "llamacpp" / "ok-2gpu-pipeline.log")
    view = page(window)
    qtbot.waitUntil(lambda: view.found is not None, timeout=10_000)
    with qtbot.waitSignal(window.messages.posted, timeout=10_000) as posted:  # its file is not on this computer
        view.plan_button.click()
    assert posted.args is not None
    label, use = posted.args[0].action
    assert label.startswith("Use ")
    use()
    state = window.document.state
    assert state.ask.engine == "llamacpp"
    assert [device.gpu.id.partition(" ")[0] for device in state.devices] == ["rtx-4090", "rtx-3060-12gb"]


def test_names_in_a_log_are_text_and_no_markup(qtbot: QtBot, tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_text("INFO vLLM API server version 0.24.0, serving model <b>x</b>&y\n", encoding="utf-8")
    found = diagnose_file(path)
    assert "&lt;b&gt;x&lt;/b&gt;&amp;y" in as_html(found, "<i>", None, "GiB", DARK)
    view = LogView()
    qtbot.addWidget(view)
    assert view.text.toPlainText() == EMPTY
    assert not view.plan_button.isEnabled()
    view.set_log(found, "a.log")
    assert view.plan_button.isEnabled()
