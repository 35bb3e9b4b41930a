"""The Local GPU panel on the stand-in: what it shows, and that it never stops the window."""

from __future__ import annotations

import gc
import time
from itertools import pairwise

import psutil  # noqa: TID253 - what is tested rests on it
import pytest
from PySide6.QtCore import Qt, QTimer
from PySide6.QtGui import QPalette
from PySide6.QtWidgets import QAbstractButton, QComboBox, QLineEdit, QTableView, QWidget
from pytestqt.qtbot import QtBot

from kvplanner.observe.overlay import Overlay
from kvplanner.ui.gpu_panel.panel import GpuPanel
from kvplanner.ui.theme.palette import DARK
from kvplanner.ui.theme.theme import palette_of
from kvplanner.units import GIB, MIB
from tests.nvml_stub.build import SCENARIOS, library_folder, scenario_variant
from tests.observe.kit import Stub, scenario_text
from tests.observe.panel_kit import plan_for, shown, until
from tests.patience import slowness

pytestmark = pytest.mark.slow


def test_nothing_runs_until_it_is_shown_and_nothing_is_left(stub: Stub, panel: GpuPanel, qtbot: QtBot) -> None:
    stub.use("desktop-4090")
    qtbot.wait(300)
    assert panel.feed.helper_pid is None
    panel.show()
    shown(panel, qtbot)
    helper = panel.feed.helper_pid
    assert helper is not None
    panel.hide()
    before = stub.calls().count("nvmlDeviceGetMemoryInfo_v2")
    qtbot.wait(1000)  # five samples of one that is shown
    after = stub.calls().count("nvmlDeviceGetMemoryInfo_v2")
    assert after - before <= 1, "one may have been under way"
    panel.stop()
    until(qtbot, lambda: not psutil.pid_exists(helper))


def test_a_desktop_card(stub: Stub, panel: GpuPanel, qtbot: QtBot) -> None:
    stub.use("desktop-4090")
    panel.show()
    shown(panel, qtbot)
    (row,) = panel.bars.rows()
    assert (row.title, row.tail, row.detail) == ("GPU 0", "…2e4090", "RTX 4090 · display")
    assert [(p.kind, p.bytes) for p in row.parts] == [("driver", 454 * MIB), ("other", 1206 * MIB)]
    assert row.numbers == "other programs 1.18 · 22.37 GiB free of 23.99 GiB"
    assert "PCI 0000:01:00.0" in row.tip
    assert "GPU busy: 4 %" in row.tip
    assert "memory bus busy: 3 % (not how full it is)" in row.tip
    assert panel.free.text.text() == "Other programs hold 1.18 GiB on GPU 0."
    assert "driver 580.95.05" in panel.toolbar.state.text()
    panel.set_unit("GB")
    assert panel.bars.rows()[0].numbers == "other programs 1.26 · 24.02 GB free of 25.76 GB"


def test_memory_that_moves_is_drawn(stub: Stub, panel: GpuPanel, qtbot: QtBot) -> None:
    stub.use("desktop-4090")
    panel.show()
    shown(panel, qtbot)
    stub.use(scenario_text("desktop-4090").replace("used_mib = 1206", "used_mib = 21206"))
    until(qtbot, lambda: panel.bars.rows()[0].parts[1].bytes == 21206 * MIB)
    until(qtbot, lambda: panel.plot.made)
    (curve,) = panel.plot._curves.values()

    def drawn() -> tuple[float, float]:
        values = curve.getData()[1]
        return values.min(), values.max()

    until(qtbot, lambda: drawn() == pytest.approx(((1206 + 454) / 1024, (21206 + 454) / 1024), abs=0.01))


def test_beside_a_plan(stub: Stub, panel: GpuPanel, qtbot: QtBot) -> None:
    stub.use("desktop-4090")
    panel.set_plan(plan_for("RTX 4090"))
    panel.show()
    with qtbot.waitSignal(panel.overlay_changed, timeout=15_000) as caught:
        pass
    (overlay,) = caught.args[0]
    assert overlay.gpu.uuid.startswith("GPU-4b8f")
    (row,) = panel.bars.rows()
    assert sum(p.bytes for p in row.planned) == plan_for("RTX 4090").devices[0].total_bytes
    assert row.budget is not None
    wanted = {"capacity", "budget ends", "weights loaded"}
    until(qtbot, lambda: {line.text for line in panel.plot._references} >= wanted)
    with qtbot.waitSignal(panel.free_measured, timeout=5000) as sent:
        panel.free.use.click()
    assert sent.args == [{0: 22904 * MIB}]
    panel.set_plan(None)
    assert panel.bars.rows()[0].planned == ()


def test_the_memory_bars_are_not_left_with_old_figures(stub: Stub, panel: GpuPanel, qtbot: QtBot) -> None:
    stub.use("desktop-4090")
    panel.set_plan(plan_for("RTX 4090"))
    told: list[tuple[Overlay, ...]] = []
    panel.overlay_changed.connect(told.append)
    panel.show()
    until(qtbot, lambda: told and told[-1])
    assert told[-1][0].stale is False
    panel.hide()
    assert not told[-1]
    panel.show()
    until(qtbot, lambda: told[-1])
    panel.model.snapshot = panel.model.snapshot._replace(monotonic=time.monotonic() - 60)  # type: ignore[union-attr]  # there is one, else the test ends here
    panel.feed._timer.stop()
    panel._age()
    assert told[-1][0].stale is True
    assert "last seen" in panel.toolbar.state.text()
    panel.toolbar.watch_button.click()
    assert not told[-1]


def test_the_plan_can_follow_what_is_free(stub: Stub, panel: GpuPanel, qtbot: QtBot) -> None:
    stub.use("desktop-4090")
    panel.set_plan(plan_for("RTX 4090"))
    panel.show()
    shown(panel, qtbot)
    with qtbot.waitSignal(panel.free_measured):
        panel.free.keep.setChecked(True)
    stub.use(scenario_text("desktop-4090").replace("used_mib = 1206", "used_mib = 4206"))
    with qtbot.waitSignal(panel.free_measured, timeout=15_000) as sent:
        pass
    assert sent.args == [{0: (22904 - 3000) * MIB}]


def test_this_machine_is_told_to_the_window(stub: Stub, panel: GpuPanel, qtbot: QtBot) -> None:
    stub.use("8xh100")
    with qtbot.waitSignal(panel.machine_seen, timeout=15_000) as caught:
        panel.show()
    assert caught.args[0].describe() == "8 × NVIDIA H100 80GB HBM3"


def test_the_user_can_say_which_gpu_is_which(stub: Stub, panel: GpuPanel, qtbot: QtBot) -> None:
    stub.use(scenario_text("gpu-lost").replace("lost_after = 14", ""))
    panel.set_plan(plan_for("RTX 3090"))
    panel.show()
    shown(panel, qtbot, 2)
    assert [bool(r.planned) for r in panel.bars.rows()] == [True, False]
    ((position, title, choices),) = panel.model.rematch_choices()
    assert title == "Planned GPU 0 (tp0) is"
    assert [(text.split(" ·")[0], current) for _, text, current in choices] == [
        ("Automatic", True), ("GPU 0", True), ("GPU 1", False),
    ]  # fmt: skip
    panel._rematch(position, choices[2][0])
    assert [bool(r.planned) for r in panel.bars.rows()] == [False, True]
    panel._fill_menu()
    assert [a.text() for a in panel.toolbar.menu.actions()] == ["Reconnect to the driver", "Planned GPU 0 (tp0) is"]


@pytest.mark.parametrize(
    ("name", "says", "level"),
    [
        ("no-driver", "installed but not running", "warning"),
        ("version-mismatch", "Restart the computer", "warning"),
        ("no-devices", "no GPU is visible", "info"),
    ],
)
def test_a_machine_without_a_working_driver_is_explained_once(
    stub: Stub, panel: GpuPanel, qtbot: QtBot, capfd: pytest.CaptureFixture[str], name: str, says: str, level: str
) -> None:
    stub.use(name)
    panel.show()
    until(qtbot, lambda: says in panel.notice.notice().text)
    assert panel.notice.notice().level == level
    assert panel.notice.isVisible()
    assert not panel.splitter.isVisible()
    assert "does not need one" in panel.empty.text()
    qtbot.wait(700)
    out, err = capfd.readouterr()
    assert (out, err.replace("This plugin does not support propagateSizeHints()\n", "")) == ("", "")


@pytest.mark.parametrize("name", sorted(f.stem for f in SCENARIOS.glob("*.ini")))
def test_every_strange_machine_has_figures_or_words(
    stub: Stub, panel: GpuPanel, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(library_folder(*scenario_variant(name))))
    stub.use(name)
    panel.set_plan(plan_for("RTX 4090"))
    panel.show()
    until(qtbot, lambda: panel.bars.rows() or panel.notice.notice().text)
    for tab in (panel.processes, panel.plot):
        panel.tabs.setCurrentWidget(tab)
        qtbot.wait(20)
    for row in panel.bars.rows():
        assert row.numbers
        assert row.total or row.numbers.startswith(("memory:", "No permission"))
    assert not panel.grab().isNull()


def test_compute_instances_are_counted_once(stub: Stub, panel: GpuPanel, qtbot: QtBot) -> None:
    stub.use("h200-mig-shared")
    panel.show()
    shown(panel, qtbot, 4)
    assert panel.free.text.text() == "Other programs hold 16.52 GiB on GPU 0, slice 2, 0.02 GiB on GPU 0, slice 3."


def test_one_lost_gpu_is_greyed_and_the_others_go_on(stub: Stub, panel: GpuPanel, qtbot: QtBot) -> None:
    stub.use("gpu-lost")
    panel.show()
    until(qtbot, lambda: any(r.faded for r in panel.bars.rows()))
    alive, lost = panel.bars.rows()
    assert (alive.faded, lost.faded) == (False, True)
    assert "stopped answering" in lost.numbers
    assert lost.total == 24576 * MIB
    assert panel.notice.notice().text == "GPU 1 has stopped answering; the others go on."
    assert any(m.text == "GPU 1 lost" for m in panel.model.history.marks)


def test_strange_machines_in_words(stub: Stub, panel: GpuPanel, qtbot: QtBot) -> None:
    stub.use("wsl2")
    panel.show()
    shown(panel, qtbot)
    assert panel.bars.rows()[0].numbers.startswith("in use 14.02")
    assert "Windows display driver" in panel.processes.note.text()
    assert panel.free.text.text() == "In use: 14.02 GiB on GPU 0."
    stub.use("container-mig")
    panel.feed.reconnect()
    until(qtbot, lambda: len(panel.bars.rows()) == 2)
    assert panel.bars.rows()[0].numbers == "memory: no permission"
    assert panel.bars.rows()[1].title == "GPU 0, slice 3"


def test_the_window_goes_on_while_a_driver_call_hangs(stub: Stub, panel: GpuPanel, qtbot: QtBot) -> None:
    """It neither waits for the call, which takes a minute, nor works so long at a time that a frame is lost."""
    stub.use("desktop-4090")
    panel.show()
    shown(panel, qtbot)
    stub.use(scenario_text("desktop-4090") + "latency.nvmlDeviceGetMemoryInfo_v2 = 60000\n")
    turns: list[tuple[float, float]] = []
    timer = QTimer()
    timer.timeout.connect(lambda: turns.append((time.thread_time(), time.monotonic())))
    gc.disable()  # what other tests left behind is not the panel's cost
    try:
        timer.start(8)
        until(qtbot, lambda: "has not answered" in panel.notice.notice().text)
        told = len(turns)
        until(qtbot, lambda: len(turns) > told + 100)
        timer.stop()
    finally:
        gc.enable()
    costs = sorted(after[0] - before[0] for before, after in pairwise(turns))
    assert costs[int(len(costs) * 0.99)] < 0.016 * slowness()
    assert max(after[1] - before[1] for before, after in pairwise(turns)) < 15


def test_the_helper_may_die(stub: Stub, panel: GpuPanel, qtbot: QtBot) -> None:
    stub.use("desktop-4090")
    panel.show()
    shown(panel, qtbot)
    first = panel.feed.helper_pid
    psutil.Process(first).kill()
    until(qtbot, lambda: "SIGKILL" in panel.notice.notice().text)
    assert panel.notice.notice().button == "Try now"
    assert panel.bars.rows()
    panel.notice.button.click()
    until(qtbot, lambda: panel.feed.helper_pid not in (None, first) and not panel.notice.notice().text)


def test_watching_ends_when_asked_and_stays_ended(stub: Stub, panel: GpuPanel, qtbot: QtBot) -> None:
    stub.use("desktop-4090")
    panel.show()
    shown(panel, qtbot)
    panel.toolbar.watch_button.click()
    assert panel.feed.helper_pid is None
    panel.hide()
    panel.show()
    assert panel.feed.helper_pid is None
    assert "not watching" in panel.toolbar.state.text()
    panel.toolbar.watch_button.click()
    assert panel.feed.helper_pid is not None


def test_ten_samples_a_second(stub: Stub, panel: GpuPanel, qtbot: QtBot) -> None:
    stub.use("desktop-4090")
    panel.show()
    shown(panel, qtbot)
    panel.toolbar.fast_box.setChecked(True)
    assert panel.feed.fast
    batches: list[int] = []
    panel.feed.snapshots.connect(lambda batch: batches.append(len(batch)))
    started = time.monotonic()
    until(qtbot, lambda: sum(batches) >= 14)
    assert panel.model.snapshot is not None
    assert panel.model.snapshot.interval == pytest.approx(0.1)
    assert len(batches) <= (time.monotonic() - started) / 0.2 + 2, "drawn four times a second all the same"


def test_everything_has_a_name_and_can_be_reached(stub: Stub, panel: GpuPanel, qtbot: QtBot) -> None:
    stub.use("8xh100")
    panel.show()
    shown(panel, qtbot, 8)
    for widget in panel.findChildren(QWidget):
        if isinstance(widget, QAbstractButton | QComboBox | QLineEdit | QTableView) and widget.isVisible():
            named = widget.accessibleName() or getattr(widget, "text", lambda: "")()
            assert named, widget
    assert panel.bars.access_name(0).startswith("GPU 0, H100 80GB HBM3")
    panel.bars.setFocus()
    for _ in range(3):
        qtbot.keyClick(panel.bars, Qt.Key.Key_Down)
    assert panel.bars.access_current() in (2, 3)
    chosen = panel.bars.current()
    assert chosen == panel.bars.rows()[panel.bars.access_current()].uuid
    qtbot.keyClick(panel.bars, Qt.Key.Key_Up)
    assert panel.bars.current() != chosen


def test_another_theme_recolours_the_plot(stub: Stub, panel: GpuPanel, qtbot: QtBot) -> None:
    stub.use("desktop-4090")
    panel.show()
    shown(panel, qtbot)
    until(qtbot, lambda: panel.plot.made)
    panel.setPalette(palette_of(DARK))
    wanted = panel.palette().color(QPalette.ColorRole.Window)
    until(qtbot, lambda: panel.plot._plot.backgroundBrush().color() == wanted)
    assert wanted.lightness() < 60


def test_narrow_panels_stack(stub: Stub, panel: GpuPanel, qtbot: QtBot) -> None:
    stub.use("desktop-4090")
    panel.resize(420, 700)
    panel.show()
    shown(panel, qtbot)
    assert panel.splitter.orientation() == Qt.Orientation.Vertical
    panel.resize(1200, 420)
    assert panel.splitter.orientation() == Qt.Orientation.Horizontal


def test_processes_sort_filter_and_keep_their_selection(stub: Stub, panel: GpuPanel, qtbot: QtBot) -> None:
    stub.use("desktop-4090")
    panel.show()
    panel.tabs.setCurrentWidget(panel.processes)
    table = panel.processes
    until(qtbot, lambda: table.proxy.rowCount() == 4)

    def column(number: int) -> list[str]:
        return [str(table.proxy.index(r, number).data()) for r in range(table.proxy.rowCount())]

    assert column(1) == ["7777", "2101", "5120", "2390"]
    table.view.sortByColumn(1, Qt.SortOrder.AscendingOrder)
    assert column(1) == ["2101", "2390", "5120", "7777"]
    table.view.sortByColumn(4, Qt.SortOrder.AscendingOrder)
    assert column(4) == ["9 MiB", "0.23 GiB", "0.40 GiB", "0.49 GiB"]
    table.filter.setText("fire")
    assert column(3) == ["firefox"]
    table.filter.clear()
    table.view.selectRow(2)
    selected = table.selected()
    assert selected is not None
    stub.use(scenario_text("desktop-4090").replace("2101:412 2390:9 5120:236", "2101:412 5120:236 99:1"))
    until(qtbot, lambda: "99" in column(1))
    again = table.selected()
    assert again is not None
    assert again.key == selected.key
    table.copy()
    from PySide6.QtGui import QGuiApplication

    assert "gnome-shell" in QGuiApplication.clipboard().text()


def test_eight_gpus_fit_one_axis(stub: Stub, panel: GpuPanel, qtbot: QtBot) -> None:
    stub.use("8xh100")
    panel.set_plan(plan_for("4xH100", tensor_parallel_size=4))
    panel.show()
    shown(panel, qtbot, 8)
    rows = panel.bars.rows()
    assert [bool(r.planned) for r in rows] == [True] * 4 + [False] * 4
    assert {r.total for r in rows} == {81559 * MIB}
    assert panel.bars.sizeHint().height() < 8 * 66 + 40
    assert panel.free.text.text() == "Other programs hold 70.77 GiB on GPU 0–3."
    assert rows[0].parts[-1].bytes > 70 * GIB
