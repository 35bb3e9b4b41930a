"""Plans as tabs of one window: each keeps what a window has; a tab goes to another window, or out of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QCloseEvent, QKeySequence
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from kvplanner.app import settings as s
from kvplanner.app.start import first_state
from kvplanner.ui.window.application import Application
from kvplanner.ui.window.tabbed import PlanTabs, plan_mime
from kvplanner.ui.window.window import MainWindow

pytestmark = pytest.mark.slow


@pytest.fixture
def tabbed(window: MainWindow, application: Application, qtbot: QtBot) -> Iterator[PlanTabs]:
    """A window of two plans."""
    window.actions_of_window.by_name["plan_tabs"].trigger()
    window.actions_of_window.by_name["new_window"].trigger()
    qtbot.wait(1)
    (host,) = application.tabs.hosts
    yield host
    application.settings.set(s.PLAN_TABS, False)


def test_plans_are_tabs_and_windows_again(tabbed: PlanTabs, application: Application, qtbot: QtBot) -> None:
    first, second = application.windows
    assert tabbed.isVisible()
    assert tabbed.pages == [first, second]
    assert tabbed.currentWidget() is second
    assert not first.isVisible()
    second.document.set_option("max_model_len", 4096)
    second.document.flush()
    assert second.document.undo_count == 1
    tabbed.activateWindow()
    second.centre.bars.canvas.setFocus()
    QTest.keySequence(second.centre.bars.canvas, QKeySequence(QKeySequence.StandardKey.Undo))
    assert second.document.undo_count == 0, "a key belongs to the plan in front, which two menus would not agree on"
    assert all(w.actions_of_window.by_name["plan_tabs"].isChecked() for w in application.windows)
    application.settings.set(s.PLAN_TABS, False)
    assert application.tabs.hosts == []
    assert all(window.isWindow() and window.isVisible() for window in (first, second))
    assert first.menuBar().isVisible()


def test_a_start_with_tabs(application: Application, qtbot: QtBot, qapp: QApplication) -> None:
    application.settings.set(s.PLAN_TABS, True)
    window = application.first_window()
    application.show(window)
    (host,) = application.tabs.hosts
    assert host.isVisible()
    window.fill()
    window.document.reset(first_state())
    window.document.flush()
    assert host.tabText(0).startswith("Llama-3.1-8B-Instruct · ")
    assert window.size() == host.currentWidget().size()
    application.settings.set(s.PLAN_TABS, False)
    assert window.isWindow()


def test_titles_follow_their_plans(tabbed: PlanTabs, application: Application) -> None:
    first, second = application.windows
    assert tabbed.tabText(0) == f"{first.document.title} · 2 × RTX 4090"
    assert tabbed.windowTitle() == second.windowTitle()
    tabbed.setCurrentIndex(0)
    assert tabbed.windowTitle() == first.windowTitle()


def test_a_closed_tab_goes_alone(tabbed: PlanTabs, application: Application, qtbot: QtBot) -> None:
    first, second = application.windows
    tabbed.tabCloseRequested.emit(0)
    assert application.windows == [second]
    assert tabbed.pages == [second]
    assert not first.isVisible()
    assert tabbed.isVisible()
    assert not tabbed.tabBar().isVisible(), "a single plan needs no tabs"


def test_a_tab_becomes_a_window_and_comes_back(tabbed: PlanTabs, application: Application, qtbot: QtBot) -> None:
    first, second = application.windows
    application.tabs.tear_off(second, QPoint(200, 200))
    assert tabbed.pages == [first]
    other = application.tabs.hosts[-1]
    assert other.pages == [second]
    assert other.isVisible()
    application.tabs.dragged = second
    application.tabs.dropped(tabbed, 0)
    application.tabs.dragged = None
    assert tabbed.pages == [second, first]
    assert application.tabs.hosts == [tabbed], "a window without plans is gone"


def test_closing_the_window_of_tabs_ends_all(
    tabbed: PlanTabs, application: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[bool] = []
    monkeypatch.setattr(application.tabs, "_quit", lambda: ended.append(True))
    event = QCloseEvent()
    tabbed.closeEvent(event)
    assert ended == [True]
    assert not event.isAccepted(), "a question about edits may still keep it open"


def test_a_dragged_plan_is_what_another_window_plans(open_window: Callable[..., MainWindow], qtbot: QtBot) -> None:
    one, other = open_window("Qwen3-8B", "RTX 4090"), open_window("Llama-3.1-8B-Instruct", "2xH100")
    one.document.set_option("max_model_len", 12_288)
    one.document.flush()
    mime = plan_mime(one)
    assert mime.text().startswith("vllm serve Qwen/Qwen3-8B")
    other.opening.open_text(mime.text())
    qtbot.waitUntil(lambda: other.document.state.model is not None and "Qwen3-8B" in other.document.state.model.id)
    assert other.document.state.ask.options["max_model_len"] == 12_288
    assert one.centre.verdict.icon.cursor().shape() == Qt.CursorShape.OpenHandCursor
    assert len(QApplication.topLevelWidgets()) >= 2
