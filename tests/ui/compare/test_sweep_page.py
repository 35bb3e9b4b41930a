"""A sweep in the window: off its thread, cancelled when nobody looks, read and planned by keyboard."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from pytestqt.qtbot import QtBot

from kvplanner.ui.compare.page import ComparePage
from kvplanner.ui.compare.sweep import SweepPage
from kvplanner.ui.window.window import MainWindow

pytestmark = pytest.mark.slow


@pytest.fixture
def page(open_window: Callable[..., MainWindow], qtbot: QtBot) -> tuple[SweepPage, MainWindow]:
    window = open_window(load="8@1500+500")
    window.view.show_compare()
    compare = window.centre.below.page("compare")
    assert isinstance(compare, ComparePage)
    compare.show_sweep()
    assert isinstance(compare.sweep, SweepPage)
    sweep = compare.sweep
    finished(sweep, qtbot)
    qtbot.waitUntil(lambda: sweep.plot.made, timeout=20_000)
    return sweep, window


def finished(page: SweepPage, qtbot: QtBot) -> None:
    qtbot.waitUntil(lambda: page._job is None and bool(page.points) and page._of == (page._request(), page._words()),
                    timeout=20_000)  # fmt: skip


def test_values_are_read_and_planned_by_keyboard(page: tuple[SweepPage, MainWindow], qtbot: QtBot) -> None:
    sweep, window = page
    assert len(sweep.points) == 64
    assert "tokens of KV cache" in sweep.readout.text()
    assert sweep.plot.at == 63, "what the plan itself has is marked first"
    qtbot.keyClick(sweep.plot, Qt.Key.Key_Home)
    assert sweep.readout.text().startswith("Context length 2,048: ")
    qtbot.keyClick(sweep.plot, Qt.Key.Key_Right)
    qtbot.keyClick(sweep.plot, Qt.Key.Key_Return)
    window.document.flush()
    plan = window.document.plan
    assert plan is not None
    assert plan.kv_cache is not None
    assert plan.kv_cache.context_length == sweep.points[1].values[0]
    assert plan.kv_cache.tokens == sweep.points[1].tokens
    assert window.document.undo_count == 1


def test_a_second_setting_makes_a_map(page: tuple[SweepPage, MainWindow], qtbot: QtBot, tmp_path: Path) -> None:
    sweep, _ = page
    titles = [sweep.second.itemText(i) for i in range(sweep.second.count())]
    sweep.second.setCurrentIndex(titles.index("Users"))
    finished(sweep, qtbot)
    assert len(sweep.points) == 32 * 32
    heat = sweep.heat
    assert heat.isVisible()
    qtbot.keyClick(heat, Qt.Key.Key_Home)
    row = heat.at
    qtbot.keyClick(heat, Qt.Key.Key_Left)
    assert heat.at == row, "a row ends at its end"
    qtbot.keyClick(heat, Qt.Key.Key_End)
    assert "Users 256" in sweep.readout.text()
    assert "of 256 users" in sweep.readout.text()
    qtbot.mouseClick(heat, Qt.MouseButton.LeftButton, pos=heat.cell(33).center().toPoint())
    assert heat.at == 33
    heat.grab()
    target = tmp_path / "map.csv"
    with qtbot.waitSignal(sweep._services.jobs.active_changed):
        sweep.write_to(str(target))
    qtbot.waitUntil(target.exists)
    rows = list(csv.DictReader(target.open(encoding="utf-8")))
    assert len(rows) == 1024
    assert [int(r["serves_users"]) for r in rows] == [p.serves_users for p in sweep.points]


def test_nobody_waits_for_points_that_are_not_seen(page: tuple[SweepPage, MainWindow], qtbot: QtBot) -> None:
    sweep, window = page
    sweep.second.setCurrentIndex(3)
    job = sweep._job
    assert job is not None
    window.centre.show_tab("explain")
    assert job.control.cancelled
    assert sweep._job is None


def test_what_is_refused_says_so(page: tuple[SweepPage, MainWindow], qtbot: QtBot) -> None:
    sweep, _ = page
    sweep.span.setText("9k..2k")
    sweep.span.editingFinished.emit()
    qtbot.waitUntil(lambda: "is no range" in sweep.readout.text())


def test_releases_and_other_settings_of_the_engine(page: tuple[SweepPage, MainWindow], qtbot: QtBot) -> None:
    sweep, _ = page
    names = [choice.name for choice in sweep._choices]
    sweep.first.setCurrentIndex(names.index("release"))
    finished(sweep, qtbot)
    assert len(sweep.points) > 10
    assert {type(point.values[0]) for point in sweep.points} == {str}
    assert sweep.plot.at == len(sweep.points) - 1


def test_values_of_large_letters_have_room_beside_the_plot(page: tuple[SweepPage, MainWindow], qtbot: QtBot) -> None:
    swept, _ = page
    qtbot.waitUntil(lambda: swept.plot.made and swept._job is None and bool(swept.points), timeout=10_000)
    font = swept.font()
    font.setPointSizeF(font.pointSizeF() * 2)
    swept.plot.setFont(font)
    axis = swept.plot._plot.getAxis("left")
    labels = [text for _, text in axis._tickLevels[0]]
    assert max(map(swept.plot.fontMetrics().horizontalAdvance, labels)) < axis.fixedWidth
