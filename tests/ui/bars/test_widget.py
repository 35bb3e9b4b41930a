from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
from PySide6.QtCore import QCoreApplication, QEvent, QPoint, Qt
from PySide6.QtGui import QAccessible, QHelpEvent
from PySide6.QtWidgets import QToolTip
from pytestqt.qtbot import QtBot

from kvplanner.engine.segment import SEGMENT_KINDS
from kvplanner.ui.bars import canvas as module
from kvplanner.ui.bars.canvas import BarsCanvas
from kvplanner.ui.bars.widget import MemoryBars
from kvplanner.ui.theme.palette import THEMES, ThemeName
from tests import sample_plans
from tests.ui.kit import apart, paint_theme

pytestmark = pytest.mark.slow


@pytest.fixture
def bars(qtbot: QtBot) -> MemoryBars:
    view = MemoryBars()
    qtbot.addWidget(view)
    view.resize(1000, 260)
    view.show()
    return view


def _selected(bars: MemoryBars) -> list[object]:
    seen: list[object] = []
    bars.segment_selected.connect(seen.append)
    return seen


@pytest.mark.parametrize("name", sample_plans.ALL)
@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("unit", ["GiB", "GB"])
def test_every_plan_paints(bars: MemoryBars, qapp: object, name: str, theme: ThemeName, unit: str) -> None:
    paint_theme(qapp, theme)  # type: ignore[arg-type]  # one of the names that it takes
    QCoreApplication.processEvents()
    bars.set_unit(unit)  # type: ignore[arg-type]  # one of the names that it takes
    bars.set_plan(sample_plans.ALL[name]())
    bars.set_selected(0, "weights")
    image = bars.grab().toImage()
    layout = bars.canvas.arranged()
    assert layout is not None
    for cell in layout.rows[0].cells:
        if cell.kind == "weights" and not layout.rows[0].lack:
            middle = QPoint(round(cell.rect.right - 8), round(cell.rect.y + cell.rect.h * 0.3))
            colour = image.pixelColor(middle * image.devicePixelRatio()).name()
            assert colour == THEMES[theme].segments["weights"].fill


def test_without_a_plan_it_says_what_to_do(bars: MemoryBars) -> None:
    bars.set_plan(None)
    assert bars.canvas.arranged() is None
    assert bars.canvas.readout() == ""
    assert not bars.grab().isNull()
    bars.canvas.walk("right")
    assert bars.canvas.access_count() == 0


def test_a_click_selects(bars: MemoryBars, qtbot: QtBot) -> None:
    bars.set_plan(sample_plans.other_programs())
    seen = _selected(bars)
    layout = bars.canvas.arranged()
    assert layout is not None
    cell = next(c for c in layout.rows[1].cells if c.kind == "kv_cache")
    point = QPoint(round(cell.rect.x + 40), round(cell.rect.y + 10))
    qtbot.mouseClick(bars.canvas, Qt.MouseButton.LeftButton, pos=point)
    assert seen == [(1, "kv_cache")]
    assert bars.canvas.readout().startswith("GPU 1 · KV cache 11.87 GiB = 12.74 GB")


def test_selecting_from_outside_emits_nothing(bars: MemoryBars) -> None:
    bars.set_plan(sample_plans.fits())
    seen = _selected(bars)
    bars.set_selected(0, "weights")
    assert seen == []
    assert bars.canvas.readout().startswith("GPU 0 · Weights 14.96 GiB")


def test_hover_shows_the_value(bars: MemoryBars, qtbot: QtBot) -> None:
    bars.set_plan(sample_plans.fits())
    layout = bars.canvas.arranged()
    assert layout is not None
    cell = next(c for c in layout.rows[0].cells if c.kind == "weights")
    qtbot.mouseMove(bars.canvas, QPoint(round(cell.rect.x + 30), round(cell.rect.y + 8)))
    assert bars.canvas.readout() == "GPU 0 · Weights 14.96 GiB = 16.06 GB · 19 % · exact"
    QCoreApplication.sendEvent(bars.canvas, QEvent(QEvent.Type.Leave))
    assert bars.canvas.readout() == "Memory per GPU, GiB"


def test_the_tool_tip_adds_what_the_segment_is(bars: MemoryBars) -> None:
    bars.set_plan(sample_plans.fits())
    layout = bars.canvas.arranged()
    assert layout is not None
    cell = next(c for c in layout.rows[0].cells if c.kind == "weights")
    point = QPoint(round(cell.rect.x + 30), round(cell.rect.y + 8))
    event = QHelpEvent(QEvent.Type.ToolTip, point, bars.canvas.mapToGlobal(point))
    QCoreApplication.sendEvent(bars.canvas, event)
    assert "14.96 GiB" in QToolTip.text()
    assert "tensors" in QToolTip.text()
    QToolTip.hideText()


def test_a_real_device_is_told_by_its_marks(bars: MemoryBars) -> None:
    plan = sample_plans.fits()
    first = plan.devices[0]
    real = first.device._replace(uuid="GPU-5f1c2f7e-8f0a-4f7e-9d0c-2b6a7c1d3f9a", marks=("display", "ECC"))
    bars.set_plan(plan._replace(devices=(first._replace(device=real),)))
    layout = bars.canvas.arranged()
    assert layout is not None
    assert layout.rows[0].detail.text == "tp0 · display · ECC"
    tip = bars.canvas.tip_at(QPoint(4, round(layout.rows[0].frame.y + 4)))
    assert tip == "GPU 0 · NVIDIA H100 80GB HBM3 · 79.65 GiB\nUUID …1d3f9a · display · ECC"
    assert bars.canvas.tip_at(QPoint(4, 4)) == ""


def test_the_keyboard_walks_all_segments(bars: MemoryBars, qtbot: QtBot) -> None:
    plan = sample_plans.other_programs()
    bars.set_plan(plan)
    seen = _selected(bars)
    qtbot.keyClick(bars.canvas, Qt.Key.Key_Home)
    for _ in range(40):
        qtbot.keyClick(bars.canvas, Qt.Key.Key_Right)
    visited = list(dict.fromkeys(seen))
    expected = [
        (position, kind)
        for position, device in enumerate(plan.devices)
        for kind in SEGMENT_KINDS
        if (s := device.segment(kind)) and s.bytes
    ]
    assert visited == expected
    qtbot.keyClick(bars.canvas, Qt.Key.Key_Left)
    assert seen[-1] == (1, "kv_cache")
    qtbot.keyClick(bars.canvas, Qt.Key.Key_Up)
    assert seen[-1] == (0, "kv_cache")
    qtbot.keyClick(bars.canvas, Qt.Key.Key_Up)
    assert seen[-1] == (0, "kv_cache")
    qtbot.keyClick(bars.canvas, Qt.Key.Key_Down)
    assert seen[-1] == (1, "kv_cache")
    qtbot.keyClick(bars.canvas, Qt.Key.Key_End)
    assert seen[-1] == (1, "headroom")


def test_focus_starts_the_walk_at_the_cache(bars: MemoryBars, qtbot: QtBot) -> None:
    bars.set_plan(sample_plans.fits())
    seen = _selected(bars)
    bars.activateWindow()
    bars.canvas.clearFocus()
    bars.setFocus(Qt.FocusReason.TabFocusReason)
    qtbot.waitUntil(bars.canvas.hasFocus)
    assert seen == [(0, "kv_cache")]


def test_groups_open_by_mouse_and_keyboard(bars: MemoryBars, qtbot: QtBot) -> None:
    bars.set_plan(sample_plans.eight_gpus())
    canvas = bars.canvas

    def rows() -> int:
        layout = canvas.arranged()
        assert layout is not None
        return len(layout.rows)

    assert rows() == 1
    layout = canvas.arranged()
    assert layout is not None
    toggle = layout.rows[0].toggle
    assert toggle is not None
    qtbot.mouseClick(canvas, Qt.MouseButton.LeftButton, pos=QPoint(round(toggle.x + 4), round(toggle.y + 4)))
    assert rows() == 8
    assert canvas.minimumHeight() > bars.viewport().height()  # scrolls
    qtbot.keyClick(canvas, Qt.Key.Key_Home)
    qtbot.keyClick(canvas, Qt.Key.Key_Minus)
    assert rows() == 1
    qtbot.keyClick(canvas, Qt.Key.Key_Space)
    assert rows() == 8
    bars.set_plan(sample_plans.fits())
    assert rows() == 1


def test_enter_shows_the_segment_again(bars: MemoryBars, qtbot: QtBot) -> None:
    bars.set_plan(sample_plans.fits())
    bars.set_selected(0, "weights")
    bars.grab()
    seen = _selected(bars)
    qtbot.keyClick(bars.canvas, Qt.Key.Key_Return)
    assert seen == [(0, "weights")]


def test_the_ghost_stays_from_the_first_of_a_run_of_edits(
    bars: MemoryBars, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    bars.canvas._ghost_timer.setInterval(60)
    first = sample_plans.fits()
    bars.set_plan(first)
    assert bars.canvas.view().before is None
    for step in (1, 2, 3):
        bars.set_plan(apart(first, step))
    assert bars.canvas.view().before is first
    qtbot.waitUntil(lambda: bars.canvas.view().before is None, timeout=2000)
    assert first.kv_cache is not None
    fewer = first.kv_cache._replace(tokens=135_117, tokens_low=131_000, tokens_high=138_000)
    bars.set_plan(apart(first, 4)._replace(kv_cache=fewer))
    assert bars.canvas.view().delta == f"−{round(first.kv_cache.tokens - 135_117, -3):,} tokens"
    bars.set_plan(None)
    assert bars.canvas.view().before is None
    assert module.GHOST_MS > 1000


def test_a_failing_plan_tells_no_change_of_tokens(bars: MemoryBars) -> None:
    for before, now in (
        (sample_plans.fits(), sample_plans.kv_too_small()),
        (sample_plans.kv_too_small(), sample_plans.fits()),
    ):
        bars.set_plan(None)
        bars.set_plan(before)
        bars.set_plan(now)
        assert bars.canvas.view().before is before
        assert bars.canvas.view().delta == ""


def test_an_edit_that_moves_no_memory_leaves_no_ghost(bars: MemoryBars) -> None:
    plan = sample_plans.fits()
    bars.set_plan(plan)
    bars.set_plan(sample_plans.fits()._replace(warnings=("other words",)))
    assert bars.canvas.view().before is None


def test_large_fonts_enlarge_everything(bars: MemoryBars, qtbot: QtBot) -> None:
    bars.set_plan(sample_plans.fits())
    small = bars.canvas.sizeHint().height()
    font = bars.font()
    font.setPixelSize(30)
    bars.setFont(font)
    assert bars.canvas.sizeHint().height() == pytest.approx(2 * small, abs=3)
    bars.resize(1000, 2 * small + 20)
    seen = _selected(bars)
    names = [bars.canvas.access_name(i) for i in range(bars.canvas.access_count())]
    weights = bars.canvas.access_rect(names.index("GPU 0, weights, 14.96 GiB"))
    assert weights.height() == 68
    qtbot.mouseClick(bars.canvas, Qt.MouseButton.LeftButton, pos=weights.center())
    assert seen == [(0, "weights")]
    assert not bars.grab().isNull()


def test_selection_survives_and_ends_with_its_device(bars: MemoryBars) -> None:
    bars.set_plan(sample_plans.other_programs())
    bars.set_selected(1, "weights")
    bars.set_plan(sample_plans.fits())
    assert bars.canvas.access_current() == -1
    bars.set_selected(0, "weights")
    bars.set_plan(sample_plans.kv_too_small())
    assert bars.canvas.access_name(bars.canvas.access_current()) == "GPU 0, weights, 14.96 GiB"


@pytest.fixture
def listening() -> Iterator[None]:
    """Someone listens, as a screen reader does."""
    QAccessible.setActive(True)
    yield
    QAccessible.setActive(False)


@pytest.mark.usefixtures("listening")
def test_the_walk_for_assistive_technology(bars: MemoryBars, qtbot: QtBot) -> None:
    bars.set_plan(sample_plans.other_programs())
    bars.set_selected(0, "weights")
    canvas = bars.canvas
    qtbot.waitUntil(lambda: len(canvas.twins()) == canvas.access_count(), timeout=2000)
    interface = QAccessible.queryAccessibleInterface(canvas)
    assert interface.text(QAccessible.Text.Name) == "Memory per GPU"
    children = [interface.child(i) for i in range(interface.childCount())]
    names = [child.text(QAccessible.Text.Name) for child in children]
    assert "GPU 0, weights, 7.48 GiB" in names
    assert "GPU 0, other programs, 0.62 GiB" in names
    assert "GPU 1, KV cache, 11.87 GiB" in names
    assert all(names)
    assert len(set(names)) == len(names) == canvas.access_count()
    weights = children[names.index("GPU 0, weights, 7.48 GiB")]
    assert "exact" in weights.text(QAccessible.Text.Description)
    layout = canvas.arranged()
    assert layout is not None
    cell = next(c for c in layout.rows[0].cells if c.kind == "weights")
    corner = canvas.mapToGlobal(QPoint(round(cell.rect.x), round(cell.rect.y)))
    assert weights.rect().topLeft() == corner
    canvas.walk("right")
    assert canvas.accessibleDescription() == "GPU 0, workspace, 0.38 GiB"
    bars.set_plan(sample_plans.fits())
    qtbot.waitUntil(lambda: len(canvas.twins()) == canvas.access_count(), timeout=2000)
    assert canvas.twins()[0].accessibleName() == "GPU 0, driver reserved, 0.47 GiB"


@pytest.mark.usefixtures("listening")
def test_widgets_come_and_go_with_assistive_technology(qtbot: QtBot) -> None:
    for _ in range(20):
        canvas = BarsCanvas()
        canvas.set_plan(sample_plans.eight_gpus())
        canvas.resize(600, 200)
        canvas.show()
        canvas.set_opened(0, opened=True)
        canvas.update_twins()
        interface = QAccessible.queryAccessibleInterface(canvas)
        assert interface.childCount() == canvas.access_count()
        canvas.walk("right")
        canvas.deleteLater()
        QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
        del canvas, interface
        gc.collect(1)  # what this round left: all of a long run's objects take half a second each time


def test_nobody_listening_costs_no_twins(bars: MemoryBars, qtbot: QtBot) -> None:
    bars.set_plan(sample_plans.eight_gpus())
    qtbot.wait(80)
    assert bars.canvas.twins() == []
