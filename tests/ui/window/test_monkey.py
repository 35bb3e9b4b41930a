"""A seeded monkey over every control: no exception, no Qt warning, no stuck job, no growth.

KVPLANNER_MONKEY_ACTIONS sets how many actions (10,000 for a release), KVPLANNER_MONKEY_SEED where it begins. What is
read once is no growth: memory is held to be flat over the last third, by the least of each of its two halves.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from PySide6.QtCore import QCoreApplication, QEvent, QPoint, Qt, QTimer
from PySide6.QtTest import QTest
from PySide6.QtWidgets import (
    QAbstractButton,
    QAbstractItemView,
    QApplication,
    QComboBox,
    QDialog,
    QLineEdit,
    QSlider,
    QTabBar,
    QWidget,
)
from pytestqt.qtbot import QtBot

from kvplanner.app.library import Library
from kvplanner.ui.window.application import Application
from kvplanner.ui.window.commands.export import Exports
from kvplanner.ui.window.commands.opening import Opening
from kvplanner.ui.window.commands.saving import Saving
from kvplanner.ui.window.tabs import TABS
from kvplanner.ui.window.window import MainWindow

pytestmark = pytest.mark.slow

ACTIONS = int(os.environ.get("KVPLANNER_MONKEY_ACTIONS", "450"))
SEED = int(os.environ.get("KVPLANNER_MONKEY_SEED", "20"))
MOST_GROWTH = 12 << 20
# Leaves the program, the process or the session; the file dialogs have tests of their own.
LEFT_OUT = {"quit", "close", "print", "plan_tabs", "full_screen", "open_data_folder", "gpu_panel", "new_window"}
TEXTS = (
    "", "2", "0", "-1", "32k", "32K", "0.5", "0.92", "1e9", "nonsense", "4090", "2x4090", "qwen3 8b", "48GB", "20GiB",
    "hub:", "/nowhere", "٣", "9" * 40, "🙂", "'; --", "8 h100", "fp8",
)  # fmt: skip
KEYS = (
    Qt.Key.Key_Tab, Qt.Key.Key_Backtab, Qt.Key.Key_Return, Qt.Key.Key_Escape, Qt.Key.Key_Up, Qt.Key.Key_Down,
    Qt.Key.Key_Left, Qt.Key.Key_Right, Qt.Key.Key_PageDown, Qt.Key.Key_Home, Qt.Key.Key_End, Qt.Key.Key_Space,
    Qt.Key.Key_Delete,
)  # fmt: skip


def memory_bytes() -> int:
    """What this process holds now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Monkey:
    """Acts on whatever a person could reach."""

    def __init__(self, window: MainWindow, seed: int) -> None:
        self.window = window
        self.random = random.Random(seed)
        self.log: list[str] = []

    def reachable(self, kind: type[QWidget] | tuple[type[QWidget], ...]) -> list[QWidget]:
        found = [w for w in self.window.findChildren(QWidget) if isinstance(w, kind)]
        return [w for w in found if w.isVisible() and w.isEnabled()]

    def act(self) -> None:
        acts: tuple[tuple[int, Callable[[], str]], ...] = (
            (6, self.key), (4, self.type_text), (3, self.press_button), (3, self.pick), (4, self.slide),
            (3, self.command), (2, self.choose_row), (2, self.click_anywhere), (2, self.undo_some), (1, self.resize),
        )  # fmt: skip
        act = self.random.choices([a for _, a in acts], [weight for weight, _ in acts])[0]
        self.log.append(act())
        QCoreApplication.processEvents()
        self.close_dialogs()

    def key(self) -> str:
        target = QApplication.focusWidget() or self.window
        key = self.random.choice(KEYS)
        QTest.keyClick(target, key)
        return f"key {key.name} on {type(target).__name__}"

    def type_text(self) -> str:
        edits = self.reachable(QLineEdit)
        text = self.random.choice(TEXTS)
        if not edits:
            return "no field"
        edit = self.random.choice(edits)
        assert isinstance(edit, QLineEdit)
        edit.setFocus()
        edit.setText(text)
        QTest.keyClick(edit, Qt.Key.Key_Return)
        return f"type {text!r} into {edit.accessibleName()}"

    def press_button(self) -> str:
        buttons = [b for b in self.reachable(QAbstractButton) if not getattr(b, "menu", lambda: None)()]
        button = self.random.choice(buttons)
        assert isinstance(button, QAbstractButton)
        name = button.text() or button.accessibleName()
        QTest.mouseClick(button, Qt.MouseButton.LeftButton)
        return f"press {name}"

    def pick(self) -> str:
        boxes = self.reachable(QComboBox)
        if not boxes:  # the form may be hidden
            return "no list"
        box = self.random.choice(boxes)
        assert isinstance(box, QComboBox)
        index = self.random.randrange(box.count()) if box.count() else -1
        if index >= 0:
            box.setCurrentIndex(index)
            box.activated.emit(index)
        return f"pick {index} of {box.accessibleName()}"

    def slide(self) -> str:
        sliders = self.reachable(QSlider)
        if not sliders:
            return "no slider"
        slider = self.random.choice(sliders)
        where = QPoint(self.random.randrange(slider.width()), slider.height() // 2)
        QTest.mousePress(slider, Qt.MouseButton.LeftButton, pos=where)
        for _ in range(self.random.randrange(4)):
            QTest.mouseMove(slider, QPoint(self.random.randrange(slider.width()), 3))
        QTest.mouseRelease(slider, Qt.MouseButton.LeftButton, pos=where)
        return "slide"

    def command(self) -> str:
        actions = self.window.actions_of_window.by_name
        names = [n for n, a in actions.items() if a.isEnabled() and n not in LEFT_OUT]
        name = self.random.choice(names)
        actions[name].trigger()
        return f"command {name}"

    def choose_row(self) -> str:
        pickers = self.window.pickers
        if self.random.random() < 0.5:
            pickers.open_models(self.random.choice(("", "llama", "qwen3", "fp8")))
        else:
            pickers.open_gpus(self.random.choice(("", "2", "4090", "8 h100", "48GB", "mi300")))
        target = QApplication.focusWidget()
        assert target is not None
        for _ in range(self.random.randrange(6)):
            QTest.keyClick(target, Qt.Key.Key_Down)
        QTest.keyClick(target, Qt.Key.Key_Return)
        return "choose a row"

    def click_anywhere(self) -> str:
        views = [*self.reachable((QAbstractItemView, QTabBar)), self.window.centre.bars.canvas]
        view = self.random.choice(views)
        ground = view.viewport() if isinstance(view, QAbstractItemView) else view
        if ground.width() > 1 and ground.height() > 1:
            where = QPoint(self.random.randrange(ground.width()), self.random.randrange(ground.height()))
            QTest.mouseClick(ground, Qt.MouseButton.LeftButton, pos=where)
        return f"click in {type(view).__name__}"

    def undo_some(self) -> str:
        for _ in range(self.random.randrange(1, 5)):
            (self.window.document.undo if self.random.random() < 0.7 else self.window.document.redo)()
        return "undo or redo"

    def resize(self) -> str:
        size = self.random.choice(((900, 560), (1024, 640), (1280, 800), (1600, 1000)))
        self.window.resize(*size)
        return f"resize {size}"

    def close_dialogs(self) -> None:
        popup = QApplication.activePopupWidget()
        if popup is not None:
            popup.close()
        for dialog in [w for w in QApplication.topLevelWidgets() if isinstance(w, QDialog) and w.isVisible()]:
            dialog.reject()
        if QApplication.activeWindow() is not self.window:
            self.window.activateWindow()
            QCoreApplication.processEvents()


@pytest.fixture
def monkey_window(open_window: Callable[..., MainWindow], monkeypatch: pytest.MonkeyPatch) -> MainWindow:
    """File dialogs do not open (they would read the tester's folders); nothing is searched for."""
    for owner, name in ((Opening, "open_file"), (Opening, "open_folder"), (Saving, "save_as"), (Exports, "_ask")):
        monkeypatch.setattr(owner, name, lambda self, kind="": None)
    monkeypatch.setattr(Library, "scan_models", lambda self, failed, folders=(): None)
    return open_window()


@pytest.mark.qt_log_ignore("does not support grabbing the keyboard", extend=True)  # menus without a display
def test_a_monkey_finds_nothing(monkey_window: MainWindow, application: Application, qtbot: QtBot) -> None:
    window = monkey_window
    monkey = Monkey(window, SEED)
    closer = QTimer(window)  # ends with it, also where an action fails
    closer.setInterval(20)
    closer.timeout.connect(monkey.close_dialogs)  # a menu opened by a key waits in a loop of its own
    closer.start()
    for tab in TABS:  # what is read once is no growth
        window.centre.show_tab(tab.title)
        qtbot.wait(60)
        qtbot.waitUntil(lambda: not application.jobs.active, timeout=20_000)
    window.centre.show_tab(TABS[0].title)
    memory: list[int] = []
    for number in range(ACTIONS):
        try:
            monkey.act()
        except Exception as error:
            raise AssertionError(f"after {number} actions, the last of them {monkey.log[-8:]}") from error
        memory.append(memory_bytes())
        if number % 100 == 0:
            QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
    closer.stop()
    qtbot.waitUntil(lambda: not application.jobs.active, timeout=20_000)
    QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
    third, sixth = memory[-ACTIONS // 3 :], ACTIONS // 6
    grown = min(third[sixth:]) - min(third[:sixth])
    assert grown < MOST_GROWTH, f"{grown >> 20} MiB between two halves of {len(third)} actions"
    assert window.isVisible()
    window.document.flush()
    assert window.document.plan is not None
