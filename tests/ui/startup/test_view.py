from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QAccessible, QColor, QFontMetricsF
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from kvplanner.catalog import gpus, models
from kvplanner.engine.registry import engine
from kvplanner.engine.request import PlanRequest
from kvplanner.estimate import exact
from kvplanner.ui.startup.drawing import BUDGET, LINE, Drawing, column_label, column_value
from kvplanner.ui.startup.labels import free_row, is_free, line_places, value_tops
from kvplanner.ui.startup.steps import Step, Steps, arrange, failure, lacks, right_end, stage_line
from kvplanner.ui.startup.view import StartupView
from kvplanner.ui.theme.geometry import Rect
from kvplanner.ui.theme.palette import THEMES, ThemeName, Tokens, contrast, mix, paled
from tests import sample_plans
from tests.engine import verdicts
from tests.ui.kit import apart, measure, paint_theme


@pytest.fixture
def view(qtbot: QtBot) -> StartupView:
    made = StartupView()
    qtbot.addWidget(made)
    made.resize(900, 240)
    made.show()
    return made


@pytest.mark.parametrize("name", sample_plans.ALL)
@pytest.mark.parametrize("theme", THEMES)
def test_every_plan_paints(view: StartupView, qapp: object, name: str, theme: ThemeName) -> None:
    paint_theme(qapp, theme)  # type: ignore[arg-type]  # one of the names that it takes
    view.set_plan(sample_plans.ALL[name]())
    view.set_unit("GB")
    view.set_selected(0, "weights")
    assert not view.grab().isNull()


@pytest.mark.parametrize("name", [n for n in sample_plans.ALL if n != "cannot_tell"])
def test_heights_are_bytes_times_scale(name: str) -> None:
    plan = sample_plans.ALL[name]()
    for position, device in enumerate(plan.devices):
        steps = arrange(plan, position, 900, 240)
        assert steps is not None
        assert [s.stage for s in steps.steps] == [s for s in device.stages if s.reached]
        for left, right in zip(steps.steps, steps.steps[1:], strict=False):
            assert left.column.right == pytest.approx(right.column.x)
        for step in steps.steps:
            assert step.box.h == pytest.approx(step.stage.end_bytes * steps.scale)
            assert step.box.bottom == pytest.approx(steps.base_y)
            if step.peak:
                assert step.peak.bottom == pytest.approx(step.box.y)
                over = step.stage.peak_bytes - step.stage.end_bytes
                assert step.peak.h == pytest.approx(over * steps.scale)
            highest = min(r.y for r in (step.box, step.peak, step.lack) if r)
            assert highest >= 0
        assert steps.capacity_y == pytest.approx(steps.base_y - device.total_bytes * steps.scale)


@pytest.mark.parametrize("tokens", [t for one in THEMES.values() for t in (one, paled(one))])
@pytest.mark.parametrize("share", [0.0, 0.14, 0.26, 0.42])
def test_figures_are_readable_on_their_columns(tokens: Tokens, share: float) -> None:
    assert contrast(tokens.text, mix(tokens.accent, tokens.panel, share * tokens.strength)) >= 4.5


def test_the_failing_stage_is_marked_and_told() -> None:
    plan = sample_plans.too_big()
    steps = arrange(plan, 0, 900, 240)
    assert steps is not None
    failing = steps.steps[-1]
    assert failing.stage.failing
    assert failing.lack is not None
    assert failing.lack.bottom == pytest.approx(steps.capacity_y)
    assert all(s.lack is None for s in steps.steps[:-1])
    assert failure(plan, 0, "GiB") == "Fails while loading the weights: 53.20 GiB short on GPU 0"
    assert stage_line(plan, 0, failing.stage, "GiB").startswith("GPU 0 · load weights: ")
    assert failing.lack.h == pytest.approx(plan.missing_bytes * steps.scale)


def test_a_peak_above_the_capacity_is_marked_before_the_failing_stage() -> None:
    request = PlanRequest(models.load("meta-llama/Llama-3.1-8B-Instruct"), gpus.machine("RTX 4060 Ti 16GB"))
    plan = engine("vllm").plan(request)
    steps = arrange(plan, 0, 900, 240)
    assert steps is not None
    load, failing = steps.steps[-2:]
    assert not load.stage.failing
    assert load.peak is not None
    assert load.lack is not None
    assert (load.lack.x, load.lack.w, load.lack.y) == pytest.approx((load.peak.x, load.peak.w, load.peak.y))
    assert load.lack.bottom == pytest.approx(steps.capacity_y)
    assert failing.lack is not None
    assert "which may not fit" in stage_line(plan, 0, load.stage, "GiB")


def test_each_device_says_what_it_lacks_itself() -> None:
    plan = sample_plans.mixed()
    gib = 1 << 30
    stages = tuple(s._replace(failing=s.label == "load weights") for s in plan.devices[0].stages)[:2]
    devices = []
    for device, weights in zip(plan.devices, (30 * gib, 40 * gib), strict=False):
        parts = tuple(s._replace(estimate=exact(weights)) if s.kind == "weights" else s for s in device.segments)
        devices.append(device._replace(segments=parts, stages=stages))
    worst = 40 * gib
    failing = verdicts.again(
        plan._replace(tightest=1), devices=tuple(devices), verdict=verdicts.fails("weights", worst, device=1)
    )
    own = lacks(failing, 0)
    assert own is not None
    assert own[0] == devices[0].total_bytes
    assert own[1] - own[0] < worst
    said = failure(failing, 0, "GiB")
    assert said.endswith(f"{(own[1] - own[0]) / gib:.2f} GiB short on GPU 0")
    assert failure(failing, 1, "GiB").endswith("40.00 GiB short on GPU 1")
    light = devices[0]._replace(
        segments=tuple(s._replace(estimate=exact(gib)) if s.kind == "weights" else s for s in devices[0].segments)
    )
    elsewhere = failing._replace(devices=(light, devices[1]))
    assert lacks(elsewhere, 0) is None
    assert failure(elsewhere, 0, "GiB").endswith("40.00 GiB short on GPU 1")
    steps = arrange(elsewhere, 0, 900, 300)
    assert steps is not None
    assert all(step.lack is None for step in steps.steps)


def test_another_start_is_told_from_its_own_stage(view: StartupView) -> None:
    view.set_plan(sample_plans.too_big())
    view.setFocus()
    assert "load weights" in view.readout()
    assert view.failure().startswith("Fails while loading the weights")
    view.set_plan(sample_plans.fits())
    assert view.failure() == ""
    assert view.readout().startswith("Highest: ")
    highest = max(s.peak_bytes for s in view.stages())
    assert view.stages()[view.access_current()].peak_bytes == highest
    view.set_plan(sample_plans.too_big())
    assert view.stages()[view.access_current()].failing
    assert "load weights" in view.readout()


def test_the_failure_stays_in_sight_whatever_is_chosen(view: StartupView, qapp: QApplication, qtbot: QtBot) -> None:
    paint_theme(qapp, "light")
    view.set_plan(sample_plans.too_big())
    before = view.steps()
    qtbot.keyClick(view, Qt.Key.Key_Home)
    assert "check free memory" in view.readout()
    assert view.failure() == "Fails while loading the weights: 53.20 GiB short on GPU 0"
    after = view.steps()
    assert before is not None
    assert after is not None
    assert before.top == after.top  # the picture stands still
    image = view.grab().toImage()
    line = round(view._type.height(view.failure(), "small", view.width()))  # by this machine's fonts
    first = [image.pixelColor(x, y) for x in range(300) for y in range(line)]
    assert any(_red(c) for c in first)  # in the ink of failures
    second = [image.pixelColor(x, y) for x in range(300) for y in range(line + 2, 2 * line)]
    assert not any(_red(c) for c in second)


def _red(colour: QColor) -> bool:
    """In the ink of failures: the fringes of grey letters, where a machine smooths by parts of pixels, are not as
    red against both others.
    """
    return colour.red() > max(colour.green(), colour.blue()) + 90


def test_a_stage_that_the_user_chose_stays_while_edits_leave_the_start_the_same(view: StartupView) -> None:
    plan = sample_plans.fits()
    view.set_plan(plan)
    view._choose(2)
    view.set_plan(apart(plan, 1))
    assert view.access_current() == 2
    other = plan.request._replace(model=plan.request.model._replace(id="another/model"))
    view.set_plan(plan._replace(request=other))
    assert view.access_current() != 2


def _crossing(steps: Steps, step: Step, *, twice: bool) -> list[float]:
    lines = [y for y in (steps.capacity_y, steps.budget_y) if y is not None]
    tops = [y for y in value_tops(step, tuple(lines), LINE, twice=twice) if y is not None]
    return [line for line in lines for y in tops if y < line < y + LINE]


@pytest.mark.parametrize("name", [n for n in sample_plans.ALL if n != "cannot_tell"])
@pytest.mark.parametrize("height", [180, 240, 330])
@pytest.mark.parametrize("share", [None, 0.5, 0.9, 0.98, 1.02, 1.4])
def test_no_figure_is_struck_through(name: str, height: int, share: float | None) -> None:
    plan = sample_plans.ALL[name]()
    device = plan.devices[0]
    steps = arrange(plan, 0, 420, height)
    assert steps is not None
    if share is not None:  # wherever the budget ends
        steps = steps._replace(budget_y=steps.base_y - device.total_bytes * share * steps.scale)
    for step in steps.steps:
        assert not _crossing(steps, step, twice=False), step.stage.label
        if step.peak:
            end, peak = value_tops(step, (steps.capacity_y,), LINE, twice=True)
            assert peak is None or abs(end - peak) >= LINE
            assert peak is not None or height < 240
            assert not _crossing(steps, step, twice=True)


@pytest.mark.parametrize("width", [420, 900])
@pytest.mark.parametrize("share", [0.2, 0.9, 0.97, 0.99, 1.0, 1.01, 1.05, 1.5])
@pytest.mark.parametrize("name", ["fits", "too_big"])
def test_the_lines_names_stand_at_their_lines(name: str, width: int, share: float) -> None:
    plan = sample_plans.ALL[name]()
    steps = arrange(plan, 0, width, 300)
    assert steps is not None
    steps = steps._replace(budget_y=steps.base_y - plan.devices[0].total_bytes * share * steps.scale)
    texts = measure("23.99 GiB", "small_bold"), measure(BUDGET, "small")
    capacity, budget = line_places(steps, width, texts, LINE)
    assert steps.budget_y is not None
    assert (budget is None) == (steps.budget_y < LINE)  # above the whole picture
    if budget is None:
        return
    for place, line, wide in ((capacity, steps.capacity_y, texts[0]), (budget, steps.budget_y, texts[1])):
        assert abs(place.y + LINE / 2 - line) <= LINE / 2 + 2  # at its own line
        assert place.w >= wide
        assert place.right <= width
        if place.x < right_end(steps):  # inside the picture it stands on no line
            assert not [y for y in (steps.capacity_y, steps.budget_y) if place.y < y < place.y + LINE]
    upper, lower = sorted((capacity.y, budget.y))
    assert lower - upper >= LINE
    assert (capacity.y < budget.y) == (steps.capacity_y <= steps.budget_y)


def test_the_sign_of_failure_never_stands_alone() -> None:
    names = ("✕\u00a0profile run", "profile run", "✕\u00a0profile", "profile")
    for width in range(20, 120):
        assert column_label(names, width, measure) != "✕"
        assert "✕ " not in column_label(names, width, measure)
    assert column_label(names, measure("✕ profile", "small"), measure) == names[0]
    assert column_label(names, measure("profile", "small"), measure) == names[1]


def test_names_of_lines_on_the_ground_keep_off_the_stages() -> None:
    steps = arrange(sample_plans.too_big(), 0, 420, 300)
    assert steps is not None
    low = steps._replace(capacity_y=steps.base_y - 5, budget_y=steps.base_y - 4)
    capacity, budget = line_places(low, 420, (50, 60), LINE)
    assert budget is not None
    assert is_free(budget, [capacity])
    assert max(capacity.bottom, budget.bottom) <= low.base_y
    assert not [y for y in (low.capacity_y, low.base_y - 4) for r in (capacity, budget) if r.y < y < r.bottom]


def test_names_make_way_for_what_stands_already() -> None:
    steps = arrange(sample_plans.fits(), 0, 420, 300)
    assert steps is not None
    assert steps.budget_y is not None
    alone = line_places(steps, 420, (50, 60), LINE)[1]
    assert alone is not None
    moved = line_places(steps, 420, (50, 60), LINE, [alone])[1]
    assert moved is not None
    assert is_free(moved, [alone])
    everywhere = [Rect(0, 0, 420, 300)]
    assert line_places(steps, 420, (50, 60), LINE, everywhere)[1] is None
    boxes = [Rect(100, 50, 40, 100), Rect(140, 50, 40, 100)]
    assert free_row(boxes, (0.5, 0.9), LINE, []) == 50 + (100 - LINE) * 0.5
    assert free_row(boxes, (0.5, 0.9), LINE, [Rect(150, 90, 80, 14)]) == 50 + (100 - LINE) * 0.9
    assert free_row(boxes, (0.5, 0.9), LINE, everywhere) is None
    assert free_row([Rect(100, 50, 40, 10)], (0.5,), LINE, []) is None


def test_stages_that_are_never_reached_stand_pale() -> None:
    plan = sample_plans.too_big()
    steps = arrange(plan, 0, 900, 300)
    assert steps is not None
    assert [short for short, _, _ in steps.later] == ["profile", "kv_cache_allocation", "graph_capture", "runtime"]
    assert steps.later[0][2].x == pytest.approx(steps.steps[-1].column.right)
    assert steps.later[-1][2].right <= 900
    device = plan.devices[0]
    after = tuple(stage._replace(reached=True) for stage in device.stages)
    kept = arrange(plan._replace(devices=(device._replace(stages=after),)), 0, 900, 300)
    assert kept is not None
    assert [step.pale for step in kept.steps] == [False, False, True, True, True, True]
    assert kept.later == ()


@given(st.integers(0, 10**15), st.floats(10, 200))
def test_values_stay_in_their_column(value: int, width: float) -> None:
    text = column_value(value, "GiB", width, measure, "▲")
    assert measure(text, "small_bold") <= width


@given(st.sampled_from(["allocate the KV cache", "capture CUDA graphs", "context and communicators"]),
       st.floats(30, 220))  # fmt: skip
def test_names_fit_their_column(name: str, width: float) -> None:
    label = column_label((name, name.split()[0]), width, measure)
    assert all(measure(word, "small") <= width for word in label.split())
    if width >= 62:
        assert label in (name, name.split()[0])


def test_other_devices_are_outlined() -> None:
    plan = apart(sample_plans.mixed(), 1)
    steps = arrange(plan, 0, 900, 240)
    assert steps is not None
    assert [name for name, _ in steps.others] == ["GPU 1"]
    assert arrange(sample_plans.eight_gpus(), 0, 900, 240).others == ()  # type: ignore[union-attr]  # there is one, else the test ends here
    assert arrange(sample_plans.cannot_tell(), 0, 900, 240) is None


def test_the_keyboard_walks_stages_and_devices(view: StartupView, qtbot: QtBot) -> None:
    view.set_plan(sample_plans.mixed())
    assert view.readout().startswith("Highest: GPU 0 · ")
    seen: list[object] = []
    view.segment_selected.connect(seen.append)
    qtbot.keyClick(view, Qt.Key.Key_Home)
    assert "check free memory" in view.readout()
    qtbot.keyClick(view, Qt.Key.Key_Right)
    assert view.readout().startswith("GPU 0 · load weights: ")
    qtbot.keyClick(view, Qt.Key.Key_Down)
    assert seen == [(1, "kv_cache")]
    assert view.readout().startswith("GPU 1 · load weights: ")
    qtbot.keyClick(view, Qt.Key.Key_End)
    assert "serve" in view.readout()
    qtbot.keyClick(view, Qt.Key.Key_Right)
    assert view.access_current() == view.access_count() - 1


def test_a_click_chooses_a_stage(view: StartupView, qtbot: QtBot) -> None:
    view.set_plan(sample_plans.fits())
    column = view.access_rect(2)
    qtbot.mouseClick(view, Qt.MouseButton.LeftButton, pos=column.center())
    assert view.access_current() == 2
    assert "profile run" in view.readout()


def test_stages_have_names_for_assistive_technology(view: StartupView) -> None:
    view.set_plan(sample_plans.fits())
    view.update_twins()
    interface = QAccessible.queryAccessibleInterface(view)
    names = [interface.child(i).text(QAccessible.Text.Name) for i in range(interface.childCount())]
    assert len(names) == view.access_count() == 6
    assert names[1].startswith("GPU 0 · load weights: ")
    view.set_plan(None)
    view.update_twins()
    assert view.twins() == []


@pytest.mark.parametrize("name", sample_plans.ALL)
@pytest.mark.parametrize("size", [(426, 290), (640, 290), (1000, 330), (380, 170)])
def test_no_text_stands_on_another(
    view: StartupView, monkeypatch: pytest.MonkeyPatch, name: str, size: tuple[int, int]
) -> None:
    seen: list[tuple[str, QRectF]] = []

    class Noted(Drawing):
        def text(self, rect: Rect, text: str, ink: str, *, bold: bool = False, side: str = "left", top: bool = False
                 ) -> None:  # fmt: skip
            metrics = QFontMetricsF(self.type.fonts["small_bold" if bold else "small"])
            flags = {"left": Qt.AlignmentFlag.AlignLeft, "right": Qt.AlignmentFlag.AlignRight}.get(
                side, Qt.AlignmentFlag.AlignHCenter
            ) | (Qt.AlignmentFlag.AlignTop if top else Qt.AlignmentFlag.AlignVCenter)
            place = metrics.boundingRect(QRectF(*rect), int(flags | Qt.TextFlag.TextWordWrap), text)
            seen.extend([(text, place)] if text else [])
            super().text(rect, text, ink, bold=bold, side=side, top=top)

    monkeypatch.setattr("kvplanner.ui.startup.view.Drawing", Noted)
    view.resize(*size)
    view.set_plan(sample_plans.ALL[name]())
    view.grab()
    for index, (text, place) in enumerate(seen):
        assert place.left() >= -1, text
        assert place.right() <= size[0] + 1, text
        assert -1 <= place.top() < place.bottom() <= size[1] + 1, text
        for other, there in seen[index + 1 :]:
            shared = place.intersected(there)
            assert shared.width() <= 2 or shared.height() <= 3, (text, other)
