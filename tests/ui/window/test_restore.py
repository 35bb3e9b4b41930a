"""What a session brings back: the same machine, the same numbers, every window in sight; and edits that stay."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtTest import QTest
from pytestqt.qtbot import QtBot

from kvplanner.app import planstore
from kvplanner.app.session import OpenPlan, Restored
from kvplanner.app.state import PlanState
from kvplanner.catalog import gpus
from kvplanner.engine.plan import Plan
from kvplanner.estimate import measured
from kvplanner.gpu.spec import Device, Machine
from kvplanner.request import planfile
from kvplanner.ui.window import local as main_local
from kvplanner.ui.window.application import Application
from kvplanner.ui.window.arguments import parse
from kvplanner.ui.window.run import begin
from kvplanner.ui.window.window import MainWindow
from kvplanner.units import MIB
from tests.patience import LONG_S

pytestmark = pytest.mark.slow


def seen(*marks: str, uuids: tuple[str, ...] = ("GPU-a", "GPU-b"), used_mib: int = 700) -> Machine:
    """Two RTX 4090 as NVML tells them: measured totals, something in use."""
    spec = gpus.gpu("rtx-4090")
    assert spec.total is not None
    measured_spec = spec._replace(cuda_total=measured(spec.total.value - 451 * MIB, "NVML"))
    free = spec.total.value - (451 + used_mib) * MIB
    return Machine(
        tuple(Device(i, measured_spec, free, "NVML, 12:03:00", uuid, marks=marks) for i, uuid in enumerate(uuids)),
        "this machine",
    )


def kept(window: MainWindow) -> OpenPlan:
    """What the session file holds of a window, as it is read back."""
    document = json.loads(json.dumps(planstore.to_session(window.document.state)))
    return OpenPlan(document, str(window.document.path or ""), window.document.modified)


def restore(application: Application, qtbot: QtBot, *plans: OpenPlan, crashed: bool = True) -> list[MainWindow]:
    """The windows that a session opens."""
    before = len(application.windows)
    first = application.new_window()
    first.show()
    begin(application, first, parse([]), Restored(plans, crashed))
    made = application.windows[before:]
    qtbot.waitUntil(lambda: all(w.document.plan is not None and w.isVisible() for w in made), timeout=20_000)
    return made


def plan_of(window: MainWindow) -> Plan:
    """The plan in a window."""
    window.document.flush()
    assert window.document.plan is not None
    return window.document.plan


def test_this_machine_comes_back_as_it_is(
    window: MainWindow, application: Application, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    application.library.show_machine(seen("display attached"))
    window.machines.choose_local()
    window.panel.gpus.ticked.emit(0, False)
    window.panel.edits.give_free(1, 20 * 10**9)
    before = plan_of(window)
    monkeypatch.setattr(main_local, "probe_now", lambda: seen("display attached"))
    (back,) = restore(application, qtbot, kept(window))
    after = plan_of(back)
    assert after.devices == before.devices
    assert after.verdict == before.verdict
    old, new = window.document.state, back.document.state
    assert new._replace(extra={}) == old._replace(extra={})
    assert "This machine" in back.panel.gpus.button.accessibleDescription()


def test_what_was_said_of_a_gpu_stays_with_it(
    window: MainWindow, application: Application, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    application.library.show_machine(seen())
    window.machines.choose_local()
    window.panel.gpus.ticked.emit(0, False)
    window.panel.edits.give_free(1, 20 * 10**9)
    monkeypatch.setattr(main_local, "probe_now", lambda: seen(uuids=("GPU-b", "GPU-c", "GPU-a")))
    (back,) = restore(application, qtbot, kept(window))
    assert back.document.state.unticked == frozenset({2})
    assert back.document.state.given_free == {0: 20 * 10**9}
    assert [d.device.uuid for d in plan_of(back).devices] == ["GPU-b", "GPU-c"]


def test_without_its_driver_this_machine_is_that_of_the_catalogue(
    window: MainWindow, application: Application, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    application.library.show_machine(seen())
    window.machines.choose_local()
    monkeypatch.setattr(main_local, "probe_now", lambda: None)
    (back,) = restore(application, qtbot, kept(window))
    assert [d.device.gpu.id for d in plan_of(back).devices] == ["rtx-4090", "rtx-4090"]
    assert back.document.state.machine_source == "catalogue"
    assert any("cannot be seen now" in strip.message.text for strip in back.centre.messages.strips)


def test_an_assumed_gpu_stays_assumed(
    open_window: Callable[..., MainWindow], application: Application, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    window = open_window(gpu="")
    (back,) = restore(application, qtbot, kept(window), crashed=False)
    assert not back.document.state.machine_chosen
    application.library.show_machine(seen())
    assert back.document.state.machine_source == "this machine"
    monkeypatch.setattr(main_local, "probe_now", lambda: seen(used_mib=900))
    (again,) = restore(application, qtbot, kept(back), crashed=False)
    assert not again.document.state.machine_chosen
    assert again.document.state.devices == seen(used_mib=900).devices
    chosen = open_window(gpu="H100")
    (stays,) = restore(application, qtbot, kept(chosen), crashed=False)
    application.library.show_machine(seen())
    assert stays.document.state.machine_source == "catalogue"


def test_a_new_look_at_the_gpus_keeps_those_that_were_left_out(
    open_window: Callable[..., MainWindow], application: Application
) -> None:
    window = open_window(gpu="")
    application.library.show_machine(seen())
    window.panel.gpus.ticked.emit(1, False)
    application.library.show_machine(seen(used_mib=900))
    assert window.document.state.unticked == frozenset({1})


def test_a_session_of_an_older_version_opens(window: MainWindow) -> None:
    old = planfile.to_json(planstore.to_planfile(window.document.state))
    state = planstore.from_session(old, "last session", lambda: None)
    assert state._replace(extra={}) == window.document.state


def test_a_plan_file_says_nothing_of_this_computer(window: MainWindow, application: Application) -> None:
    application.library.show_machine(seen())
    window.machines.choose_local()
    text = json.dumps(planfile.to_json(planstore.to_planfile(window.document.state)))
    assert "GPU-a" not in text
    assert '"source"' not in text
    restored = planstore.from_session(kept(window).plan, "session", seen)
    assert "GPU-a" not in json.dumps(planfile.to_json(planstore.to_planfile(restored)))


@pytest.mark.parametrize(
    "field",
    [None, [], {"source": 3}, {"source": "this machine", "uuids": {"a": 1}, "stated_free": [1]},
     {"source": "this machine", "uuids": [1], "stated_free": {"x": 1, "0": -1, "1": "much"}}],
)  # fmt: skip
def test_a_strange_session_is_still_a_plan(window: MainWindow, field: object) -> None:
    document = {**kept(window).plan, planstore.WINDOW_FIELD: field}
    state: PlanState = planstore.from_session(document, "session", seen)
    assert state.request() is not None


def test_windows_of_a_crash_lie_side_by_side_and_the_top_one_tells(
    open_window: Callable[..., MainWindow], application: Application, qtbot: QtBot
) -> None:
    plans = [kept(open_window(gpu=gpu)) for gpu in ("H100", "L4", "RTX 4090")]
    shown: list[tuple[MainWindow, bool]] = []
    real = MainWindow.show

    def noted(window: MainWindow) -> None:
        shown.append((window, window.centre.built and window.document.plan is not None))
        real(window)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MainWindow, "show", noted)
        windows = restore(application, qtbot, *plans)
    assert len({(w.x(), w.y()) for w in windows}) == 3
    assert {w.document.state.machine_text for w in windows} == {p.plan["machine"] for p in plans}
    assert all(whole for _, whole in shown[1:]), "a further window shows unfinished"
    told = [w for w in windows if w.centre.messages.strips]
    assert told == [shown[-1][0]]
    assert "your 3 plans were restored" in told[0].centre.messages.strips[0].message.text


def test_a_cascade_stays_on_the_screen(window: MainWindow, application: Application) -> None:
    room = QGuiApplication.primaryScreen().availableGeometry()
    for _ in range(12):
        last = application.windows[-1]
        last.opening.new_window()
    places = [(w.x(), w.y()) for w in application.windows]
    assert len(set(places)) == len(places)
    assert all(room.contains(x + 100, y + 100) for x, y in places)


ENDED = """
import sys
from PySide6.QtCore import QTimer
from kvplanner.ui.window.application import Application
from kvplanner.ui.window.run import make_app, stop_on_interrupt
from kvplanner.app.start import start_state
app = make_app()
application = Application(app)
stop_on_interrupt(app, application)
for users in range(3):
    window = application.new_window()
    window.document.reset(start_state(None, lambda: None))
    window.document.set_option("max_num_seqs", users + 5)
    window.show()
QTimer.singleShot(300, lambda: print("up", flush=True))
if sys.argv[1] == "quit":
    QTimer.singleShot(400, application.quit)
app.exec()
"""


@pytest.mark.parametrize("how", ["SIGINT", "SIGTERM", "quit"])
def test_the_end_with_several_edited_windows_asks_nothing(own_data_folder: Path, how: str) -> None:
    """Signals come from outside, while the event loop sleeps and nothing else would wake it."""
    environment = {**os.environ, "QT_QPA_PLATFORM": "offscreen"}
    with subprocess.Popen(
        [sys.executable, "-c", ENDED, how], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        if how != "quit":
            time.sleep(0.3)  # asleep by then
            process.send_signal(signal.Signals[how])
        _, errors = process.communicate(timeout=LONG_S)
    assert (process.returncode, errors) == (0, "")
    last = json.loads((own_data_folder / "sessions" / "last.json").read_text())
    assert [w["plan"]["options"]["max_num_seqs"] for w in last["windows"]] == [5, 6, 7]


def test_a_window_without_menus_yet_can_be_quit(
    application: Application, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    quits: list[str] = []
    monkeypatch.setattr(application, "quit", lambda: quits.append("quit"))
    window = application.first_window()
    window.show()
    QTest.keyClick(window, Qt.Key.Key_Q, Qt.KeyboardModifier.ControlModifier)
    assert quits == ["quit"]
    qtbot.waitUntil(lambda: window.assembled)


def test_a_failed_plan_and_the_crash_are_both_told(window: MainWindow, application: Application, qtbot: QtBot) -> None:
    gone = {**kept(window).plan, "model": "nobody/nothing-1b"}
    (back,) = restore(application, qtbot, OpenPlan(gone, "", modified=False))
    said = " ".join(strip.message.text for strip in back.centre.messages.strips)
    assert "nothing-1b" in said
    assert "not closed properly" in said


@pytest.mark.parametrize("in_file", [True, False])
def test_opening_a_file_never_discards_edits(
    window: MainWindow, application: Application, qtbot: QtBot, tmp_path: Path, in_file: bool
) -> None:
    path, other = tmp_path / "a.kvplan.json", tmp_path / "b.kvplan.json"
    planstore.save(other, window.document.state)
    if in_file:
        window.saving.save_to(path)
        qtbot.waitUntil(lambda: window.document.path == path)
    window.document.set_option("max_num_seqs", 7)
    before = window.document.state
    window.opening.open_plan(other)
    qtbot.waitUntil(lambda: len(application.windows) == 2)
    opened = application.windows[1]
    qtbot.waitUntil(lambda: opened.document.path == other)
    assert window.document.state is before
    assert window.document.undo_label
    assert (opened.x(), opened.y()) != (window.x(), window.y())
    window.document.undo()
    window.document.path = None
    window.opening.open_plan(other)
    qtbot.waitUntil(lambda: window.document.path == other)
    assert len(application.windows) == 2
