from __future__ import annotations

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication
from pytestqt.modeltest import ModelTester
from pytestqt.qtbot import QtBot

from kvplanner.catalog import gpus, models
from kvplanner.engine.registry import engine
from kvplanner.engine.request import PlanRequest
from kvplanner.report.words import Unit
from kvplanner.ui.breakdown.lines import lines
from kvplanner.ui.breakdown.view import BreakdownModel, BreakdownView
from kvplanner.ui.window.details import CARD_MARGIN, TABLE_WIDTH
from tests import sample_plans
from tests.ui.kit import apart


@pytest.fixture
def view(qtbot: QtBot) -> BreakdownView:
    made = BreakdownView()
    qtbot.addWidget(made)
    made.resize(520, 360)
    made.show()
    return made


def _texts(view: BreakdownView, column: int) -> list[str]:
    return [str(view.model.index(row, column).data()) for row in range(view.model.rowCount())]


def test_rows_are_the_segments_then_the_total() -> None:
    plan = sample_plans.fits()
    rows = lines(plan, 0, "GiB")
    assert [r.kind for r in rows[:-1]] == [s.kind for s in plan.devices[0].segments]
    assert rows[-1].name == "Total"
    assert rows[-1].size == "79.65"
    assert rows[-1].share == "100 %"
    weights = next(r for r in rows if r.kind == "weights")
    assert (weights.size, weights.range, weights.share, weights.basis) == ("14.96", "", "19 %", "exact")
    cache = next(r for r in rows if r.kind == "kv_cache")
    assert cache.range == "55.19–55.95"
    assert next(r.size for r in lines(plan, 0, "GB") if r.kind == "weights") == "16.06"


def test_what_is_missing_has_a_row() -> None:
    row = lines(sample_plans.kv_too_small(), 0, "GiB")[-1]
    assert (row.name, row.size, row.missing) == ("Missing", "11.60", True)
    plan = sample_plans.too_big()
    rows = {r.name: r for r in lines(plan, 0, "GiB")}
    assert rows["Missing"].size == "53.20"
    held = ("Driver reserved", "Runtime outside budget", "Weights")
    assert float(rows["Total"].size) == pytest.approx(sum(float(rows[name].size) for name in held), abs=0.02)
    assert (rows["Activations"].basis, rows["Activations"].share, rows["Activations"].later) == (
        "not reached",
        "",
        True,
    )
    unheard = plan.devices[0]._replace(total_bytes=0, segments=())
    (unsized,) = lines(sample_plans.cannot_tell()._replace(devices=(unheard,)), 0, "GiB")
    assert (unsized.size, unsized.share) == ("not known", "")
    (unknown,) = lines(sample_plans.cannot_tell(), 0, "GiB")
    assert (unknown.name, unknown.size, unknown.kind) == ("Not planned", "191.98", None)


@pytest.mark.usefixtures("qapp")
def test_the_model_keeps_qt_s_rules(qtmodeltester: ModelTester) -> None:
    model = BreakdownModel()
    model.show(sample_plans.fits(), 0, "GiB")
    qtmodeltester.check(model, force_py=True)
    model.show(sample_plans.too_big(), 0, "GB")
    model.show(apart(sample_plans.too_big(), 1), 0, "GB")
    model.show(None, 0, "GB")
    assert model.rowCount() == 0


def test_selection_goes_both_ways(view: BreakdownView, qtbot: QtBot) -> None:
    view.set_plan(sample_plans.other_programs())
    seen: list[object] = []
    view.segment_selected.connect(seen.append)
    view.set_selected(1, "weights")
    assert seen == []
    assert [i.row() for i in view.table.selectionModel().selectedRows()] == [view.model.row_of("weights")]
    qtbot.keyClick(view.table, Qt.Key.Key_Down)
    assert seen == [(1, "workspace")]


def test_the_device_can_be_chosen_where_devices_differ(view: BreakdownView) -> None:
    view.set_plan(sample_plans.other_programs())
    assert view.devices.isVisible()
    assert [view.devices.itemText(i) for i in range(view.devices.count())] == ["GPU 0", "GPU 1"]
    seen: list[object] = []
    view.segment_selected.connect(seen.append)
    view.devices.activated.emit(1)
    assert seen == [(1, "kv_cache")]
    assert "Other programs" not in _texts(view, 0)
    view.set_plan(sample_plans.eight_gpus())
    assert not view.devices.isVisible()
    assert view.title.text().startswith("GPU 0–7")
    assert view.title.accessibleName() == "GPU 0–7 · NVIDIA H100 80GB HBM3 · 79.65 GiB"


def test_the_unit_stands_in_the_head(view: BreakdownView) -> None:
    view.set_plan(sample_plans.fits())
    view.set_unit("GB")
    assert view.model.headerData(1, Qt.Orientation.Horizontal) == "GB"
    assert "16.06" in _texts(view, 1)


def test_cells_have_accessible_names(view: BreakdownView) -> None:
    view.set_plan(sample_plans.fits())
    role = Qt.ItemDataRole.AccessibleTextRole
    row = view.model.row_of("weights")
    assert view.model.index(row, 0).data(role) == "GPU 0, weights, 14.96 GiB"
    assert view.model.index(row, 1).data(role) == "14.96 GiB"


def test_a_narrow_table_cuts_names_then_leaves_out_the_range_and_last_the_basis(view: BreakdownView) -> None:
    view.set_plan(sample_plans.kv_too_small())
    longest = max(view.fontMetrics().horizontalAdvance(t) for t in _texts(view, 0))
    seen: list[tuple[bool, bool, bool]] = []
    for width in range(640, 180, -10):
        view.resize(width, 360)
        hidden = view.table.isColumnHidden
        state = (view.table.columnWidth(0) < longest, hidden(2), hidden(4))
        seen += [] if seen and seen[-1] == state else [state]
        assert view.table.columnWidth(0) >= 60
    assert seen[0] == (False, False, False)
    assert (True, False, False) in seen
    firsts = [next(i for i, state in enumerate(seen) if state[part]) for part in range(3)]
    assert firsts == sorted(firsts)
    assert firsts[1] < firsts[2]


@pytest.mark.parametrize(
    ("model", "gpu"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", "8xB200"),
        ("Qwen/Qwen3-8B", "H100"),
        ("Qwen/Qwen3-30B-A3B", "RTX 4090,RTX 3090"),
        ("openai/gpt-oss-120b", "H100"),
    ],
)
@pytest.mark.parametrize("unit", ["GiB", "GB"])
def test_the_table_of_a_usual_window_has_every_column(view: BreakdownView, model: str, gpu: str, unit: Unit) -> None:
    view.resize(TABLE_WIDTH - 2 * CARD_MARGIN, 360)
    view.set_unit(unit)
    view.set_plan(engine("vllm").plan(PlanRequest(models.load(model), gpus.machine(gpu))))
    assert not any(view.table.isColumnHidden(column) for column in range(5))


def test_a_new_plan_keeps_the_row_selected(view: BreakdownView) -> None:
    plan = sample_plans.fits()
    view.set_plan(plan)
    view.set_selected(0, "kv_cache")
    seen: list[object] = []
    view.segment_selected.connect(seen.append)
    view.set_plan(apart(plan, 3))
    view.set_plan(plan._replace(devices=()))
    view.set_plan(None)
    view.set_plan(plan)
    assert seen == []
    assert [i.row() for i in view.table.selectionModel().selectedRows()] == [view.model.row_of("kv_cache")]


def test_the_table_can_be_copied(view: BreakdownView, qtbot: QtBot) -> None:
    view.set_plan(sample_plans.fits())
    view.table.setFocus()
    view.copy_text()
    lines_copied = QGuiApplication.clipboard().text().splitlines()
    assert lines_copied[0] == "segment\tGiB\trange\tshare\tbasis"
    assert "Weights\t14.96\t\t19 %\texact" in lines_copied
    assert [action.text() for action in view.table.actions()] == ["Copy table"]


def test_a_step_of_a_drag_tells_of_the_cells_that_change(view: BreakdownView) -> None:
    plan = apart(sample_plans.eight_gpus(), 1)
    view.set_plan(plan)
    before = [_texts(view, column) for column in range(view.model.columnCount())]
    ranges: list[tuple[int, int, int, int]] = []
    view.model.dataChanged.connect(
        lambda first, last: ranges.append((first.row(), first.column(), last.row(), last.column()))
    )
    view.set_plan(apart(plan, 2))
    changed = {
        (row, column)
        for column, texts in enumerate(before)
        for row, (was, now) in enumerate(zip(texts, _texts(view, column), strict=True))
        if was != now
    }
    assert {place[:2] for place in ranges} == changed != set()
    assert all(place[:2] == place[2:] for place in ranges), "a range has the whole table painted"
