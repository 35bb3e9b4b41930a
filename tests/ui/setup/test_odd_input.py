"""The form by keyboard alone with odd input: nothing breaks, and what is refused says why, where it was typed."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from kvplanner.ui.setup.field import Field
from kvplanner.ui.setup.gpu_section import DeviceRow
from kvplanner.ui.setup.inputs import ValueEdit
from kvplanner.ui.widgets.labels import ErrorLabel
from kvplanner.ui.window.window import MainWindow
from kvplanner.units import LARGEST
from tests.ui.window.kit import Keyboard, opened_options

pytestmark = pytest.mark.slow

SERVE = "vllm serve Qwen/Qwen3-8B -tp 2 --max-model-len 16k --gpu-memory-utilization 0.85"
ODD = ("", "0", "9" * 30, "abc", "3.7", "<b>1</b>", "16\n32", "a" * 500, SERVE)


def paste(edit: ValueEdit, text: str) -> None:
    """Replace what stands in a field, and press Enter."""
    edit.window().activateWindow()
    QGuiApplication.clipboard().setText(text)
    edit.setFocus()
    edit.selectAll()
    if text:
        Keyboard().press(Qt.Key.Key_V, Qt.KeyboardModifier.ControlModifier)
    else:
        Keyboard().press(Qt.Key.Key_Delete)
    Keyboard().press(Qt.Key.Key_Return)


def every_field(window: MainWindow) -> list[tuple[ValueEdit, Field]]:
    """All fields for a value."""
    advanced, load = opened_options(window), window.panel.load
    assert load is not None
    fields: list[Field] = [*window.panel.fields.values(), load, window.panel.gpus.count_field]
    fields += [entry.field for entry in advanced.entries.values()]
    return [(edit, field) for field in fields for edit in field.inputs if isinstance(edit, ValueEdit)]


@pytest.mark.parametrize("text", ODD)
def test_no_field_breaks_over_odd_input(window: MainWindow, text: str) -> None:
    """What a field takes is planned or refused beside it; what it refuses leaves the state as it was."""
    state = window.document.state
    for edit, field in every_field(window):
        if window.document.state != state:
            window.document.reset(state)
            window.document.flush()
        paste(edit, text)
        window.document.flush()
        said = field.error.message
        if window.document.state == state and text.strip() and field is not window.panel.gpus.count_field:
            assert said or edit.text() in ("", "0"), (field.title, text)
        assert "Example: --" not in said
        assert "\n" not in edit.text()
        if text == SERVE and hasattr(field, "option"):
            assert "Paste it into the model chooser" in said, field.title
            assert window.document.state == state
    QApplication.processEvents()
    form = window.panel.widget()
    assert form is not None
    assert form.width() == window.panel.viewport().width()


def test_what_is_typed_in_advanced_is_told_in_advanced(window: MainWindow) -> None:
    field = opened_options(window).entries["data_parallel_size"].field
    edit = field.inputs[0]
    assert isinstance(edit, ValueEdit)
    QApplication.processEvents()
    paste(edit, "64")
    window.document.flush()
    assert field.error.message.startswith("Data parallel 64 needs 64 GPUs")
    assert window.panel.fields["tensor_parallel_size"].error.message == ""
    assert window.panel.fields["data_parallel_size"].error.message == ""


def test_messages_quote_what_was_typed_as_it_is(window: MainWindow) -> None:
    label = ErrorLabel(window)
    label.say("<b>" + "x" * 60)
    assert label.textFormat() == Qt.TextFormat.PlainText
    assert label.minimumSizeHint().width() < 260


@pytest.mark.parametrize(
    ("text", "said"),
    [("16", "give a unit, for example 16GiB"), ("100GiB", "more than this GPU has"), ("22,5 GiB", ""), ("0", "")],
)
def test_free_memory_is_within_the_card_and_has_a_unit(window: MainWindow, text: str, said: str) -> None:
    window.panel.gpus.toggle.setChecked(True)
    QApplication.processEvents()
    row = window.panel.gpus.findChildren(DeviceRow)[0]
    paste(row.free, text)
    assert said in row.error.message
    assert bool(said) == bool(row.error.message)
    assert bool(window.document.state.given_free) == (not said)


def press(edit: ValueEdit, key: Qt.Key, times: int = 1) -> None:
    """Press a key in a field."""
    edit.window().activateWindow()
    edit.setFocus()
    for _ in range(times):
        Keyboard().press(key)


def test_escape_takes_a_refused_value_back(window: MainWindow) -> None:
    panel = window.panel
    load = panel.load
    assert load is not None
    window.document.set_option("max_num_seqs", 64)
    state = window.document.state
    for field in (panel.fields["max_num_seqs"], panel.fields["max_model_len"], load, panel.gpus.count_field):
        edit = field.inputs[0]
        assert isinstance(edit, ValueEdit)
        before = edit.text()
        paste(edit, "nonsense")
        assert field.error.message
        press(edit, Qt.Key.Key_Escape)
        assert (edit.text(), field.error.message) == (before, "")
        assert window.document.state == state


def test_stepping_ends_at_what_makes_sense(window: MainWindow) -> None:
    panel, load = window.panel, window.panel.load
    assert load is not None

    def stepped(edit: object, key: Qt.Key, times: int) -> None:
        assert isinstance(edit, ValueEdit)
        press(edit, key, times)
        window.document.flush()

    context, sequences = panel.fields["max_model_len"], panel.fields["max_num_seqs"]
    window.document.set_option("max_model_len", 50_000)
    window.document.flush()
    stepped(context.inputs[0], Qt.Key.Key_Up, 2)
    assert window.document.state.ask.options["max_model_len"] == 131_072
    stepped(context.inputs[0], Qt.Key.Key_Down, 40)
    assert window.document.state.ask.options["max_model_len"] == 1
    stepped(sequences.inputs[0], Qt.Key.Key_Up, 80)
    assert window.document.state.ask.options["max_num_seqs"] == LARGEST
    window.document.set_options({}, "reset")
    for edit, least in ((load.users, 1), (load.prompt, 0), (load.output, 1)):
        stepped(edit, Qt.Key.Key_Up, 1)
        stepped(edit, Qt.Key.Key_Down, 60)
        assert edit.text() == str(least)


@pytest.mark.parametrize("in_advanced", [False, True])
def test_parallel_sizes_step_to_what_the_model_allows(window: MainWindow, in_advanced: bool) -> None:
    """Llama 3.1 8B has 32 heads, 8 KV heads and 32 layers."""
    fields = {name: entry.field for name, entry in opened_options(window).entries.items()}
    fields = fields if in_advanced else {**window.panel.fields}
    seen: dict[str, list[object]] = {"tensor_parallel_size": [], "pipeline_parallel_size": []}
    for name, values in seen.items():
        edit = fields[name].inputs[0]
        assert isinstance(edit, ValueEdit)
        window.document.set_options({name: 3}, "typed")
        for key in (Qt.Key.Key_Up,) * 5 + (Qt.Key.Key_Down,) * 2:
            press(edit, key, 1)
            window.document.flush()
            values.append(window.document.state.ask.options[name])
    assert seen["tensor_parallel_size"] == [4, 8, 16, 32, 32, 16, 8]
    assert seen["pipeline_parallel_size"] == [4, 5, 6, 7, 8, 7, 6]


def test_an_empty_count_is_what_it_was(window: MainWindow) -> None:
    gpus = window.panel.gpus
    paste(gpus.count, "")
    assert (gpus.count.text(), gpus.count_field.error.message) == ("2", "")
    assert len(window.document.state.devices) == 2


def test_a_pasted_command_line_becomes_the_plan(open_window: Callable[..., MainWindow], qtbot: QtBot) -> None:
    window = open_window(gpu="2xRTX 4090")
    before = window.document.state
    window.activateWindow()
    window.pickers.open_models()
    QGuiApplication.clipboard().setText(SERVE.replace(" -tp", " \\\n  -tp") + " --port 80")
    Keyboard().press(Qt.Key.Key_V, Qt.KeyboardModifier.ControlModifier)
    assert window.pickers.model_chooser.rows[0].title == "Plan this command line"
    Keyboard().press(Qt.Key.Key_Return)
    qtbot.waitUntil(lambda: window.document.state is not before)
    state = window.document.state
    assert state.model is not None
    assert state.model.id == "Qwen/Qwen3-8B"
    options = {"tensor_parallel_size": 2, "max_model_len": 16_000, "gpu_memory_utilization": 0.85}
    assert dict(state.ask.options) == options
    assert state.devices == before.devices
    window.document.undo()
    assert window.document.state == before


def test_a_command_line_that_cannot_be_read_leaves_the_plan(window: MainWindow, qtbot: QtBot) -> None:
    before, told = window.document.state, list[str]()
    window.messages.posted.connect(lambda message: told.append(message.text))
    window.opening.plan_command("vllm serve Qwen/Qwen3-8B --no-such-flag 3")
    qtbot.waitUntil(lambda: any("no-such-flag" in text for text in told))
    assert window.document.state == before
