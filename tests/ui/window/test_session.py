"""Files and sessions: saved, opened, restored, also after kill -9; nothing of the user's is lost."""

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
from PySide6.QtCore import QMimeData, QPointF, Qt, QUrl
from PySide6.QtGui import QDragEnterEvent, QDropEvent
from pytestqt.qtbot import QtBot

from kvplanner.app import planstore
from kvplanner.app import settings as s
from kvplanner.app.opening import classify
from kvplanner.app.session import Session
from kvplanner.engine.request import Load
from kvplanner.ui.window.application import Application
from kvplanner.ui.window.arguments import parse
from kvplanner.ui.window.run import begin
from kvplanner.ui.window.window import MainWindow

pytestmark = pytest.mark.slow

ROUNDS = int(os.environ.get("KVPLANNER_KILL_ROUNDS", "2"))


def test_a_saved_plan_opens_as_it_was(window: MainWindow, qtbot: QtBot, tmp_path: Path) -> None:
    document = window.document
    document.set_option("max_model_len", 16_384)
    document.edit("Load", load=Load(8, 1000, 200))
    document.edit("Leave out", unticked=frozenset({0}))
    path = tmp_path / "mine.kvplan.json"
    window.saving.save_to(path)
    qtbot.waitUntil(lambda: document.path == path)
    assert not document.modified
    assert window.services.settings.get(s.RECENT_FILES) == [str(path)]
    before = document.state
    document.set_option("max_model_len", 1024)
    assert document.modified
    document.undo()
    document.path = None
    window.opening.open_plan(path)
    qtbot.waitUntil(lambda: document.path == path)
    after = document.state
    assert after.ask.options == before.ask.options
    assert after.ask.load == before.ask.load
    assert after.unticked == before.unticked
    assert [d.gpu for d in after.devices] == [d.gpu for d in before.devices]
    assert after.model == before.model


def test_unknown_fields_of_a_file_survive(window: MainWindow, qtbot: QtBot, tmp_path: Path) -> None:
    path = tmp_path / "mine.kvplan.json"
    window.saving.save_to(path)
    qtbot.waitUntil(lambda: path.exists())
    text = json.loads(path.read_text())
    text["note_of_a_later_version"] = {"a": [1, 2]}
    path.write_text(json.dumps(text))
    window.opening.open_plan(path)
    qtbot.waitUntil(lambda: "note_of_a_later_version" in window.document.state.extra)
    window.document.set_option("max_num_seqs", 32)
    window.saving.save_to(path)
    qtbot.waitUntil(lambda: not window.document.modified)
    assert json.loads(path.read_text())["note_of_a_later_version"] == {"a": [1, 2]}


@pytest.mark.parametrize("content", ["", "{}", "[1]", '{"schema": "kvplanner.planfile/1"}', "\x00" * 100])
def test_a_broken_plan_file_leaves_the_plan_alone(
    window: MainWindow, qtbot: QtBot, tmp_path: Path, content: str
) -> None:
    path = tmp_path / "broken.kvplan.json"
    path.write_text(content)
    before = window.document.state
    window.opening.open_plan(path)
    qtbot.waitUntil(lambda: bool(window.centre.messages.strips))
    assert "broken.kvplan.json" in window.centre.messages.strips[0].message.text
    assert window.document.state is before


def test_a_place_that_cannot_be_written_is_told(window: MainWindow, qtbot: QtBot, tmp_path: Path) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("x")
    window.saving.save_to(blocker / "plan.kvplan.json")
    qtbot.waitUntil(lambda: bool(window.centre.messages.strips))
    assert "not saved" in window.centre.messages.strips[0].message.text


def test_a_model_that_cannot_be_read_says_so_and_changes_nothing(
    window: MainWindow, qtbot: QtBot, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text("{")
    before = window.document.state
    window.opening.load_model(str(tmp_path / "config.json"))
    qtbot.waitUntil(lambda: bool(window.centre.messages.strips))
    said = window.centre.messages.strips[-1].message.text
    assert "config.json" in said
    assert "the plan is unchanged" in said
    assert window.document.state is before
    qtbot.waitUntil(lambda: "Llama" in window.panel.model.button.text())


def drop_event(path: Path) -> QMimeData:
    data = QMimeData()
    data.setUrls([QUrl.fromLocalFile(str(path))])
    return data


def test_a_drop_says_what_it_will_do_and_does_it(window: MainWindow, qtbot: QtBot, tmp_path: Path) -> None:
    path = tmp_path / "dropped.kvplan.json"
    planstore.save(path, window.document.state)
    data = drop_event(path)
    actions, buttons = Qt.DropAction.CopyAction, Qt.MouseButton.LeftButton
    none = Qt.KeyboardModifier.NoModifier
    window.dragEnterEvent(QDragEnterEvent(QPointF(5, 5).toPoint(), actions, data, buttons, none))
    assert window.drops.sheet is not None
    assert "dropped.kvplan.json" in window.drops.sheet.text()
    window.dropEvent(QDropEvent(QPointF(5, 5), actions, data, buttons, none))
    assert window.drops.sheet.isHidden()
    qtbot.waitUntil(lambda: window.document.path == path)


def test_a_drop_of_something_else_is_refused_with_the_reason(window: MainWindow, tmp_path: Path) -> None:
    path = tmp_path / "pytorch_model.bin"
    path.write_bytes(b"x")
    data = drop_event(path)
    window.dragEnterEvent(
        QDragEnterEvent(
            QPointF(5, 5).toPoint(),
            Qt.DropAction.CopyAction,
            data,
            Qt.MouseButton.LeftButton,
            Qt.KeyboardModifier.NoModifier,
        )
    )
    assert window.drops.sheet is not None
    assert "pickle" in window.drops.sheet.text()


def test_a_long_name_stays_within_the_sheet(window: MainWindow, tmp_path: Path) -> None:
    folder = tmp_path / ("a-model_with-a-very-long-name." + "x" * 160)
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    window.drops.show(classify(folder))
    sheet = window.drops.sheet
    assert sheet is not None
    assert folder.name in sheet.text().replace("\u200b", "")
    ground = sheet.grab().toImage()
    line, height = ground.pixelColor(0, 0), ground.height()
    inner = ground.pixelColor(6, height // 2)
    assert inner != line
    for x in (*range(4, 20), *range(ground.width() - 20, ground.width() - 4)):
        assert {ground.pixelColor(x, y).name() for y in range(6, height - 6)} == {inner.name()}, x
    for y in (*range(4, 16), *range(height - 16, height - 4)):
        assert ground.pixelColor(ground.width() // 2, y).name() == inner.name(), y


def test_a_closed_session_comes_back(
    application: Application, open_window: Callable[..., MainWindow], qtbot: QtBot, own_data_folder: Path
) -> None:
    window = open_window("Qwen/Qwen3-8B", "4xH100")
    window.document.set_option("max_num_seqs", 77)
    application.shut_down()
    restored = Session(lambda: (), application.jobs).restore()
    assert not restored.crashed
    assert restored.plans[0].plan["options"] == {"max_num_seqs": 77}


def test_the_plan_of_a_crashed_process_comes_back_once(
    application: Application, qtbot: QtBot, own_data_folder: Path
) -> None:
    process = subprocess.Popen([sys.executable, "-c", "pass"])
    process.wait()
    source = application.new_window()
    source.show()
    begin(application, source, parse([]), application.session.restore())
    qtbot.waitUntil(lambda: source.document.plan is not None, timeout=20_000)
    source.document.set_option("max_num_seqs", 7)
    application.session.write_now()
    own = application.session.own
    own.rename(own.with_name(f"{process.pid}.json"))
    restored = application.session.restore()
    assert restored.crashed
    assert len(restored.plans) == 1
    assert not application.session.restore().crashed
    window = application.new_window()
    window.show()
    begin(application, window, parse([]), restored)
    qtbot.waitUntil(lambda: window.document.plan is not None, timeout=20_000)
    assert window.document.modified


EDITOR = """
import re, sys
from kvplanner.app import storage
from kvplanner.ui.window.run import make_app
from kvplanner.ui.window.application import Application
from kvplanner.app.start import start_state
from PySide6.QtCore import QTimer

def tell(word, number):
    sys.stdout.write(f"{word} {number}\\n")
    sys.stdout.flush()

def write(path, text, write=storage.write):
    write(path, text)
    for number in re.findall('"max_num_seqs": ([0-9]+)', text):
        tell("kept", number)

storage.write = write
app = make_app()
application = Application(app)
window = application.new_window()
window.document.reset(start_state(None, lambda: None))
count = 0
def edit():
    global count
    count += 1
    window.document.set_option("max_num_seqs", count)
    tell("edit", count)
timer = QTimer()
timer.timeout.connect(edit)
timer.start(20)
QTimer.singleShot(200_000, app.quit)
app.exec()
"""


@pytest.mark.parametrize("round_", range(ROUNDS))
def test_kill_loses_nothing_that_was_written(own_data_folder: Path, round_: int) -> None:
    """Edits that never pause are written all the same: every half second what there is by then."""
    environment = {**os.environ, "QT_QPA_PLATFORM": "offscreen"}
    process = subprocess.Popen(
        [sys.executable, "-c", EDITOR], env=environment, stdout=subprocess.PIPE, text=True, bufsize=1
    )
    assert process.stdout is not None
    lines = [process.stdout.readline()]
    while lines[-1].startswith("edit"):
        lines.append(process.stdout.readline())
    time.sleep(0.11 * round_ % 0.7)
    process.send_signal(signal.SIGKILL)
    lines += process.stdout.read().splitlines()
    process.wait()
    told = [line.split() for line in lines if line.endswith(tuple("0123456789\n"))]
    from kvplanner.app.jobs import Jobs

    jobs = Jobs()
    restored = Session(lambda: (), jobs).restore()
    jobs.stop()
    assert restored.crashed
    kept = restored.plans[0].plan["options"]["max_num_seqs"]
    assert kept >= max(int(number) for word, number in told if word == "kept")
    assert kept <= 1 + max(int(number) for word, number in told if word == "edit")
