from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PySide6.QtCore import Qt
from PySide6.QtGui import QAccessible
from pytestqt.qtbot import QtBot

from kvplanner.ui.palette import THEMES, ThemeName, Tokens, contrast, mix, paled
from kvplanner.ui.startup import StartupView
from kvplanner.ui.startup_drawing import column_label, column_value
from kvplanner.ui.startup_steps import arrange, stage_line
from tests import sample_plans
from tests.ui.views_kit import apart, measure, paint_theme


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
    paint_theme(qapp, theme)  # type: ignore[arg-type]
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
        assert [s.stage for s in steps.steps] == list(device.stages)
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
    line = stage_line(plan, 0, failing.stage, "GiB")
    assert line.startswith("Fails while loading the weights: 53.20 GiB short · GPU 0 · ")
    assert failing.lack.h == pytest.approx(plan.missing_bytes * steps.scale)


def test_stages_that_are_never_reached_stand_pale() -> None:
    plan = sample_plans.too_big()
    device = plan.devices[0]
    named = tuple(
        stage._replace(stage=key) for stage, key in zip(device.stages, ("start", "load"), strict=True)
    )  # the engine's own keys
    steps = arrange(plan._replace(devices=(device._replace(stages=named),)), 0, 900, 300)
    assert steps is not None
    assert [short for short, _, _ in steps.later] == ["profile", "size", "allocate", "graphs", "serve"]
    assert steps.later[0][2].x == pytest.approx(steps.steps[-1].column.right)
    assert steps.later[-1][2].right <= 900
    after = (*named, named[0]._replace(stage="profile", label="profile run"))
    kept = arrange(plan._replace(devices=(device._replace(stages=after),)), 0, 900, 300)
    assert kept is not None
    assert [step.pale for step in kept.steps] == [False, False, True]
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
    assert arrange(sample_plans.eight_gpus(), 0, 900, 240).others == ()  # type: ignore[union-attr]
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
