"""Whatever is dropped on a window or pasted into it: one clear line, no network, bounded time, and nothing left open.

What takes drops is asked of the widgets themselves, so that a target without a case here is found.
"""

from __future__ import annotations

import resource
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
from PySide6.QtCore import QCoreApplication, QMimeData, QPoint, Qt, QUrl
from PySide6.QtGui import QDragEnterEvent, QDragMoveEvent, QDropEvent, QGuiApplication
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QDialog, QLineEdit, QPlainTextEdit, QTextEdit, QWidget
from pytestqt.qtbot import QtBot

from kvplanner.app import settings as s
from kvplanner.app.messages import Message
from kvplanner.ui.dialogs.data import DataDialog
from kvplanner.ui.window.application import Application
from kvplanner.ui.window.commands.opening import Opening
from kvplanner.ui.window.tabs import TABS
from kvplanner.ui.window.window import MainWindow
from tests.cli.hostile_files import KINDS, ODD, contents, no_files, texts
from tests.cli.kit import OBEYED
from tests.patience import processor_seconds
from tests.ui.window.kit import opened_options

pytestmark = pytest.mark.slow

# A second for the input, as in the terminal; a window also plans what came of it, and finds ways to serve more.
MOST_S: Final = 3.0
MOST_KIB: Final = 150 << 10


class Watched:
    """A window, and what it says and does about one thing that is put into it."""

    def __init__(self, window: MainWindow, application: Application, qtbot: QtBot) -> None:
        self.window, self._application, self._qtbot = window, application, qtbot
        self.said: list[Message] = []
        window.messages.posted.connect(self.said.append)
        self._before = window.document.state

    def put(self, what: object, put: Callable[[], object]) -> list[Message]:
        """Put something in; it ends soon, in one line or in a plan that undo takes back."""
        self.said.clear()
        with processor_seconds(MOST_S, what):
            put()
            QApplication.processEvents()
            self._qtbot.waitUntil(lambda: not self._application.jobs.active, timeout=10_000)
            QApplication.processEvents()
        self._close_packs(what)
        assert len(self.said) <= 1, (what, self.said)
        for message in self.said:
            assert message.text.strip(), what
            assert len(message.text.splitlines()) == 1, (what, message.text)
            assert len(message.text) < 2000, (what, message.text)
            assert not [c for c in OBEYED if c in message.text], (what, message.text)
        open_now = [w for w in QApplication.topLevelWidgets() if w.isVisible() and isinstance(w, QDialog)]
        assert not open_now, (what, open_now)
        assert QApplication.activeModalWidget() is None, what
        if self.window.document.state is not self._before:
            self.window.document.reset(self._before)
            self.window.document.flush()
        return list(self.said)

    def _close_packs(self, what: object) -> None:
        """A pack is refused in the list of packs."""
        for dialog in self.window.findChildren(DataDialog):
            if dialog.isVisible():
                assert dialog.result_text.text().strip(), what
                self.said.append(Message("error", dialog.result_text.text()))
                dialog.reject()

    def drop(self, data: QMimeData) -> bool:
        """Over the window and down, as the system does; False where it is refused and so cannot be let go."""
        at, copy = QPoint(300, 200), Qt.DropAction.CopyAction
        left, no = Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier
        enter = QDragEnterEvent(at, copy, data, left, no)
        QCoreApplication.sendEvent(self.window, enter)
        assert self.window.drops.sheet is None or len(self.window.drops.sheet.text()) < 2000
        move = QDragMoveEvent(at, copy, data, left, no)
        QCoreApplication.sendEvent(self.window, move)
        # Some systems let go without having asked, so that is tried of what is refused as well.
        QCoreApplication.sendEvent(self.window, QDropEvent(at, copy, data, left, no))
        return enter.isAccepted() and move.isAccepted()


@pytest.fixture
def watched(
    window: MainWindow, application: Application, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Watched]:
    """A window that goes nowhere on the network and grows by no more than any file may cost."""
    asked: list[object] = []

    def connect(_: socket.socket, address: object) -> None:
        asked.append(address)
        raise OSError(101, "Network is unreachable")

    monkeypatch.setattr(socket.socket, "connect", connect)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield Watched(window, application, qtbot)
    assert asked == []
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MOST_KIB


def of_file(path: Path) -> QMimeData:
    """A file on the mouse."""
    data = QMimeData()
    data.setUrls([QUrl.fromLocalFile(str(path))])
    return data


def of_text(text: str) -> QMimeData:
    """A text on the mouse."""
    data = QMimeData()
    data.setText(text)
    return data


def test_nothing_else_takes_drops(window: MainWindow, qtbot: QtBot) -> None:
    for tab in TABS:
        window.centre.show_tab(tab.title)
    opened_options(window)
    window.pickers.open_models("")
    window.pickers.open_gpus("")
    window.view.gpu_panel(True)
    taking = {w for w in QApplication.allWidgets() if w.acceptDrops() and not isinstance(w, QLineEdit)}
    assert taking <= {window, *_read_only(taking)}, taking
    assert window in taking


def _read_only(found: set[QWidget]) -> set[QWidget]:
    """Texts that are shown take nothing, whatever they say; neither do their viewports."""
    shown = {w for w in found if isinstance(w, QTextEdit | QPlainTextEdit) and w.isReadOnly()}
    return shown | {w for w in found if w.parentWidget() in shown}


@pytest.mark.parametrize("kind", KINDS)
def test_every_wrong_file_that_is_dropped_ends_in_one_line(watched: Watched, tmp_path: Path, kind: str) -> None:
    path = tmp_path / kind
    answered = 0
    for number, (name, data) in enumerate(contents()):
        if number % len(KINDS) != KINDS.index(kind):
            continue
        path.write_bytes(data)
        answered += bool(watched.put((kind, name), lambda: watched.drop(of_file(path))))
    assert answered > 5


def test_what_is_no_file_is_dropped_and_ends_in_one_line(watched: Watched, tmp_path: Path) -> None:
    for ending in (".kvplan.json", ".log", ".gguf", ".kvpack", ".yaml", ""):
        folder = tmp_path / f"of{ending}"
        folder.mkdir()
        for name, path in no_files(folder, ending):
            if "\0" not in path:  # no system puts such a path on the mouse
                watched.put((ending, name), lambda path=path: watched.drop(of_file(Path(path))))  # type: ignore[misc]  # keeps its loop's value
    assert watched.window.services.settings.get(s.RECENT_FILES) == []


def pasted() -> Iterator[tuple[str, str]]:
    """Texts that no one should paste."""
    yield from texts()
    for value in ODD:
        yield value[:20], value
    for name, data in contents():
        if len(data) > 2:
            yield name, data.decode("utf-8", "replace")
    yield "images", "<img src=/x.png>\n" * 40
    yield "ten million", "x" * 10_000_000
    yield "a long log", "INFO 01-01 00:00:00 [a.py:1] Model loading took 9 GiB\n" * 20_000


WAYS: Final = ("paste a command", "paste a log", "drop")


@pytest.mark.parametrize("way", WAYS)
def test_every_wrong_text_ends_in_one_line(watched: Watched, way: str) -> None:
    window = watched.window
    for number, (name, text) in enumerate(pasted()):
        if number % len(WAYS) != WAYS.index(way):
            continue
        QGuiApplication.clipboard().setText(text)
        puts: dict[str, Callable[[], object]] = {
            "paste a command": window.opening.paste_command,
            "paste a log": window.opening.logs.paste,
            "drop": lambda text=text: watched.drop(of_text(text)),  # type: ignore[misc]  # keeps its loop's value
        }
        watched.put((way, name), puts[way])
    QGuiApplication.clipboard().clear()


def test_every_field_takes_any_paste(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each visible input gets some of them, each chooser's search an eighth."""
    for asks in ("open_file", "open_folder"):  # rows of the choosers, and the only ones where nothing else is found
        monkeypatch.setattr(Opening, asks, lambda self: None)
    window = watched.window
    opened_options(window)
    wrong = [text for _, text in pasted()]

    def into(edit: QLineEdit, text: str) -> None:
        edit.setFocus()
        edit.selectAll()
        QGuiApplication.clipboard().setText(text)
        QTest.keyClick(edit, Qt.Key.Key_V, Qt.KeyboardModifier.ControlModifier)
        QTest.keyClick(edit, Qt.Key.Key_Return)

    edits = [edit for edit in window.findChildren(QLineEdit) if edit.isVisible() and edit.isEnabled()]
    assert len(edits) > 20
    for number in range(len(edits)):
        there = [edit for edit in window.findChildren(QLineEdit) if edit.isVisible() and edit.isEnabled()]
        edit, text = there[number % len(there)], wrong[number * 7 % len(wrong)]
        watched.put((edit.accessibleName(), text[:40]), lambda edit=edit, text=text: into(edit, text))  # type: ignore[misc]  # keeps its loop's value
    for opens in (window.pickers.open_models, window.pickers.open_gpus):
        for text in wrong[::8]:
            opens("")
            search = QApplication.focusWidget()
            assert isinstance(search, QLineEdit)
            watched.put((opens.__name__, text[:40]), lambda search=search, text=text: into(search, text))  # type: ignore[misc]  # keeps its loop's value
            window.pickers.close_choosers()
    QGuiApplication.clipboard().clear()
