"""The choosers know the machine and the model: marks beside rows, filters and stars."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import pytest
from PySide6.QtCore import Qt
from pytestqt.qtbot import QtBot

from kvplanner.app import settings as s
from kvplanner.catalog import gpus, models
from kvplanner.report.fits import verdict_of
from kvplanner.solve.fits import models_on, on_any_machine, planned
from kvplanner.ui.setup.marks import FITTING
from kvplanner.ui.setup.rows import MARK_ROLE
from kvplanner.ui.window.window import MainWindow
from tests.catalog.small import catalogue_of
from tests.ui.window.kit import Keyboard

pytestmark = pytest.mark.slow


@pytest.fixture
def few(window: MainWindow) -> Iterator[tuple[models.ModelEntry, ...]]:
    """A catalogue of one family, so that all of it is marked soon."""
    chosen = tuple(entry for entry in models.index() if entry.id.startswith("Qwen/Qwen3-"))
    with catalogue_of(chosen):
        yield chosen


@pytest.mark.usefixtures("few")
def test_models_are_marked_as_their_plans_say(window: MainWindow, qtbot: QtBot) -> None:
    window.pickers.open_models()
    marks = window.pickers._model_marks
    qtbot.waitUntil(lambda: len(marks.found) == len(models.index()), timeout=30_000)
    state = window.document.state
    assert state.machine is not None
    ask = state.ask._replace(options={}, measured={}, weight_format=None)
    for fit in islice(models_on(state.machine, ask), 0, None, 7):
        assert marks.found[fit.model] == verdict_of(fit)
    assert {"fits", "does not fit"} <= set(marks.found.values())
    chooser = window.pickers.model_chooser
    at = next(i for i, row in enumerate(chooser.rows) if row.data in marks.found)
    index = chooser._model.index(at)
    assert index.data(MARK_ROLE) == marks.found[chooser.rows[at].data]
    assert str(index.data(Qt.ItemDataRole.AccessibleTextRole)).endswith(str(index.data(MARK_ROLE)))


def test_gpus_are_marked_for_the_chosen_model(window: MainWindow, qtbot: QtBot) -> None:
    window.activateWindow()
    window.pickers.open_gpus("h100")
    marks = window.pickers._gpu_marks
    qtbot.waitUntil(lambda: "1xh100-sxm5-80gb" in marks.found, timeout=10_000)
    Keyboard().type(" 2")  # a count of its own
    model = window.document.state.model
    assert model is not None
    for text, mark in marks.found.items():
        request = on_any_machine(window.document.state.ask).request(model, gpus.machine(str(text)))
        assert mark == verdict_of(planned(request, str(text)))


def test_a_release_that_is_refused_leaves_the_choosers_usable(window: MainWindow, qtbot: QtBot) -> None:
    state = window.document.state
    window.document.reset(state._replace(ask=state.ask._replace(version="hub:")))
    window.pickers.open_gpus("h100")
    marks = window.pickers._gpu_marks
    qtbot.waitUntil(lambda: "1xh100-sxm5-80gb" in marks.found, timeout=10_000)
    assert marks.found["1xh100-sxm5-80gb"] not in FITTING
    window.pickers.open_models("llama")
    qtbot.waitUntil(lambda: not window.services.jobs.active, timeout=30_000)


@pytest.mark.usefixtures("few")
def test_only_what_fits_is_left_by_button_and_by_word(window: MainWindow, qtbot: QtBot) -> None:
    window.activateWindow()
    window.pickers.open_models("qwen3")
    chooser, marks = window.pickers.model_chooser, window.pickers._model_marks
    qtbot.waitUntil(lambda: len(marks.found) == len(models.index()), timeout=30_000)
    everything = [row.data for row in chooser.rows if row.kind == "item"]
    Keyboard().type(" is:fits")
    typed = [row.data for row in chooser.rows if row.kind == "item"]
    assert typed
    assert all(marks.found[data] in FITTING for data in typed)
    assert len(typed) < len(everything)
    chooser._edit.setText("qwen3")
    chooser._filters[0].click()
    assert [row.data for row in chooser.rows if row.kind == "item"] == typed
    chooser._filters[2].click()
    quantised = [row.data for row in chooser.rows if row.kind == "item"]
    assert quantised
    assert all(models.find(str(data)).quantization for data in quantised)


def test_a_star_stays_and_leads_the_list(window: MainWindow) -> None:
    window.activateWindow()
    window.pickers.open_models("gpt-oss-20b")
    chooser, keyboard = window.pickers.model_chooser, Keyboard()
    data = chooser._current_data()
    keyboard.press(Qt.Key.Key_T, Qt.KeyboardModifier.ControlModifier)
    assert window.services.settings.get(s.STARRED_MODELS) == [data]
    assert next(row for row in chooser.rows if row.data == data).starred
    window.pickers.open_models()
    titles = [row.title for row in chooser.rows if row.kind == "heading"]
    assert titles.index("Starred") < titles.index("Catalogue")
    chooser._filters[3].click()
    assert {row.data for row in chooser.rows if row.kind == "item"} == {data}
    keyboard.press(Qt.Key.Key_T, Qt.KeyboardModifier.ControlModifier)
    assert window.services.settings.get(s.STARRED_MODELS) == []


@pytest.mark.usefixtures("few")
def test_marks_are_made_anew_for_another_machine_and_not_while_nobody_looks(window: MainWindow, qtbot: QtBot) -> None:
    window.pickers.open_models()
    marks = window.pickers._model_marks
    qtbot.waitUntil(lambda: len(marks.found) > 20, timeout=30_000)
    window.pickers.close_choosers()
    assert marks._job is None
    known = dict(marks.found)
    window.document.edit("Machine", devices=gpus.machine("8xH200").devices, machine_text="8xH200", machine_chosen=True)
    window.pickers.open_models()
    qtbot.waitUntil(lambda: len(marks.found) > 20, timeout=30_000)
    assert any(marks.found.get(name) != mark for name, mark in known.items())
    window.pickers.close_choosers()
