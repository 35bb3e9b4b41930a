"""Whatever starts a server, pasted or dropped anywhere in the window; a log goes to its reader."""

from __future__ import annotations

from pathlib import Path

import pytest
from PySide6.QtCore import QMimeData, QPoint, Qt
from PySide6.QtGui import QDragEnterEvent, QDropEvent, QGuiApplication
from PySide6.QtWidgets import QLineEdit
from pytestqt.qtbot import QtBot

from kvplanner.app import settings as s
from kvplanner.report.launch import snippet
from kvplanner.ui.window.commands.remarks import Remarks
from kvplanner.ui.window.window import MainWindow

COMPOSE = """
services:
  llm:
    image: vllm/vllm-openai:v0.20.0
    command: --model Qwen/Qwen3-8B --max-model-len 8192
"""
LOG = "INFO 05-11 14:20:11 [api_server.py:1042] vLLM API server version 0.9.0\n" * 4


def planned(window: MainWindow, qtbot: QtBot, model: str) -> None:
    def there() -> bool:
        state = window.document.state
        return state.model is not None and state.model.id == model

    qtbot.waitUntil(there, timeout=10_000)
    window.document.flush()


@pytest.mark.parametrize("text", [COMPOSE, "import vllm\nllm = vllm.LLM('Qwen/Qwen3-8B', max_model_len=8192)",
                                  "$ vllm serve Qwen/Qwen3-8B\n   --max-model-len 8192\n$ curl x"])  # fmt: skip
def test_ctrl_v_plans_whatever_starts_a_server(window: MainWindow, qtbot: QtBot, text: str) -> None:
    QGuiApplication.clipboard().setText(text)
    window.centre.bars.canvas.setFocus()
    window.actions_of_window.by_name["paste_command"].trigger()
    planned(window, qtbot, "Qwen/Qwen3-8B")
    assert window.document.state.ask.options["max_model_len"] == 8192
    assert window.document.undo_count == 1
    keys = [key.toString() for key in window.actions_of_window.by_name["paste_command"].shortcuts()]
    assert "Ctrl+V" in keys


def test_an_input_keeps_its_own_paste(window: MainWindow, qtbot: QtBot) -> None:
    QGuiApplication.clipboard().setText("4096")
    field = window.panel.fields["max_num_seqs"]
    line = next(w for w in field.findChildren(QLineEdit))
    line.setFocus()
    line.selectAll()
    qtbot.keyClick(line, Qt.Key.Key_V, Qt.KeyboardModifier.ControlModifier)
    assert line.text() == "4096"


def test_what_launch_writes_comes_back(window: MainWindow, qtbot: QtBot) -> None:
    window.document.edit("x", options={"max_model_len": 4096}, weight_format="FP8")
    window.document.flush()
    plan = window.document.plan
    assert plan is not None
    QGuiApplication.clipboard().setText(snippet("kubernetes", plan))
    window.document.edit("y", options={}, weight_format=None)
    window.opening.paste_command()
    qtbot.waitUntil(lambda: window.document.state.ask.weight_format == "FP8", timeout=10_000)
    window.document.flush()
    again = window.document.plan
    assert again is not None
    assert again.kv_cache == plan.kv_cache


def test_a_dropped_text_says_what_it_will_do(window: MainWindow, qtbot: QtBot) -> None:
    data = QMimeData()
    data.setText(COMPOSE)
    no, left = Qt.MouseButton.NoButton, Qt.KeyboardModifier.NoModifier
    window.dragEnterEvent(QDragEnterEvent(QPoint(5, 5), Qt.DropAction.CopyAction, data, no, left))
    assert window.drops.sheet is not None
    assert "Plan what this starts" in window.drops.sheet.text()
    window.dropEvent(QDropEvent(QPoint(5, 5), Qt.DropAction.CopyAction, data, no, left))
    planned(window, qtbot, "Qwen/Qwen3-8B")


def test_a_log_goes_to_its_reader_and_a_file_is_read(window: MainWindow, qtbot: QtBot, tmp_path: Path) -> None:
    QGuiApplication.clipboard().setText(LOG)
    window.opening.paste_command()
    tabs = window.centre.below.tabs
    qtbot.waitUntil(lambda: tabs.tabText(tabs.currentIndex()) == "Log")
    file = tmp_path / "compose.yaml"
    file.write_text(COMPOSE, encoding="utf-8")
    window.opening.open_path(file)
    planned(window, qtbot, "Qwen/Qwen3-8B")


def test_an_unknown_path_is_asked_for_and_remembered(window: MainWindow, qtbot: QtBot) -> None:
    text = "vllm serve /models/kestrel-v3 --max-model-len 4096"
    with qtbot.waitSignal(window.messages.posted, check_params_cb=lambda m: m.action is not None) as caught:
        window.opening.open_text(text)
    assert caught.args is not None
    label, act = caught.args[0].action
    assert "Llama-3.1-8B-Instruct" in label
    act()
    qtbot.waitUntil(lambda: window.document.state.ask.options.get("max_model_len") == 4096, timeout=10_000)
    assert window.services.settings.get(s.STAND_INS) == ["/models/kestrel-v3\tLlama-3.1-8B-Instruct"]
    window.document.undo()
    window.opening.open_text(text)
    qtbot.waitUntil(lambda: window.document.state.ask.options.get("max_model_len") == 4096, timeout=10_000)


def said(window: MainWindow) -> list[str]:
    """What the window says of the command."""
    return [strip.message.text for strip in window.centre.messages.strips]


def test_what_is_said_of_a_command_goes_when_it_is_no_longer_true(window: MainWindow, qtbot: QtBot) -> None:
    command = "vllm serve Qwen/Qwen3-8B --max-model-len 8192 --host 0.0.0.0 --seed 7 --otlp-traces-endpoint x"
    window.opening.open_text(command)
    planned(window, qtbot, "Qwen/Qwen3-8B")
    told = said(window)
    assert len(told) == 1, "one line for one command"
    assert "left out" in told[0]
    window.document.set_option("max_num_seqs", 16)
    assert said(window) == told, "still so"
    window.document.undo()
    window.document.undo()
    assert said(window) == []
    window.document.redo()
    assert said(window) == told
    window.document.edit("Choose another engine", engine="sglang", version=None, options={})
    assert said(window) == []


def test_a_remark_goes_with_the_option_that_it_names(window: MainWindow) -> None:
    remarks = Remarks(window.document, window.messages)
    before = window.document.state
    window.document.set_options({"max_num_seqs": 4, "max_model_len": 8192}, "Plan a command line")
    remarks.say(("--max-num-seqs is small", "It was started on 2 machines: planned as one", "--seed: left out"), before)
    assert said(window) == ["--max-num-seqs is small. It was started on 2 machines: planned as one. --seed: left out"]
    window.document.set_option("max_num_seqs", 64)
    assert said(window) == ["It was started on 2 machines: planned as one. --seed: left out"]
    window.machines.choose("4xh100-sxm5-80gb")
    assert said(window) == ["--seed: left out"]
