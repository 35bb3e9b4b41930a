"""What a first start says, once; what an update says; and the pages behind both."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from PySide6.QtCore import QEvent, Qt
from PySide6.QtWidgets import QApplication, QWidget
from pytestqt.qtbot import QtBot

import kvplanner
from kvplanner.app import settings as s
from kvplanner.ui.dialogs.help import news_of, page_text
from kvplanner.ui.window.application import Application
from kvplanner.ui.window.commands.greeting import SENTENCES, Tour
from kvplanner.ui.window.window import MainWindow


def tours(window: MainWindow) -> list[Tour]:
    return [tour for tour in window.findChildren(Tour) if tour.isVisible()]


def test_the_tour_comes_once_in_four_sentences(
    application: Application, open_window: Callable[..., MainWindow], qtbot: QtBot
) -> None:
    application.settings.set(s.TOURED, False)
    application.settings.set(s.LAST_VERSION, "")
    window = open_window()
    (tour,) = tours(window)
    assert window.rect().contains(tour.geometry())
    heard = []
    for _ in SENTENCES:
        heard.append(tour.text.text())
        assert tour.text.height() >= tour.text.heightForWidth(tour.text.width())
        qtbot.mouseClick(tour.next, Qt.MouseButton.LeftButton)
    assert tuple(heard) == SENTENCES
    assert len(SENTENCES) == 4
    qtbot.waitUntil(lambda: not tours(window))
    assert not tours(open_window()), "it never comes back"
    window.actions_of_window.by_name["tour"].trigger()
    assert len(tours(window)) == 1, "but for those who ask"


def test_the_tour_stays_in_the_corner(window: MainWindow) -> None:
    window.help.tour()
    (tour,) = tours(window)
    for size in ((1024, 640), (1600, 900)):
        window.resize(*size)
        assert window.rect().contains(tour.geometry())
        assert window.width() - tour.geometry().right() < 40
    assert all(widget.accessibleName() or widget.property("text") for widget in tour.findChildren(QWidget))


def test_nothing_that_opens_covers_the_tour(window: MainWindow, qtbot: QtBot) -> None:
    window.help.tour()
    (tour,) = tours(window)
    dock = QWidget(window)
    dock.setGeometry(tour.geometry())
    dock.show()
    dock.raise_()
    QApplication.postEvent(window, QEvent(QEvent.Type.LayoutRequest))
    middle = tour.geometry().center()
    qtbot.waitUntil(
        lambda: (found := window.childAt(middle)) is tour or (found is not None and tour.isAncestorOf(found))
    )


@pytest.mark.parametrize(("before", "told"), [("0.0.9", True), (kvplanner.__version__, False), ("", False)])
def test_an_update_says_where_it_is_told_what_is_new(
    application: Application, open_window: Callable[..., MainWindow], before: str, told: bool
) -> None:
    application.settings.set(s.LAST_VERSION, before)
    window = open_window()
    texts = [strip.message.text for strip in window.centre.messages.strips]
    assert texts == ([f"kvplanner is now {kvplanner.__version__}"] if told else [])
    assert application.settings.get(s.LAST_VERSION) == kvplanner.__version__
    if told:
        action = window.centre.messages.strips[0].message.action
        assert action is not None
        action[1]()
        assert window.help.viewer is not None
        assert "What is new" in window.help.viewer.text.toPlainText()
        window.help.viewer.close()


def test_what_is_new_is_the_changelog() -> None:
    text = page_text("news", ())
    assert "Semantic" not in text, "that is for those who write it"
    assert text.count("\n### ") >= 1
    assert news_of("nothing") == "nothing"


def test_reduced_motion_leaves_no_trace_of_an_edit(window: MainWindow, application: Application) -> None:
    canvas, document = window.centre.bars.canvas, window.document
    document.set_option("max_num_seqs", 64)
    document.flush()
    assert canvas.view().before is not None
    window.actions_of_window.by_name["reduce_motion"].trigger()
    canvas._end_ghost()
    document.set_option("max_num_seqs", 512)
    document.flush()
    assert canvas.view().before is None
    assert window.status.calm
    assert application.settings.get(s.CALM)
