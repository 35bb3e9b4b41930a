"""What people come for, in steps: a click, a key with its modifiers, a text typed or pasted at one go.

Whatever is answered by one number takes four steps at most.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from PySide6.QtCore import QMimeData, QPoint, QPointF, Qt
from PySide6.QtGui import QDragEnterEvent, QDropEvent, QGuiApplication, QKeySequence
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QLabel, QLineEdit, QPushButton, QWidget
from pytestqt.qtbot import QtBot

from kvplanner.app.session import Restored
from kvplanner.engine.plan import Plan
from kvplanner.ui.setup import wish
from kvplanner.ui.window.application import Application
from kvplanner.ui.window.arguments import WindowArguments
from kvplanner.ui.window.commands.export import Exports
from kvplanner.ui.window.run import begin
from kvplanner.ui.window.window import MainWindow

pytestmark = pytest.mark.slow

MOST = 4


class Person:
    """Does things in a window and counts them."""

    def __init__(self, window: MainWindow, qtbot: QtBot) -> None:
        self.window, self.qtbot = window, qtbot
        self.steps = 0

    def _target(self) -> QWidget:
        return QApplication.focusWidget() or self.window

    def keys(self, sequence: str) -> None:
        self.steps += 1
        QTest.keySequence(self._target(), QKeySequence(sequence))

    def type(self, text: str) -> None:
        self.steps += 1
        for character in text:  # the first may open what the others go to
            QTest.keyClicks(self._target(), character)

    def paste(self, text: str) -> None:
        QGuiApplication.clipboard().setText(text)  # where it came from
        self.keys("Ctrl+V")

    def click(self, widget: QWidget, where: QPoint | None = None) -> None:
        self.steps += 1
        assert widget.isVisible()
        QTest.mouseClick(widget, Qt.MouseButton.LeftButton, pos=where or QPoint())

    def offer(self, part: str) -> QPushButton:
        """A button of the verdict, once it is there."""
        verdict = self.window.centre.verdict

        def found() -> list[QPushButton]:
            return [b for b in verdict.findChildren(QPushButton) if b.isVisible() and part in getattr(b, "full", "")]

        self.qtbot.waitUntil(lambda: bool(found()), timeout=20_000)
        return found()[0]

    def planned(self, of: Callable[[Plan], bool]) -> Plan:
        document = self.window.document

        def done() -> bool:
            document.flush()
            return document.plan is not None and document.error is None and of(document.plan)

        self.qtbot.waitUntil(done, timeout=20_000)
        assert document.plan is not None
        return document.plan

    def reads(self) -> str:
        """What the verdict says."""
        labels = self.window.centre.verdict.findChildren(QLabel)
        return " ".join(label.text() for label in labels if label.isVisible()).replace("\xa0", " ")


@pytest.fixture
def person(application: Application, qtbot: QtBot) -> Person:
    """In front of a window that has just been opened for the first time, the keyboard where it is then."""
    window = application.new_window()
    arguments = WindowArguments(None, None, "", "", safe_mode=False, words=None)
    window.ready.connect(lambda: begin(application, window, arguments, Restored((), crashed=False)))
    window.resize(1280, 800)
    window.show()
    window.activateWindow()
    qtbot.waitUntil(lambda: window.document.plan is not None, timeout=20_000)
    qtbot.waitUntil(lambda: QApplication.focusWidget() is window.panel.model.button)
    qtbot.waitUntil(lambda: window.centre.built and "kv_cache_dtype" in window.panel.fields, timeout=20_000)
    return Person(window, qtbot)


def test_a_32b_in_four_bits_on_one_card(person: Person) -> None:
    person.type("qwen3 32b awq")
    person.keys("Return")
    person.planned(lambda plan: "32B-AWQ" in plan.request.model.id)
    person.type("4090")
    person.keys("Return")
    plan = person.planned(lambda plan: "4090" in plan.request.machine.devices[0].gpu.name)
    assert not plan.fits
    assert person.offer("ontext length").isVisible(), "what to change"
    assert person.steps <= MOST


def test_two_cards_a_context_and_users(person: Person) -> None:
    person.keys("Ctrl+2")
    person.type("2x3090, 32K, 8 users")
    person.keys("Return")
    plan = person.planned(lambda plan: len(plan.devices) == 2 and plan.request.load is not None)
    assert [device.device.gpu.name for device in plan.devices] == ["NVIDIA GeForce RTX 3090"] * 2
    assert plan.kv_cache is not None
    assert plan.kv_cache.context_length == 32_768
    assert "serves 8 of 8 users" in person.reads()
    assert person.steps <= MOST
    person.keys("Ctrl+Z")
    assert person.window.document.state.ask.load is None


def test_a_pasted_command(person: Person) -> None:
    person.window.centre.bars.canvas.setFocus()
    person.paste("vllm serve Qwen/Qwen3-8B --max-model-len 16384 --kv-cache-dtype fp8")
    plan = person.planned(lambda plan: plan.request.model.id == "Qwen/Qwen3-8B")
    assert plan.kv_cache is not None
    assert plan.kv_cache.context_length == 16_384
    assert person.steps == 1


def test_a_folder_or_a_file_that_is_dropped(person: Person, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 2048, "intermediate_size": 8192,
        "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
        "max_position_embeddings": 131072, "torch_dtype": "bfloat16",
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    mime = QMimeData()
    from PySide6.QtCore import QUrl

    mime.setUrls([QUrl.fromLocalFile(str(folder))])
    copy, left, none = Qt.DropAction.CopyAction, Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier
    person.window.dragEnterEvent(QDragEnterEvent(QPoint(300, 300), copy, mime, left, none))
    person.steps += 1
    person.window.dropEvent(QDropEvent(QPointF(300, 300), copy, mime, left, none))
    person.planned(lambda plan: plan.request.model.id != "meta-llama/Llama-3.1-8B-Instruct")
    assert person.window.document.state.model_text == str(folder)
    assert person.steps == 1


def test_the_fix_of_a_failing_plan(person: Person, open_window: Callable[..., MainWindow]) -> None:
    person.window = open_window("Llama-3.3-70B-Instruct", "2xH100")
    person.steps = 0
    assert not person.planned(lambda plan: True).fits
    person.click(person.offer("ontext length"))
    assert person.planned(lambda plan: bool(plan.fits)).fits
    assert person.steps == 1
    person.keys("Ctrl+Z")
    assert not person.planned(lambda plan: not plan.fits).fits


def test_two_options_compared(person: Person) -> None:
    person.keys("Ctrl+D")
    box = person.window.panel.fields["kv_cache_dtype"].inputs[0]
    box.setFocus()  # by a click, or Tab: without a display the list would not open
    person.steps += 1
    person.type("fp8")
    person.planned(lambda plan: plan.request.options.get("kv_cache_dtype") == "fp8")
    page = person.window.centre.below.page("compare")
    person.window.centre.show_details()

    def rows() -> dict[str, tuple[str, ...]]:
        return {line.title: line.cells for line in page.model.lines if line.row is not None}  # type: ignore[attr-defined]

    person.qtbot.waitUntil(lambda: "(+" in rows().get("KV cache tokens", ("",))[0])
    assert person.steps <= MOST


def test_the_longest_context_and_the_most_users(person: Person, open_window: Callable[..., MainWindow]) -> None:
    person.window = open_window("Llama-3.1-8B-Instruct", "RTX 4090")
    person.window.activateWindow()
    person.steps = 0
    limits = person.planned(lambda plan: True).limits
    marks = person.window.panel.fields["max_model_len"].marks()
    assert limits.sure_max_context_length is not None
    shown = " ".join(mark.text() for mark in marks)  # type: ignore[attr-defined]
    assert f"{limits.sure_max_context_length:,}" in shown, "the longest context stands there already"
    person.click(marks[0])
    assert person.planned(lambda plan: bool(plan.fits)).fits
    assert person.steps == 1
    load = person.window.panel.load
    assert load is not None
    person.click(load.users, load.users.rect().center())
    person.type("9999")
    person.keys("Return")
    person.planned(lambda plan: plan.request.load is not None)
    assert "of 9,999 users" in person.reads(), "the most users are told at once"
    assert person.steps <= MOST + 1


def test_what_is_handed_on(person: Person, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    person.click(person.window.centre.copy_button)
    assert QGuiApplication.clipboard().text().startswith("vllm serve")
    assert person.steps == 1
    asked: list[str] = []
    monkeypatch.setattr(Exports, "_ask", lambda self, kind: asked.append(kind))
    person.keys("Ctrl+E")
    assert asked == ["png"]
    monkeypatch.setattr(Exports, "report", lambda self: asked.append("report"))
    person.keys("Ctrl+Shift+R")
    assert person.steps == 3


def test_wrong_input_is_told_where_it_is_typed(person: Person) -> None:
    for field in person.window.panel.fields.values():
        edit = field.inputs[0]
        if not isinstance(edit, QLineEdit) or not edit.isVisible():
            continue
        person.steps = 0
        person.click(edit, edit.rect().center())
        person.type("nonsense")
        person.keys("Return")
        assert field.error.isVisible(), field.title
        person.keys("Escape")
        assert person.steps <= MOST
    assert person.window.document.plan is not None


@pytest.mark.parametrize(
    ("text", "machine", "context", "users"),
    [
        ("2x3090, 32K, 8 users", "2x3090", 32_768, 8),
        ("4090,32k", "4090", 32_000, None),
        ("H100, 1 user", "H100", None, 1),
        ("2 h100, 16384 tokens", "2 h100", 16_384, None),
        ("1xRTX 4090,1xRTX 3090", "1xRTX 4090,1xRTX 3090", None, None),
        ("4090, 0 users", "4090, 0 users", None, None),
        ("4090, 8 users, what", "4090, 8 users, what", None, None),
    ],
)
def test_what_else_a_search_for_gpus_asks(text: str, machine: str, context: int | None, users: int | None) -> None:
    assert wish.split(text) == (machine, wish.Wish(context, users))
