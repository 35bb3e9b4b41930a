"""What fits, in the window: fills while it is seen, and a row becomes the plan."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from kvplanner.app import settings as s
from kvplanner.app.library import LocalModel
from kvplanner.catalog import models
from kvplanner.gpu.names import short_name
from kvplanner.report.fits import verdict_of
from kvplanner.ui.fits.page import FitsPage
from kvplanner.ui.window.window import MainWindow
from tests.catalog.small import catalogue_of


@pytest.fixture
def page(window: MainWindow) -> Iterator[FitsPage]:
    """The page, seen, of a catalogue of a few dozen models."""
    with catalogue_of(models.search("qwen3 8b") + models.search("llama 70b")):
        assert window.centre.below.show_tab("What fits") is not None
        found = window.centre.below.page("fits")
        assert isinstance(found, FitsPage)
        yield found


def filled(page: FitsPage, qtbot: QtBot) -> None:
    qtbot.waitUntil(lambda: page._job is None and bool(page.model.rows), timeout=20_000)
    qtbot.wait(1)


def test_it_fills_and_shows_what_fits(page: FitsPage, qtbot: QtBot) -> None:
    filled(page, qtbot)
    assert len(page.model.rows) > 10
    shown = [
        page.model.rows[page.shown.mapToSource(page.shown.index(r, 0)).row()] for r in range(page.shown.rowCount())
    ]
    assert shown
    assert all(fit.fits for fit in shown)
    assert [verdict_of(fit) for fit in shown] == sorted(
        (verdict_of(fit) for fit in shown), key=("fits", "may fit").index
    )
    page.everything.setChecked(True)
    assert page.shown.rowCount() == len(page.model.rows)
    page.search.setText("awq")
    assert 0 < page.shown.rowCount() < len(page.model.rows)


def test_a_row_becomes_the_plan_in_one_step(page: FitsPage, window: MainWindow, qtbot: QtBot) -> None:
    filled(page, qtbot)
    index = page.shown.index(0, 0)
    fit = page.model.rows[page.shown.mapToSource(index).row()]
    page.table.activated.emit(index)
    window.document.flush()
    plan = window.document.plan
    assert plan is not None
    assert plan.request.model.id == fit.model
    assert plan.limits.sure_max_context_length == fit.sure_max_context_length
    assert window.document.undo_count == 1


def test_machines_of_the_model(
    page: FitsPage, window: MainWindow, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kvplanner.catalog import gpus

    some = tuple(entry for entry in gpus.index() if "h100" in entry.id)
    monkeypatch.setattr(gpus, "index", lambda: some)
    page.way.setCurrentIndex(1)
    filled(page, qtbot)
    assert {fit.model for fit in page.model.rows} == {"meta-llama/Llama-3.1-8B-Instruct"}
    page.search.setText("80GB HBM3")  # by its name as well as by the words that name it
    index = page.shown.index(0, 0)
    fit = page.model.rows[page.shown.mapToSource(index).row()]
    assert index.siblingAtColumn(2).data() == short_name(fit.machine)
    page.table.activated.emit(index)
    window.document.flush()
    assert window.document.state.machine_text == fit.gpus


def test_nobody_waits_for_rows_that_are_not_seen(page: FitsPage, window: MainWindow, qtbot: QtBot) -> None:
    assert page._job is not None
    job = page._job
    window.centre.below.show_tab("Explain")
    assert job.control.cancelled
    window.centre.below.show_tab("What fits")
    filled(page, qtbot)


def test_models_of_this_computer_come_first_and_stars_filter(
    page: FitsPage, window: MainWindow, tmp_path: Path, qtbot: QtBot
) -> None:
    filled(page, qtbot)
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(models.record("Qwen/Qwen3-8B")["config"]), encoding="utf-8")
    library = window.services.library
    library.models = (LocalModel("mine", str(folder), "folder", 1, ""),)
    library.models_changed.emit()
    qtbot.waitUntil(lambda: bool(page.model.rows) and page.model.rows[0].model in page._local, timeout=20_000)
    filled(page, qtbot)
    fit = page.model.rows[0]
    assert page._local[fit.model][0] == str(folder)
    window.services.settings.set(s.STARRED_MODELS, [str(folder)])
    page.everything.setChecked(True)
    page.search.setText("is:starred")
    assert page.shown.rowCount() == 1
    page.table.activated.emit(page.shown.index(0, 0))
    window.document.flush()
    assert window.document.state.model_text == str(folder)
    assert window.document.plan is not None
    assert window.document.plan.limits.sure_max_context_length == fit.sure_max_context_length
