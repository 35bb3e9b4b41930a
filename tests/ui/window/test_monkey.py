"""A seeded monkey over every control: no exception, no Qt warning, no stuck job, and no growth once windows are closed.

KVPLANNER_MONKEY_ACTIONS sets how many actions (50,000 for a release), KVPLANNER_MONKEY_SEED where it begins and
KVPLANNER_MONKEY_REPORT a file for the figures. At the end of each round all windows are closed but a fresh one, and
then memory is read. What is read once is no growth: it is read before, and the first round counts as warming up.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import os
import pkgutil
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from PySide6.QtCore import QCoreApplication, QEvent
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QDialog
from pytestqt.qtbot import QtBot

import kvplanner
from kvplanner.app.library import Library
from kvplanner.catalog import models
from kvplanner.engine.registry import names
from kvplanner.ui.window.application import Application
from kvplanner.ui.window.commands.export import Exports
from kvplanner.ui.window.commands.opening import Opening
from kvplanner.ui.window.commands.saving import Saving
from kvplanner.ui.window.tabs import TABS
from kvplanner.ui.window.window import MainWindow
from tests.observe.kit import Stub
from tests.ui.window.kit import opened_options
from tests.ui.window.monkey import LEFT_OUT, MOST_WINDOWS, Monkey, make_files

pytestmark = pytest.mark.slow

ACTIONS: Final = int(os.environ.get("KVPLANNER_MONKEY_ACTIONS", "300"))
SEED: Final = int(os.environ.get("KVPLANNER_MONKEY_SEED", "20"))
ROUND: Final = max(150, min(1000, ACTIONS // 10))
REPORT: Final = os.environ.get("KVPLANNER_MONKEY_REPORT", "")
MIB: Final = 1 << 20
MOST_GROWTH: Final = 20 * MIB


class _Mallinfo(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keep",
        )
    )  # as malloc.h has them


def memory_bytes() -> int:
    """What this process holds now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def in_use() -> str:
    """What C and C++ allocated of it, and what is left once glibc gives free pages back: the rest is fragmented."""
    libc = ctypes.CDLL("libc.so.6")
    libc.mallinfo2.restype = _Mallinfo
    found = libc.mallinfo2()
    libc.malloc_trim(0)
    widgets = len(QApplication.allWidgets())
    used = (found.uordblks + found.hblkhd) / MIB
    kinds = {
        line.split(":")[0]: int(line.split()[1]) / 1024
        for line in Path("/proc/self/status").read_text("utf-8").splitlines()
        if line.startswith("Rss")
    }
    own, files, shared = (f"{kinds[name]:.1f} MiB" for name in ("RssAnon", "RssFile", "RssShmem"))
    return (
        f"{widgets} widgets, {sys.getallocatedblocks():,} blocks of Python's, {used:.1f} MiB allocated by malloc;"
        f" without free pages {own} of its own, {files} of files, {shared} shared"
    )


def say(text: str) -> None:
    """Into the report, where one is wanted."""
    if REPORT:
        with Path(REPORT).open("a", encoding="utf-8") as file:
            file.write(f"{text}\n")


@pytest.fixture
def no_dialogs(monkeypatch: pytest.MonkeyPatch) -> None:
    """File dialogs do not open (they would read the tester's folders); nothing is searched for."""
    for owner, name in ((Opening, "open_file"), (Opening, "open_folder"), (Saving, "save_as"), (Exports, "_ask")):
        monkeypatch.setattr(owner, name, lambda self, kind="": None)
    monkeypatch.setattr(Library, "scan_models", lambda self, failed, folders=(): None)


@pytest.mark.qt_log_ignore("does not support grabbing the keyboard", extend=True)  # menus without a display
def test_a_monkey_finds_nothing(
    no_dialogs: None,
    card: Stub,
    open_window: Callable[..., MainWindow],
    application: Application,
    qtbot: QtBot,
    qtlog: Any,
    tmp_path: Path,
) -> None:
    folder = tmp_path / "dropped"
    folder.mkdir()
    open_window()
    settings = dict(application.settings._values)
    monkey = Monkey(application, SEED, make_files(folder), card)
    monkey.start()
    memory: list[int] = []
    try:
        warm_up(monkey, qtbot)
        as_many_as_there_may_be(monkey, open_window, qtbot)
        for number in range(ACTIONS):
            try:
                monkey.act()
            except Exception as error:
                raise AssertionError(f"after {number} actions, the last of them {monkey.log[-8:]}") from error
            # pytest-qt keeps what Qt says of a test to its end, two thousand messages here: no growth of the program.
            qtlog._records[:] = [record for record in qtlog._records if not record.ignored]
            if (number + 1) % ROUND == 0:
                # The fresh window is the same each time: panels that it would open are no growth.
                application.settings._values.clear()
                application.settings._values.update(settings)
                closed(monkey, open_window, qtbot)
                memory.append(memory_bytes())
                say(
                    f"seed {SEED}: {number + 1} actions, {memory[-1] / MIB:.1f} MiB with the windows closed; {in_use()}"
                )
    finally:
        monkey.stop()
    grown = memory[-1] - memory[0]
    assert grown < MOST_GROWTH, f"{grown >> 20} MiB more with all windows closed: {[m >> 20 for m in memory]}"
    (fresh,) = application.windows
    fresh.document.flush()
    assert fresh.document.plan is not None


def warm_up(monkey: Monkey, qtbot: QtBot) -> None:
    """All code, every tab, every engine with all its options, and every command once: what these read is no growth."""
    application, window = monkey.application, monkey.window
    for module in pkgutil.walk_packages(kvplanner.__path__, "kvplanner."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    for name in ("numpy", "pyqtgraph", "yaml"):
        importlib.import_module(name)
    for entry in models.index():
        models.load(entry.id)
    for engine in names():
        window.document.edit("Choose another engine", engine=engine, version=None, options={})
        opened_options(window)
        for tab in TABS:
            window.centre.show_tab(tab.title)
            QApplication.processEvents()
            qtbot.waitUntil(lambda: not application.jobs.active, timeout=120_000)
    for name, action in window.actions_of_window.by_name.items():
        if name not in LEFT_OUT:
            action.trigger()
            QApplication.processEvents()
            monkey.close_dialogs()


def as_many_as_there_may_be(monkey: Monkey, open_window: Callable[..., MainWindow], qtbot: QtBot) -> None:
    """So many windows at once, with all their tabs: how far the heap reaches with them is no growth."""
    application = monkey.application
    while len(application.windows) <= MOST_WINDOWS:
        monkey.window = open_window()
        monkey.window.view.gpu_panel(True)
        for tab in TABS:
            monkey.window.centre.show_tab(tab.title)
            QApplication.processEvents()
            qtbot.waitUntil(lambda: not application.jobs.active, timeout=120_000)
    closed(monkey, open_window, qtbot)


def closed(monkey: Monkey, open_window: Callable[..., MainWindow], qtbot: QtBot) -> None:
    """All windows closed but a fresh one; nothing of the others is left."""
    application = monkey.application

    def calm() -> None:
        qtbot.waitUntil(lambda: not application.jobs.active, timeout=120_000)

    monkey.stop()
    QApplication.clipboard().clear()  # a picture of a plan takes 4 MB, and is the desktop's
    calm()
    old = [weakref.ref(window) for window in application.windows]
    while len(application.windows) > 1:
        monkey.shut(application.windows[0])
        QTest.qWait(1)  # its parts are gone, and its memory given back
    monkey.window = open_window()
    monkey.shut(application.windows[0])
    for _ in range(3):
        calm()
        QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
        QApplication.processEvents()
        gc.collect()
    assert application.windows == [monkey.window]
    assert not [w for w in QApplication.topLevelWidgets() if isinstance(w, QDialog) and w.isVisible()]
    left = [window for ref in old if (window := ref()) is not None]
    assert not left, [gc.get_referrers(window) for window in left]
    monkey.start()
