"""The Local GPU dock in the window: what it sees reaches the plan and the memory bars, and it ends with the window."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil  # noqa: TID253 - what is tested rests on it
import pytest
from PySide6.QtCore import QDeadlineTimer, QPoint, Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from kvplanner.app import settings as s
from kvplanner.ui.gpu_panel.panel import GpuPanel
from kvplanner.ui.window.gpu_dock import SHARE, GpuDock
from kvplanner.ui.window.window import MainWindow
from kvplanner.units import MIB
from tests.observe.kit import Stub, scenario_text
from tests.observe.panel_kit import until
from tests.patience import LONG_S

pytestmark = pytest.mark.slow


def opened(window: MainWindow, qtbot: QtBot) -> GpuPanel:
    """The dock's panel once it shows the card."""
    window.view.gpu_panel(True)
    panel = window.findChild(GpuPanel)
    assert panel is not None
    until(qtbot, lambda: panel.bars.rows())
    return panel


def test_measured_use_reaches_the_bars_and_the_plan(
    card: Stub, open_window: Callable[..., MainWindow], qtbot: QtBot
) -> None:
    window = open_window(gpu="RTX 4090")
    panel = opened(window, qtbot)
    until(qtbot, lambda: window.centre.bars.canvas.view().measured)
    (measured,) = window.centre.bars.canvas.view().measured
    assert measured.text == "measured: other programs 1.18 GiB · no engine runs here"
    panel.free.use.click()
    until(qtbot, lambda: window.document.state.given_free == {0: 22904 * MIB})
    helper = panel.feed.helper_pid
    assert helper is not None
    window.view.gpu_panel(False)
    assert window.centre.bars.canvas.view().measured == ()
    window.view.stop_gpu_panel()
    until(qtbot, lambda: not psutil.pid_exists(helper))


def test_a_running_server_becomes_the_plan(
    card: Stub, open_window: Callable[..., MainWindow], qtbot: QtBot, server: subprocess.Popen[str]
) -> None:
    text = scenario_text("desktop-4090").replace("compute = 7777:506", f"compute = {server.pid}:18000")
    name = Path(sys.executable).name
    card.use(f"process.{server.pid} = {name}\n" + text.replace("used_mib = 1206", "used_mib = 19206"))
    window = open_window(gpu="H100")
    panel = opened(window, qtbot)
    until(qtbot, lambda: panel.engines.isVisible())
    panel.engines.make_plan.click()
    until(qtbot, lambda: window.document.state.devices and window.document.state.devices[0].uuid)
    state = window.document.state
    assert state.devices[0].gpu.name == "NVIDIA GeForce RTX 4090"
    assert state.devices[0].free_bytes == (22904 - 18000 + 18000) * MIB
    until(qtbot, lambda: panel.model.overlays and panel.model.overlays[0].seen)
    plan = window.document.plan
    assert plan is not None
    assert (plan.options["max_model_len"].value, plan.options["gpu_memory_utilization"].value) == (4096, 0.85)
    assert panel.model.overlays[0].engine.value == 18000 * MIB
    until(qtbot, lambda: any("unaccounted" in m.text for m in window.centre.bars.canvas.view().measured))
    window.document.undo()
    assert window.document.state.devices[0].gpu.name != "NVIDIA GeForce RTX 4090"


def test_watching_never_destroys_the_plan(
    card: Stub, open_window: Callable[..., MainWindow], qtbot: QtBot, server: subprocess.Popen[str]
) -> None:
    """A server starts, becomes the plan, grows, its GPU is lost and comes back: the plan changes when asked to."""
    quiet = scenario_text("desktop-4090")
    python = f"process.{server.pid} = {Path(sys.executable).name}\n"

    def running(held: int) -> str:
        text = quiet.replace("compute = 7777:506", f"compute = {server.pid}:{held}")
        return python + text.replace("used_mib = 1206", f"used_mib = {1206 + held}")

    window = open_window(gpu="H100")
    window.document.amend(machine_chosen=False)  # as after a start: this machine's GPUs may be taken
    panel = opened(window, qtbot)
    until(qtbot, lambda: window.document.state.devices[0].uuid)
    until(qtbot, lambda: window.document.plan is not None and window.document.plan.devices[0].device.uuid)
    before = window.document.plan
    assert before is not None
    free = window.document.state.devices[0].free_bytes
    card.use(running(3000))
    until(qtbot, lambda: panel.engines.isVisible())
    until(qtbot, lambda: panel.model.overlays and panel.model.overlays[0].engine.value == 3000 * MIB)
    card.use(running(18000))
    until(qtbot, lambda: panel.model.overlays[0].engine.value == 18000 * MIB)
    qtbot.wait(2500)  # longer than the machine is looked at anew
    assert window.document.plan is before
    assert window.document.state.devices[0].free_bytes == free
    panel.engines.make_plan.click()
    until(qtbot, lambda: window.document.state.ask.options.get("max_model_len") == 4096)
    window.document.flush()
    made = window.document.plan
    assert made is not None
    assert made.fits
    card.use(running(20000))
    until(qtbot, lambda: panel.model.overlays[0].engine.value == 20000 * MIB)
    until(qtbot, lambda: any("unaccounted" in m.text for m in window.centre.bars.canvas.view().measured))
    assert window.document.plan is made
    lost = running(20000).replace("total_mib = 24564", "lost_after = 1\ntotal_mib = 24564")
    card.use(lost)
    until(qtbot, lambda: window.status.lost.full.startswith("GPU 0"))
    assert "does not answer since" in window.centre.verdict.notes.text()
    assert window.document.plan is made
    assert panel.bars.rows()[0].faded
    card.use(running(20000))
    until(qtbot, lambda: not window.status.lost.full)
    assert "answer" not in window.centre.verdict.notes.text()
    assert window.document.plan is made
    window.view.stop_gpu_panel()


def drag(window: MainWindow, dock: GpuDock, height: int) -> None:
    """Drag the line above the dock until the dock is that high."""
    line = QPoint(window.width() // 2, dock.y() - 2)
    end = line - QPoint(0, height - dock.height())
    QTest.mousePress(window, Qt.MouseButton.LeftButton, pos=line)
    QTest.mouseMove(window, end)
    before, deadline = dock.height(), QDeadlineTimer(round(LONG_S * 1000))
    while dock.height() == before and not deadline.hasExpired():  # the window moves the line a moment later
        QTest.qWait(10)
    QTest.mouseRelease(window, Qt.MouseButton.LeftButton, pos=end)


def test_the_dock_leaves_the_table_its_rows(card: Stub, open_window: Callable[..., MainWindow], qtbot: QtBot) -> None:
    window = open_window(gpu="H100")
    opened(window, qtbot)
    dock = window.findChild(GpuDock)
    assert dock is not None
    until(qtbot, lambda: dock.height() <= window.height() * SHARE)
    table = window.centre.below.breakdown
    assert table.height() >= table.least_height()
    until(qtbot, lambda: table.mapTo(window, QPoint(0, table.height())).y() <= dock.y())
    assert dock.panel.tabs.height() >= dock.panel.tabs.minimumSizeHint().height()


def test_a_dragged_dock_keeps_its_height(card: Stub, open_window: Callable[..., MainWindow], qtbot: QtBot) -> None:
    window = open_window(gpu="RTX 4090")
    panel = opened(window, qtbot)
    dock = window.findChild(GpuDock)
    assert dock is not None
    until(qtbot, lambda: dock.height() <= window.height() * SHARE)
    window.keep_layout()
    assert window.services.settings.get(s.DOCKS) == ""
    drag(window, dock, 330)
    height = dock.height()
    assert height > 300
    panel.height_wanted.emit()
    qtbot.wait(60)
    assert dock.height() == height
    window.keep_layout()
    window.view.stop_gpu_panel()
    other = open_window(gpu="RTX 4090")
    opened(other, qtbot)
    kept = other.findChild(GpuDock)
    assert kept is not None
    until(qtbot, lambda: abs(kept.height() - height) <= 2)
    other.view.reset_layout()
    other.keep_layout()
    assert other.services.settings.get(s.DOCKS) == ""
    other.view.stop_gpu_panel()


def test_f6_goes_to_the_dock_and_back(card: Stub, open_window: Callable[..., MainWindow], qtbot: QtBot) -> None:
    window = open_window(gpu="RTX 4090")
    panel = opened(window, qtbot)
    window.activateWindow()
    window.panel.model.button.setFocus()
    window.view.previous_panel()
    assert QApplication.focusWidget() is panel.toolbar.watch_button
    window.view.previous_panel()
    tabs, focus = window.centre.below.tabs, QApplication.focusWidget()
    assert tabs is not None
    assert focus is not None
    assert tabs.isAncestorOf(focus)
    window.view.next_panel()
    window.view.next_panel()
    assert QApplication.focusWidget() is window.panel.model.button
    window.view.stop_gpu_panel()


def test_f6_passes_through_the_dock_of_a_machine_without_a_gpu(window: MainWindow, qtbot: QtBot) -> None:
    window.view.gpu_panel(True)
    panel = window.findChild(GpuPanel)
    assert panel is not None
    dock = window.view.dock
    assert dock is not None
    until(qtbot, lambda: not panel.toolbar.watch_button.isVisible())
    window.activateWindow()
    window.panel.model.button.setFocus()
    for walk in (window.view.next_panel, window.view.previous_panel):
        seen = []
        for _ in range(5):
            walk()
            focus = QApplication.focusWidget()
            assert focus is not None
            assert focus.isVisible()
            seen.append(focus)
        assert len(set(seen)) == 5
        assert seen[-1] is window.panel.model.button
        assert [dock.isAncestorOf(focus) for focus in seen].count(True) == 1
    window.view.stop_gpu_panel()
