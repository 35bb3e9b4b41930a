"""Whatever yesterday left behind, and whatever others named: the window opens, plans, and shows names as they are."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from shutil import rmtree

import pytest
from PySide6.QtCore import QModelIndex, QPoint, Qt
from PySide6.QtWidgets import QAbstractItemView, QApplication, QLabel, QTextBrowser, QToolTip, QWidget
from pytestqt.qtbot import QtBot

from kvplanner.app import settings as s
from kvplanner.app.session import Restored
from kvplanner.ui.window.application import Application
from kvplanner.ui.window.arguments import parse
from kvplanner.ui.window.run import begin
from kvplanner.ui.window.window import MainWindow
from tests.source.checkpoints_dense import llama
from tests.source.kit import CONFIG
from tests.source.make_models import write_folder

pytestmark = pytest.mark.slow

PLAN = {
    "schema": "kvplanner.planfile/1", "model": "Llama-3.1-8B-Instruct", "machine": "1xh100-sxm5-80gb",
    "engine": {"name": "vllm"},
}  # fmt: skip
EVIL = "<img src='x.png'><b>e\x1b[31m\u202ex"


def session(**window: object) -> str:
    return json.dumps({"schema": "kvplanner.session/1", "windows": [{"plan": PLAN, "modified": False, **window}]})


LAST: dict[str, str] = {
    "a path that is too long": session(path="/" + "x" * 400 + ".kvplan.json"),
    "a path through a file": session(path="/etc/passwd/x.kvplan.json"),
    "a null in the path": session(path="a\0b.kvplan.json"),
    "a closed folder": session(path="/proc/1/fd/x.kvplan.json"),
    "half a character": session(path="\ud800.kvplan.json"),
    "a path of a user": session(path="~nobodyatall/x.kvplan.json"),
    "no path at all": session(path=5),
    "an unknown model": session(plan=PLAN | {"model": EVIL}),
    "a model of the Hub": session(plan=PLAN | {"model": "hub:a/b"}),
    "a model path too long": session(plan=PLAN | {"model": "/" + "y" * 3000}),
    "an unknown machine": session(plan=PLAN | {"machine": EVIL}),
    "an unknown engine": session(plan=PLAN | {"engine": {"name": EVIL, "version": EVIL}}),
    "an option of a newer version": session(plan=PLAN | {"options": {"from_the_future": 1}}),
    "huge numbers": session(plan=PLAN | {"free_bytes": {"0": 1 << 52}, "load": {"users": 1 << 52, "prompt": 1}}),
    "a newer plan": session(plan=PLAN | {"schema": "kvplanner.planfile/9"}),
    "a broken file": '{"schema": "kvplanner.session/1", "windows": [',
    "a newer session": '{"schema": "kvplanner.session/9"}',
    "deep": '{"schema": "kvplanner.session/1", "windows": ' + "[" * 900 + "]" * 900 + "}",
    "infinite": session(plan=PLAN).replace('"modified"', '"x": 1e999, "modified"'),
}
REFUSED = ("an unknown model", "a model of the Hub", "a model path too long", "an unknown machine", "an unknown engine",
           "huge numbers", "a newer plan")  # fmt: skip


def started(application: Application, qtbot: QtBot, restored: Restored | None = None) -> MainWindow:
    window = application.first_window()
    window.show()
    window.fill()
    begin(application, window, parse([]), restored)
    qtbot.waitUntil(lambda: window.document.plan is not None, timeout=10_000)
    return window


@pytest.mark.parametrize("kind", LAST)
def test_no_session_stops_the_start(own_data_folder: Path, application: Application, qtbot: QtBot, kind: str) -> None:
    folder = own_data_folder / "sessions"
    folder.mkdir(parents=True)
    (folder / "last.json").write_text(LAST[kind], encoding="utf-8", errors="surrogatepass")
    (folder / ("9" * 30 + ".json")).write_text("{}")
    window = started(application, qtbot)
    assert window.document.plan is not None
    assert window.isVisible()
    kept = [json.loads(path.read_bytes()) for path in folder.glob("aside-*.kvplan.json")]
    said = [strip for strip in window.centre.messages.strips if "could not be opened" in strip.message.text]
    assert kept == [json.loads(LAST[kind])["windows"][0]["plan"] for _ in said], "what cannot be opened is kept"
    assert said or kind not in REFUSED


@pytest.mark.parametrize("names", [["/" + "x" * 400], ["a\0b"], ["/etc/passwd/x"], [EVIL], ["~nobodyatall/x", ""]])
def test_no_recent_file_stops_the_menu(
    application: Application, qtbot: QtBot, own_data_folder: Path, names: list[str]
) -> None:
    application.settings.set(s.RECENT_FILES, names)
    application.settings.set(s.RECENT_MODELS, names)
    application.settings.set(s.RECENT_MACHINES, names)
    application.settings.set(s.EXPORT_FOLDER, names[0])
    application.settings.set(s.GEOMETRY, names[0])
    application.settings.set(s.DOCKS, names[0])
    window = started(application, qtbot, Restored((), crashed=False))
    for menu in window.menuBar().actions():
        if menu.menu() is not None:
            menu.menu().aboutToShow.emit()  # type: ignore[attr-defined]  # a menu's action
    assert window.document.plan is not None


def test_a_data_folder_that_cannot_be_written_only_keeps_nothing(
    monkeypatch: pytest.MonkeyPatch, own_data_folder: Path, application: Application, qtbot: QtBot
) -> None:
    rmtree(own_data_folder, ignore_errors=True)
    own_data_folder.parent.mkdir(parents=True, exist_ok=True)
    own_data_folder.write_text("a file, where a folder should be")
    window = started(application, qtbot)
    application.settings.set(s.UNIT, "GB")
    assert window.document.plan is not None


def index_texts(view: QAbstractItemView) -> Iterator[str]:
    model = view.model()
    if model is None:
        return
    waiting = [QModelIndex()]
    while waiting:
        parent = waiting.pop()
        for row in range(min(model.rowCount(parent), 200)):
            for column in range(model.columnCount(parent)):
                at = model.index(row, column, parent)
                yield str(at.data() or "")
                if column == 0:
                    waiting.append(at)


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A model folder whose name and tensors are named to do harm."""
    folder = tmp_path / EVIL
    folder.mkdir()
    write_folder(folder, CONFIG, llama(CONFIG))
    return folder


def test_names_of_others_are_plain_text_in_every_view(
    open_window: Callable[..., MainWindow], qtbot: QtBot, hostile: Path
) -> None:
    window = open_window(str(hostile))
    qtbot.waitUntil(lambda: window.document.plan is not None)
    window.messages.warning(f"{EVIL} was read", EVIL)
    qtbot.wait(200)
    labels = window.findChildren(QLabel)
    assert labels
    named = 0
    for label in labels:
        assert label.textFormat() != Qt.TextFormat.AutoText, label.text()
        named += "<img" in label.text()
        assert label.textFormat() == Qt.TextFormat.PlainText or "<img" not in label.text()
    assert named, "the hostile name is shown somewhere"
    for page in window.findChildren(QTextBrowser):
        assert "<img" not in page.toHtml()
    every = [w for w in window.findChildren(QWidget) if w.toolTip()]
    texts = [w.toolTip() for w in every] + [a.toolTip() for a in window.actions()]
    texts += [t for view in window.findChildren(QAbstractItemView) for t in index_texts(view)]
    assert not [t for t in texts if "\x1b" in t or "\u202e" in t]
    assert "\x1b" not in window.windowTitle()
    assert "\u202e" not in window.windowTitle()


def test_tooltips_are_plain_text(window: MainWindow, qtbot: QtBot) -> None:
    qtbot.wait(50)
    QToolTip.showText(QPoint(10, 10), "<b>bold</b> <img src='x.png'>", window)
    tips = [w for w in QApplication.topLevelWidgets() if isinstance(w, QLabel) and w.inherits("QTipLabel")]
    assert tips
    assert all(tip.textFormat() == Qt.TextFormat.PlainText for tip in tips)
    QToolTip.hideText()


def test_the_folder_of_others_may_be_closed(tmp_path: Path) -> None:
    from kvplanner.app.opening import classify

    os.mkfifo(tmp_path / "pipe.kvplan.json")
    for name in ("x" * 400, "a\0b", "pipe.kvplan.json"):
        assert classify(tmp_path / name).sentence
