"""What people come for, counted in steps; whatever is answered by one number takes four steps at most."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QApplication, QFileDialog, QLineEdit
from pytestqt.qtbot import QtBot

from kvplanner.app.session import Restored
from kvplanner.ui.gpu_panel.panel import GpuPanel
from kvplanner.ui.setup import wish
from kvplanner.ui.setup.context_field import ContextField
from kvplanner.ui.setup.option_field import OptionField
from kvplanner.ui.window.application import Application
from kvplanner.ui.window.arguments import WindowArguments
from kvplanner.ui.window.run import begin
from kvplanner.ui.window.window import MainWindow
from kvplanner.units import MIB
from tests.observe.kit import Stub, scenario_text
from tests.observe.panel_kit import until
from tests.source.make_gguf import llama_file
from tests.ui.window.tasks import Person

pytestmark = pytest.mark.slow

CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 2048, "intermediate_size": 8192,
    "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
    "max_position_embeddings": 131072, "torch_dtype": "bfloat16",
}  # fmt: skip


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


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> list[QFileDialog]:
    """The dialogs of files that were opened: they do not show, and wait for an answer."""
    opened: list[QFileDialog] = []
    monkeypatch.setattr(QFileDialog, "open", lambda self: opened.append(self))
    return opened


def chosen(person: Person, files: list[QFileDialog], path: Path) -> None:
    """The name that the dialog proposes, or the file that lies there, is taken by a key."""
    person.steps += 1
    files[-1].fileSelected.emit(str(path))


# 1 to 3, 5 to 7: numbers ------------------------------------------------------------------------------------------


def test_a_32b_in_four_bits_on_one_card(person: Person) -> None:
    person.type("qwen3 32b awq")
    person.keys("Return")
    person.planned(lambda plan: "32B-AWQ" in plan.request.model.id)
    person.type("4090")
    person.keys("Return")
    plan = person.planned(lambda plan: "4090" in plan.request.machine.devices[0].gpu.name)
    assert not plan.fits
    assert person.offer("ontext length").isVisible(), "what to change"
    person.took("1 a 32B in four bits on one 24 GB card, what to change")


def test_two_cards_a_context_and_users(person: Person) -> None:
    person.keys("Ctrl+2")
    person.type("2x3090, 32K, 8 users")
    person.keys("Return")
    plan = person.planned(lambda plan: len(plan.devices) == 2 and plan.request.load is not None)
    assert [device.device.gpu.name for device in plan.devices] == ["NVIDIA GeForce RTX 3090"] * 2
    assert plan.kv_cache is not None
    assert plan.kv_cache.context_length == 32_768
    assert "serves 8 of 8 users" in person.reads()
    person.took("2 two 3090s, 32k, 8 users")
    person.keys("Ctrl+Z")
    assert person.window.document.state.ask.load is None


def test_a_pasted_command(person: Person) -> None:
    person.window.centre.bars.canvas.setFocus()
    person.paste("vllm serve Qwen/Qwen3-8B --max-model-len 16384 --kv-cache-dtype fp8")
    plan = person.planned(lambda plan: plan.request.model.id == "Qwen/Qwen3-8B")
    assert plan.kv_cache is not None
    assert plan.kv_cache.context_length == 16_384
    person.took("3 a vllm serve line", 1)


def test_the_fix_of_a_failing_plan(person: Person, open_window: Callable[..., MainWindow]) -> None:
    person.window = open_window("Llama-3.3-70B-Instruct", "2xH100")
    assert not person.planned(lambda plan: True).fits
    person.click(person.offer("ontext length"))
    assert person.planned(lambda plan: bool(plan.fits)).fits
    person.took("5 the fix of a failing plan", 1)
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
        return {line.title: line.cells for line in page.model.lines if line.row is not None}  # type: ignore[attr-defined]  # a page's own: the window gives widgets

    person.qtbot.waitUntil(lambda: "(+" in rows().get("KV cache tokens", ("",))[0])
    person.took("6 two options compared")


def test_the_longest_context_and_the_most_users(person: Person, open_window: Callable[..., MainWindow]) -> None:
    person.window = open_window("Llama-3.1-8B-Instruct", "RTX 4090")
    person.window.activateWindow()
    limits = person.planned(lambda plan: True).limits
    field = person.window.panel.fields["max_model_len"]
    assert isinstance(field, ContextField)
    mark = field.largest_button
    assert limits.sure_max_context_length is not None
    assert f"{limits.sure_max_context_length:,}" in mark.text(), "the longest context stands there already"
    person.click(mark)
    assert person.planned(lambda plan: bool(plan.fits)).fits
    person.took("7 the longest context", 1)
    load = person.window.panel.load
    assert load is not None
    person.click(load.users, load.users.rect().center())
    person.type("9999")
    person.keys("Return")
    person.planned(lambda plan: plan.request.load is not None)
    assert "of 9,999 users" in person.reads(), "the most users are told at once"
    person.took("7 the most users")


# 4: files ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["a model's folder", "a GGUF file", "a config.json"])
def test_what_is_dropped_is_planned(person: Person, tmp_path: Path, what: str) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    config, gguf = folder / "config.json", tmp_path / "small.gguf"
    config.write_text(json.dumps(CONFIG))
    gguf.write_bytes(llama_file())
    path = {"a model's folder": folder, "a GGUF file": gguf, "a config.json": config}[what]
    person.drop(str(path))
    person.qtbot.waitUntil(lambda: person.window.document.state.model_text == str(path), timeout=10_000)
    person.took(f"4 {what}", 1)


# 8 and 14: the machine's GPUs -------------------------------------------------------------------------------------


def test_this_machines_gpus(
    person: Person, card: Stub, server: subprocess.Popen[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def running(held: int, more: str = "") -> str:
        text = scenario_text("desktop-4090").replace("compute = 7777:506", f"compute = {server.pid}:{held}")
        text = text.replace("used_mib = 1206", f"used_mib = {1206 + held}").replace("total_mib", f"{more}total_mib", 1)
        return f"process.{server.pid} = {Path(sys.executable).name}\n{text}"

    window, qtbot = person.window, person.qtbot
    card.use(running(18_000))
    person.keys("Ctrl+G")
    panel = window.findChild(GpuPanel)
    assert panel is not None
    until(qtbot, lambda: window.centre.bars.canvas.view().measured and panel.bars.rows())
    person.took("8 this machine's GPUs watched, the plan laid over", 1)
    until(qtbot, lambda: panel.engines.isVisible())
    person.click(panel.engines.make_plan, panel.engines.make_plan.rect().center())
    until(qtbot, lambda: window.document.state.ask.options.get("max_model_len") == 4096)
    person.took("8 a running server becomes the plan", 1)
    bar = panel.tabs.tabBar()
    at = next(i for i in range(bar.count()) if bar.tabText(i).replace("&", "") == "Processes")
    person.click(bar, bar.tabRect(at).center())
    until(qtbot, lambda: panel.processes.view.isVisible() and panel.processes.view.model().rowCount() > 0)
    person.took("8 the processes", 1)
    path = tmp_path / "run.csv"

    def answered(*_: object) -> tuple[str, str]:
        person.steps += 1
        return str(path), ""

    monkeypatch.setattr(QFileDialog, "getSaveFileName", answered)
    monkeypatch.setattr(QFileDialog, "getOpenFileName", answered)
    record, replay = panel.toolbar.record_button, panel.toolbar.replay_button
    person.click(record, record.rect().center())
    until(qtbot, lambda: panel.feed.recorder is not None and panel.feed.recorder.snapshots > 3)
    person.took("8 a recording")
    person.click(record, record.rect().center())
    person.click(replay, replay.rect().center())
    until(qtbot, lambda: panel.replay.isVisible() and "run.csv" in panel.replay.text.full)
    assert panel.replay.pause.isVisible()
    assert panel.replay.place.isVisible()
    person.took("8 its replay, with its date, pause and place")
    panel.feed.end_replay()
    until(qtbot, lambda: panel.model.overlays and panel.model.overlays[0].engine.value == 18_000 * MIB)
    card.use(running(18_000, "lost_after = 1\n"))
    until(qtbot, lambda: window.status.lost.full.startswith("GPU 0"))
    assert "does not answer since" in window.centre.verdict.notes.text()
    person.took("14 a GPU that no longer answers", 0)
    window.view.stop_gpu_panel()


def test_no_driver(person: Person) -> None:
    """A fresh start where no GPU answers: a plan, no error, and the place where it is said."""
    window = person.window
    assert person.planned(lambda plan: True).fits
    assert not window.centre.messages.strips
    person.window.services.library._probed(None)
    assert "No NVIDIA GPU here" in window.status.machine.full
    person.took("14 no driver", 0)


# 9 and 10: handed on, and kept -----------------------------------------------------------------------------------


def test_what_is_handed_on(person: Person, files: list[QFileDialog], tmp_path: Path) -> None:
    person.click(person.window.centre.copy_button)
    assert QGuiApplication.clipboard().text().startswith("vllm serve")
    person.took("9 the command", 1)
    for keys, name, task in (("Ctrl+E", "plan.png", "9 a picture"), ("Ctrl+Shift+R", "plan.html", "9 a report")):
        person.keys(keys)
        chosen(person, files, tmp_path / name)
        person.qtbot.waitUntil(lambda name=name: (tmp_path / name).is_file(), timeout=20_000)  # type: ignore[misc]  # keeps its loop's value
        person.took(task)


def test_what_is_kept(person: Person, files: list[QFileDialog], tmp_path: Path, application: Application) -> None:
    window, path = person.window, tmp_path / "a.kvplan.json"
    window.document.set_option("max_num_seqs", 77)
    person.keys("Ctrl+S")
    chosen(person, files, path)
    person.qtbot.waitUntil(path.is_file, timeout=10_000)
    person.qtbot.waitUntil(lambda: window.document.path == path)
    person.took("10 save")
    window.document.set_option("max_num_seqs", 78)
    person.keys("Ctrl+Z")
    assert window.document.state.ask.options["max_num_seqs"] == 77
    person.took("10 undo", 1)
    window.document.reset(window.document.state.changed(options={}))
    person.keys("Ctrl+O")
    chosen(person, files, path)
    person.qtbot.waitUntil(lambda: window.document.state.ask.options.get("max_num_seqs") == 77, timeout=10_000)
    person.took("10 reopen")
    # Killed: the next start finds the session's file of a process that is gone.
    application.session.write_now()
    left = application.session.own
    assert json.loads(left.read_text())["windows"][0]["plan"]["options"]["max_num_seqs"] == 77
    gone = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True, check=True
    )
    left.rename(left.with_name(f"{gone.stdout.strip()}.json"))
    restored = application.session.restore()
    assert restored.crashed
    assert restored.plans[0].plan["options"]["max_num_seqs"] == 77
    person.took("10 the last edit after a kill", 0)


# 11 to 13 ---------------------------------------------------------------------------------------------------------


def test_everything_by_keyboard(person: Person) -> None:
    """Another model, machine, context and type of cache, and the answer, without a mouse."""
    person.type("qwen3 30b")
    person.keys("Return")
    person.planned(lambda plan: "30B" in plan.request.model.id)
    person.type("2xH100, 32K")
    person.keys("Return")
    person.planned(lambda plan: plan.kv_cache is not None and plan.kv_cache.context_length == 32_768)
    person.keys("Ctrl+Shift+P")
    person.type("kv cache type")
    person.keys("Return")
    person.type("fp8")
    plan = person.planned(lambda plan: plan.request.options.get("kv_cache_dtype") == "fp8")
    assert len(plan.devices) == 2
    person.took("11 model, GPUs, context and cache type by keyboard", 8)


def test_the_verdict_is_in_sight_at_every_size(person: Person) -> None:
    window, letters = person.window, person.window.font()
    larger = QApplication.font()
    larger.setPointSizeF(letters.pointSizeF() * 1.5)
    for size, font in [*(((w, h), letters) for w, h in ((1024, 640), (1280, 800), (1920, 1080), (2560, 1440))),
                       ((1024, 640), larger)]:  # fmt: skip
        QApplication.setFont(font)
        window.resize(*size)
        person.qtbot.wait(50)
        assert (window.width(), window.height()) == size, "no minimum above what is asked"
        headline = window.centre.verdict.headline
        assert headline.visibleRegion().boundingRect() == headline.rect()
    QApplication.setFont(letters)
    person.took("12 the verdict read at four sizes and at 150 %", 0)


def test_wrong_input_is_told_where_it_is_typed(person: Person) -> None:
    fields: list[OptionField] = [
        f for f in person.window.panel.fields.values() if isinstance(f.inputs[0], QLineEdit) and f.inputs[0].isVisible()
    ]
    assert len(fields) > 4
    for field in fields:
        edit = field.inputs[0]
        person.click(edit, edit.rect().center())
        person.type("nonsense")
        person.keys("Return")
        assert field.error.isVisible(), field.title
        person.took("13 wrong input in each field, told where it is typed")
        person.keys("Escape")
        person.steps = 0
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
