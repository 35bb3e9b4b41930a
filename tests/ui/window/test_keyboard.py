"""The answer in ten seconds, with the keyboard alone."""

from __future__ import annotations

from functools import partial
from itertools import pairwise

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QApplication, QLabel, QLineEdit, QWidget
from pytestqt.qtbot import QtBot

from kvplanner.app.library import LocalModel
from kvplanner.app.session import Restored
from kvplanner.report.sentences import summary
from kvplanner.ui.dialogs.help import page_text
from kvplanner.ui.window.actions import COMMANDS, shortcut_table
from kvplanner.ui.window.application import Application
from kvplanner.ui.window.arguments import WindowArguments
from kvplanner.ui.window.run import begin
from kvplanner.ui.window.window import MainWindow
from tests.ui.window.kit import Keyboard


def test_a_model_and_two_gpus_in_twelve_keys(application: Application, qtbot: QtBot) -> None:
    window = application.new_window()
    arguments = WindowArguments(None, None, "", "", safe_mode=False, words=None)
    window.ready.connect(lambda: begin(application, window, arguments, Restored((), crashed=False)))
    window.show()
    window.activateWindow()
    qtbot.waitUntil(lambda: window.document.plan is not None, timeout=20_000)
    qtbot.waitUntil(lambda: QApplication.focusWidget() is window.panel.model.button)
    keyboard = Keyboard()
    keyboard.type("qwen3 30b")
    keyboard.press(Qt.Key.Key_Return)
    qtbot.waitUntil(lambda: "30B" in (window.document.state.model.id if window.document.state.model else ""))
    keyboard.type("2")
    keyboard.press(Qt.Key.Key_Return)
    assert keyboard.pressed <= 12
    qtbot.waitUntil(lambda: window.document.plan is not None and len(window.document.plan.devices) == 2)
    plan = window.document.plan
    assert plan is not None
    assert plan.request.model.id.startswith("Qwen/Qwen3-30B-A3B")
    assert [d.device.gpu.name for d in plan.devices] == ["NVIDIA GeForce RTX 4090"] * 2
    said = " ".join(label.text() for label in window.centre.verdict.findChildren(QLabel))
    assert summary(plan) in said.replace("\xa0", " ")


def test_a_key_in_the_picker_is_answered_in_the_turn_it_comes(window: MainWindow, application: Application) -> None:
    application.library.models = tuple(
        LocalModel(f"local-{number}-qwen", f"/m/{number}", "folder", 10**9, "Q4_K_M") for number in range(300)
    )
    application.library._scanned_once = True
    window.activateWindow()
    window.pickers.open_models()
    QApplication.processEvents()
    keyboard, typed = Keyboard(), ""
    for character in "qwen3 coder 30b":
        keyboard.type(character)
        typed += character
        rows = window.pickers.model_chooser.rows
        assert rows == tuple(window.pickers._model_rows(typed))
    assert rows
    keyboard.press(Qt.Key.Key_Escape)


def test_the_gpus_are_asked_next_only_while_they_are_assumed(window: MainWindow, qtbot: QtBot) -> None:
    window.activateWindow()
    window.panel.model.button.setFocus()
    keyboard = Keyboard()
    keyboard.type("8b")
    keyboard.press(Qt.Key.Key_Escape)
    assert QApplication.focusWidget() is window.panel.model.button
    keyboard.type("qwen3 8b")
    keyboard.press(Qt.Key.Key_Return)
    assert QApplication.focusWidget() is window.panel.model.button
    qtbot.waitUntil(lambda: "Qwen3" in (window.document.state.model.id if window.document.state.model else ""))


def test_tab_walks_the_form_in_reading_order(window: MainWindow, qtbot: QtBot) -> None:
    window.activateWindow()
    window.panel.model.button.setFocus()
    keyboard = Keyboard()
    heights: list[int] = []
    form = window.panel.widget()
    assert form is not None
    for _ in range(40):
        focus = QApplication.focusWidget()
        assert focus is not None
        if not window.panel.isAncestorOf(focus):
            break
        heights.append(focus.mapTo(form, focus.rect().topLeft()).y())
        keyboard.press(Qt.Key.Key_Tab)
    assert len(heights) > 14
    assert all(after >= before - 6 for before, after in pairwise(heights))


def is_drawn(widget: QWidget) -> bool:
    return not widget.visibleRegion().isEmpty()


def has_focus(widget: QWidget) -> bool:
    """Whether a widget, or something in it, has the focus."""
    focus = QApplication.focusWidget()
    return focus is not None and (focus is widget or widget.isAncestorOf(focus))


def test_f6_walks_the_panels_and_always_shows_where_it_is(window: MainWindow, qtbot: QtBot) -> None:
    window.resize(1024, 640)
    window.activateWindow()
    centre = window.centre
    window.panel.show_search()
    qtbot.waitUntil(lambda: window.panel.verticalScrollBar().value() > 200)
    keyboard = Keyboard()
    stops = [window.centre.bars.canvas, centre.below.breakdown, centre.below.tabs, window.panel.model.button]
    for stop in stops:
        keyboard.press(Qt.Key.Key_F6)
        assert has_focus(stop)
        qtbot.waitUntil(partial(is_drawn, stop))
    assert window.panel.model.button.visibleRegion().boundingRect() == window.panel.model.button.rect()
    for stop in reversed(stops[:-1]):
        keyboard.press(Qt.Key.Key_F6, Qt.KeyboardModifier.ShiftModifier)
        assert has_focus(stop)


def test_the_keyboard_page_names_every_key_of_the_bars() -> None:
    text = page_text("shortcuts", shortcut_table())
    bars = text.partition("## In the bars")[2].partition("##")[0]
    for key in ("Left", "Right", "Up", "Down", "Home", "End", "Enter", "Space", "`+`", "`-`"):
        assert key in bars, key
    assert "Shift+F6" in text


def test_undo_takes_a_choice_back(window: MainWindow, qtbot: QtBot) -> None:
    before = window.document.state
    window.machines.choose("4xh100-sxm5-80gb")
    assert len(window.document.state.devices) == 4
    window.activateWindow()
    window.panel.gpus.button.setFocus()
    Keyboard().press(Qt.Key.Key_Z, Qt.KeyboardModifier.ControlModifier)
    qtbot.waitUntil(lambda: window.document.state == before)


def test_undo_in_a_field_is_of_what_is_typed_there_and_then_of_the_plan(window: MainWindow, qtbot: QtBot) -> None:
    window.activateWindow()
    edit = window.panel.fields["max_num_seqs"].inputs[0]
    assert isinstance(edit, QLineEdit)
    edit.setFocus()
    keys, control = Keyboard(), Qt.KeyboardModifier.ControlModifier
    for value in ("64", "128"):
        edit.selectAll()
        keys.type(value)
        keys.press(Qt.Key.Key_Return)
    assert window.document.state.ask.options["max_num_seqs"] == 128
    keys.press(Qt.Key.Key_Z, control)
    assert window.document.state.ask.options["max_num_seqs"] == 64, "what was taken over is the plan's to undo"
    assert edit.text() == "64"
    keys.type("5")
    keys.press(Qt.Key.Key_Z, control)
    assert edit.text() == "64"
    assert window.document.state.ask.options["max_num_seqs"] == 64, "what is being typed is the field's"
    keys.press(Qt.Key.Key_Z, control)
    assert "max_num_seqs" not in window.document.state.ask.options
    keys.press(Qt.Key.Key_Z, control | Qt.KeyboardModifier.ShiftModifier)
    assert window.document.state.ask.options["max_num_seqs"] == 64


def test_every_command_and_option_is_found_by_name(window: MainWindow, qtbot: QtBot) -> None:
    keys = Keyboard()
    window.activateWindow()
    window.panel.model.button.setFocus()
    window.actions_of_window.by_name["find_command"].trigger()
    keys.type("start-up")
    keys.press(Qt.Key.Key_Return)
    assert window.centre.below.tabs.tabText(window.centre.below.tabs.currentIndex()) == "Start-up"
    window.actions_of_window.by_name["find_command"].trigger()
    keys.type("kv cache type")
    keys.press(Qt.Key.Key_Return)
    focus = QApplication.focusWidget()
    assert focus is not None
    assert window.panel.fields["kv_cache_dtype"].isAncestorOf(focus)
    window.actions_of_window.by_name["find_command"].trigger()
    assert window._finder is not None
    titles = {row.title for row in window._finder.chooser.rows}
    wanted = {c.text.replace("&", "").rstrip("…") for c in COMMANDS if c.run is not None} - {"Find a Command"}
    enabled = {t for t in wanted if t not in titles}
    assert enabled <= {"Undo", "Redo"}
    keys.press(Qt.Key.Key_Escape)
    assert not window._finder.chooser.isVisible()


def test_a_command_line_is_pasted_by_its_menu(window: MainWindow, qtbot: QtBot) -> None:
    clipboard = QApplication.clipboard()
    clipboard.setText("just words")
    window.actions_of_window.by_name["paste_command"].trigger()
    assert "holds no command line" in window.centre.messages.strips[-1].message.text
    clipboard.setText("vllm serve Qwen/Qwen3-8B --max-model-len 8192")
    window.actions_of_window.by_name["paste_command"].trigger()
    qtbot.waitUntil(lambda: window.document.state.ask.options.get("max_model_len") == 8192)
    assert window.document.state.model_text == "Qwen/Qwen3-8B"
