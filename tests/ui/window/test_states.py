"""What the window says about states that are out of the ordinary: refused, what-if, assumed, not modelled, early."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QApplication, QPushButton, QWidget
from pytestqt.qtbot import QtBot

from kvplanner.app import settings as s
from kvplanner.app.session import Restored
from kvplanner.errors import NotModelled
from kvplanner.report.sentences import summary
from kvplanner.ui.setup.context_field import ContextField
from kvplanner.ui.setup.field import tab_stops
from kvplanner.ui.setup.rows import ROW_ROLE
from kvplanner.ui.theme.ink import tokens_of
from kvplanner.ui.theme.palette import LIGHT, paled
from kvplanner.ui.window.application import Application
from kvplanner.ui.window.arguments import parse
from kvplanner.ui.window.run import begin
from kvplanner.ui.window.window import MainWindow
from tests.ui.window.kit import opened_options, settled, text_field


def type_into(window: MainWindow, option: str, text: str) -> None:
    field = text_field(window, option)
    field.edit.setText(text)
    field.edit.editingFinished.emit()
    window.document.flush()


def stale(window: MainWindow) -> tuple[str, str] | None:
    told = window.centre.verdict._stale
    return told[:2] if told is not None else None


@pytest.mark.parametrize(
    ("text", "headline", "remedy"),
    [
        ("many", "No plan: context length is refused", "'many' is not a count"),
        ("999999999", "No plan: context 999,999,999 exceeds the model's 131,072", "Lower it to 131,072"),
    ],
)
def test_the_plan_in_sight_says_that_it_is_not_of_what_is_typed(
    window: MainWindow, text: str, headline: str, remedy: str
) -> None:
    assert stale(window) is None
    fits = window.centre.verdict.shown().headline
    type_into(window, "max_model_len", text)
    told = window.centre.verdict.shown()
    assert told.headline == headline
    assert told.details[0].startswith(remedy)
    assert told.details[1] == f"Shown: the last plan that worked ({fits})"
    if window.document.error is None:
        window.document.set_option("max_num_seqs", 9)
    else:
        window.document.undo()
    window.document.flush()
    assert stale(window) is None
    field = text_field(window, "max_model_len")
    assert not field.error.text()
    assert field.edit.text() == ""


def test_a_long_number_shows_its_start(window: MainWindow) -> None:
    type_into(window, "max_model_len", "999999999")
    edit = text_field(window, "max_model_len").edit
    assert edit.cursorPosition() == 0
    assert edit.fontMetrics().horizontalAdvance(edit.text()) < edit.width() - 12


def test_a_model_that_is_not_modelled_is_a_problem_not_an_old_plan(window: MainWindow) -> None:
    window.document._fail(NotModelled("its layers are not known", "some/model", "Choose another model"))
    told = window.centre.verdict.shown()
    assert told.headline == "No plan: its layers are not known"
    assert "Choose another model" in " ".join(told.details)


def test_over_the_plan_of_another_model_stands_whose_it_is(window: MainWindow) -> None:
    type_into(window, "max_model_len", "100000")
    state = window.document.state
    assert state.model is not None
    short = state.model.spec._replace(context_length=4096)
    window.document.set_model("some/other", state.model._replace(id="some/other", spec=short))
    window.document.flush()
    assert window.document.error is not None
    told = window.centre.verdict.shown()
    assert told.headline.startswith("No plan: ")
    assert "Fits" not in told.headline
    assert "Shown: the last plan that worked (Llama-3.1-8B-Instruct: Fits" in " ".join(told.details)
    assert window.centre.plan is window.document.plan is not None
    assert tokens_of(window.centre.bars.canvas) == paled(LIGHT)


def test_a_refusal_offers_what_ends_it(window: MainWindow) -> None:
    def offered() -> dict[str, QPushButton]:
        buttons = window.centre.verdict.findChildren(QPushButton)
        return {b.text(): b for b in buttons if b.isVisible() and b is not window.centre.copy_button}

    plan = window.document.plan
    type_into(window, "max_model_len", "999999999")
    assert window.document.error is not None
    assert list(offered()) == ["Reset context length", "Show the field", "Undo change context length"]
    window.side.show_form(False)
    offered()["Show the field"].click()
    offered()["Reset context length"].click()
    window.document.flush()
    assert window.document.error is None
    assert offered() == {}
    assert window.document.plan == plan


@pytest.mark.parametrize(("engine", "flag"), [("vllm", "--tensor-parallel-size 8"), ("sglang", "--tp-size 8")])
def test_the_copied_command_starts_the_plan_in_sight(
    open_window: Callable[..., MainWindow], engine: str, flag: str
) -> None:
    window = open_window("Llama-3.3-70B-Instruct", "8xH100", engine=engine)
    assert window.document.plan is not None
    assert window.document.state.ask.options == {}
    window.copying.copy_command()
    assert flag in QGuiApplication.clipboard().text()
    assert window.centre.messages.strips == []


def test_a_command_whose_plan_fails_is_copied_and_told(open_window: Callable[..., MainWindow]) -> None:
    window = open_window("Llama-3.3-70B-Instruct", "1xRTX 4090")
    window.copying.copy_command()
    assert QGuiApplication.clipboard().text().startswith("vllm serve")
    assert "does not fit: " in window.centre.messages.strips[-1].message.text
    type_into(window, "max_model_len", "999999999")
    window.copying.copy_command()
    assert "--max-model-len 999999999" in QGuiApplication.clipboard().text()
    assert "have no plan" in window.centre.messages.strips[-1].message.text


def test_a_what_if_is_marked_and_can_be_taken_back(window: MainWindow) -> None:
    field = window.panel.model.format_field
    assert field.reset_button.isHidden()
    window.panel.model.format_chosen.emit("FP8")
    window.document.flush()
    assert "What if" in window.panel.model.button.accessibleDescription()
    assert "8.46 GiB as FP8 · stored 14.96 GiB" in window.panel.model.button.accessibleDescription()
    window.copying.copy_command()
    assert QGuiApplication.clipboard().text().startswith("# needs a checkpoint in FP8\nvllm serve")
    assert not field.reset_button.isHidden()
    field.reset_button.click()
    assert window.document.state.ask.weight_format is None


def test_a_changed_choice_and_version_can_be_reset(window: MainWindow) -> None:
    window.document.set_option("kv_cache_dtype", "fp8")
    window.document.edit("Change engine version", version="0.25")
    window.document.flush()
    for field in (window.panel.fields["kv_cache_dtype"], window.panel.engine.field):
        assert not field.reset_button.isHidden()
        field.reset_button.click()
        assert field.reset_button.isHidden()
    assert window.document.state.ask.options == {}
    assert window.document.state.ask.version is None


def test_an_assumed_gpu_says_why(window: MainWindow) -> None:
    window.document.amend(machine_chosen=False)
    window.panel.gpus.show_found(None)
    assert "Assumed, no GPU here · 23.99 GiB each" in window.panel.gpus.button.accessibleDescription()


def test_finding_an_option_shows_the_search_on_top(window: MainWindow, qtbot: QtBot) -> None:
    window.resize(1024, 640)
    window.panel.show_search()
    advanced = window.panel.advanced
    assert advanced is not None
    qtbot.waitUntil(
        lambda: 0 <= advanced.search.mapTo(window.panel.viewport(), advanced.search.rect().topLeft()).y() < 40
    )
    advanced.search.setText("lora")
    settled(advanced)
    shown = sorted((entry for entry in advanced.entries.values() if not entry.isHidden()), key=QWidget.y)
    bottom = shown[0].mapTo(window.panel.viewport(), shown[0].rect().bottomLeft()).y()
    assert bottom <= window.panel.viewport().height()


def test_tab_reaches_rows_that_are_made_later_in_their_place(window: MainWindow) -> None:
    advanced, gpus = opened_options(window), window.panel.gpus
    gpus.toggle.setChecked(True)
    context = window.panel.fields["max_model_len"]
    assert isinstance(context, ContextField)
    assert tab_stops(context)[-1] is context.trained_button
    for stops in (gpus.tab_stops(), tab_stops(context), advanced.tab_stops()):
        for before, after in pairwise(stops):
            assert before.nextInFocusChain() is after, (before, after)


def test_the_marks_stand_at_their_ticks(open_window: Callable[..., MainWindow], qtbot: QtBot) -> None:
    window = open_window("Llama-3.1-8B-Instruct", "1xRTX 4090")
    field = window.panel.fields["max_model_len"]
    assert isinstance(field, ContextField)
    qtbot.wait(20)
    one, two = field.largest_button, field.trained_button
    assert one.text().startswith("largest that fits ")
    assert two.text() == "trained 131,072"
    assert one.geometry().right() < two.geometry().left()
    assert two.geometry().right() <= field.width()
    one.click()
    window.document.flush()
    assert window.document.plan is not None
    assert window.document.plan.fits
    window.machines.choose("1xh100-sxm5-80gb")
    window.document.flush()
    assert two.text() == "trained 131,072: fits"
    assert one.isHidden()


@pytest.mark.parametrize(
    ("model", "gpu", "verdict", "mark"),
    [("Qwen3-0.6B", "1xGTX 1080 Ti", "Cannot tell", "trained 40,960"),
     ("Qwen2.5-1.5B-Instruct", "1xRTX A2000", "May not fit", "trained 32,768"),
     ("Qwen3-0.6B", "1xH100", "Fits", "trained 40,960: fits")],
)  # fmt: skip
def test_no_length_is_said_to_fit_in_doubt(
    open_window: Callable[..., MainWindow], qtbot: QtBot, model: str, gpu: str, verdict: str, mark: str
) -> None:
    window = open_window(model, gpu)
    field = window.panel.fields["max_model_len"]
    assert isinstance(field, ContextField)
    qtbot.wait(20)
    plan = window.document.plan
    assert plan is not None
    assert summary(plan).startswith(verdict)
    assert (plan.limits.max_context_length or 0) >= (plan.request.model.spec.context_length or 0)
    assert field.trained_button.text().endswith(mark)


def test_the_length_that_is_offered_surely_fits_and_the_one_beyond_may(
    open_window: Callable[..., MainWindow], qtbot: QtBot
) -> None:
    window = open_window("Llama-3.1-8B-Instruct", "1xRTX 4090")
    field = window.panel.fields["max_model_len"]
    assert isinstance(field, ContextField)
    qtbot.wait(20)
    assert window.document.plan is not None
    maybe = window.document.plan.limits.max_context_length
    assert f"{maybe:,} may fit" in field.largest_button.toolTip()
    field.largest_button.click()
    window.document.flush()
    assert summary(window.document.plan).startswith("Fits")
    assert window.document.plan.sure
    window.document.set_option("max_model_len", maybe)
    window.document.flush()
    qtbot.wait(20)
    assert summary(window.document.plan).startswith("May not fit")
    assert field.largest_button.text().startswith("largest that fits ")  # a shorter one than is set


def test_the_list_of_models_begins_at_the_chosen_one(window: MainWindow) -> None:
    window.pickers.open_models()
    row = window.pickers.model_chooser._list.currentIndex().data(ROW_ROLE)
    assert row.data == "meta-llama/Llama-3.1-8B-Instruct"
    window.pickers.close_choosers()


def test_a_folder_joins_the_search_and_leaves_it(window: MainWindow, tmp_path: Path, qtbot: QtBot) -> None:
    model = tmp_path / "elsewhere" / "tiny"
    model.mkdir(parents=True)
    (model / "config.json").write_text('{"architectures": ["LlamaForCausalLM"], "model_type": "llama"}')
    (model / "model.safetensors").write_bytes(b"\x02\0\0\0\0\0\0\0{}")
    library = window.services.library
    window.search.look_in(str(tmp_path / "elsewhere"))
    qtbot.waitUntil(lambda: any("tiny" in found.title for found in library.models), timeout=10_000)
    window.search.leave(str(tmp_path / "elsewhere"))
    assert window.services.settings.get(s.MODEL_FOLDERS) == []
    qtbot.waitUntil(lambda: not any("tiny" in found.title for found in library.models), timeout=10_000)


def test_the_first_window_shows_its_ground_then_the_plan_then_the_rest(application: Application, qtbot: QtBot) -> None:
    window = application.first_window()
    seen: list[tuple[bool, bool]] = []
    window.ready.connect(lambda: begin(application, window, parse([]), Restored((), crashed=False)))
    window.planned_once.connect(lambda: seen.append((window.assembled, window.furnished)))
    assert not window.assembled
    with qtbot.waitSignal(window.filled, timeout=20_000):
        window.show()
    qtbot.waitUntil(lambda: window.document.plan is not None, timeout=20_000)
    assert seen
    assert window.furnished
    assert not QApplication.windowIcon().isNull()


def test_a_window_closed_before_its_content_leaves_no_trace(application: Application, qtbot: QtBot) -> None:
    window = application.first_window()
    application.app.blockSignals(True)
    window.close()
    application.app.blockSignals(False)
    assert not window.assembled
