"""Remedies in the window: found beside the plan, told in buttons and a page, applied in one step."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from PySide6.QtCore import QUrl
from PySide6.QtWidgets import QPushButton
from pytestqt.qtbot import QtBot

from kvplanner.report.remedies import button, title, whole_button
from kvplanner.ui.remedies.finder import RemedyFinder
from kvplanner.ui.remedies.page import UNKNOWN, RemedyPage
from kvplanner.ui.window.commands.solving import Solving
from kvplanner.ui.window.window import MainWindow


def finder_of(window: MainWindow) -> RemedyFinder:
    solving = window.findChild(Solving)
    assert solving is not None
    return solving.finder


def searched(window: MainWindow, qtbot: QtBot) -> RemedyFinder:
    finder = finder_of(window)
    qtbot.waitUntil(lambda: finder.remedies is not None, timeout=8000)
    return finder


def buttons(window: MainWindow) -> list[QPushButton]:
    return list(window.centre.verdict._offered)


@pytest.fixture
def failing(open_window: Callable[..., MainWindow]) -> MainWindow:
    """A window whose plan lacks room for one request."""
    return open_window(gpu="RTX 4090")


def test_a_plan_that_fails_has_its_first_ways_as_buttons(failing: MainWindow, qtbot: QtBot) -> None:
    finder = searched(failing, qtbot)
    assert finder.remedies
    sure = [remedy for remedy in finder.remedies if remedy.sure][:3]
    assert finder.plan is not None
    name = finder.plan.request.model.id
    shown = [offered.text().removesuffix("…") for offered in buttons(failing)]
    for text, remedy in zip(shown, sure, strict=True):
        assert any(told.startswith(text) for told in (whole_button(remedy, name), button(remedy, name, sure)))
    assert len(set(shown)) == len(shown)
    shorter = next(place for place, remedy in enumerate(sure) if remedy.names == ("context",))
    assert "requests may be no longer than" in buttons(failing)[shorter].toolTip()


@pytest.mark.slow
def test_apply_gives_the_promised_plan_in_one_step(failing: MainWindow, qtbot: QtBot) -> None:
    document = failing.document
    finder = searched(failing, qtbot)
    assert finder.remedies
    for place in range(len(finder.remedies)):
        before, steps = document.state, document.undo_count
        found = searched(failing, qtbot).remedies
        assert found
        remedy = found[place]
        finder.apply(remedy)
        document.flush()
        assert document.error is None
        assert document.plan is not None
        assert document.plan.verdict == remedy.plan.verdict
        assert document.plan.limits == remedy.plan.limits
        assert document.plan.kv_cache == remedy.plan.kv_cache
        assert document.undo_count == steps + 1
        document.undo()
        document.flush()
        assert document.state == before


def test_a_plan_that_fits_has_no_buttons_and_its_page_tells_how_to_serve_more(window: MainWindow, qtbot: QtBot) -> None:
    finder = searched(window, qtbot)
    assert buttons(window) == []
    assert finder.remedies
    window.centre.below.show_tab("Ways")
    page = window.centre.below.page("ways")
    assert isinstance(page, RemedyPage)
    text = page.text.toPlainText()
    assert "To serve more, or with less" in text
    assert title(finder.remedies[0]) in text
    page.text.anchorClicked.emit(QUrl("#0"))
    window.document.flush()
    assert window.document.plan is not None
    assert window.document.undo_count == 1


def test_what_was_found_for_another_plan_is_not_applied(failing: MainWindow, qtbot: QtBot) -> None:
    finder = searched(failing, qtbot)
    assert finder.remedies
    old = finder.remedies[0]
    failing.document.set_option("max_num_seqs", 99)
    finder.apply(old)
    failing.document.flush()
    assert failing.document.state.ask.options == {"max_num_seqs": 99}


def test_buttons_stay_until_new_ones_are_known_and_go_once_the_plan_fits(failing: MainWindow, qtbot: QtBot) -> None:
    searched(failing, qtbot)
    assert buttons(failing)
    failing.document.set_option("max_num_seqs", 128)
    failing.document.flush()
    assert buttons(failing)  # nothing jumps while a slider moves
    failing.document.set_option("max_model_len", 4096)
    failing.document.flush()
    assert buttons(failing) == []


def test_a_refused_setting_takes_the_place_of_the_ways(failing: MainWindow, qtbot: QtBot) -> None:
    searched(failing, qtbot)
    failing.document.set_option("max_model_len", 10**9)
    failing.document.flush()
    assert finder_of(failing).remedies is None
    assert any("eset" in button.text() for button in buttons(failing))


def test_a_search_is_of_one_state_only(failing: MainWindow, qtbot: QtBot) -> None:
    """A pause may end between an edit and its plan; the old plan with the new settings was searched, and raised."""
    finder = searched(failing, qtbot)
    failing.document.edit("Another release", ask=failing.document.state.ask._replace(version="nonsense"))
    finder._start()
    assert finder.plan is None
    assert failing.document.error is not None
    qtbot.waitUntil(lambda: not failing.services.jobs.active, timeout=8000)
    assert finder.remedies is None


def test_the_page_lists_the_ways_back_from_a_refusal(failing: MainWindow, qtbot: QtBot) -> None:
    """It said that ways were looked for, and nothing looked for them."""
    failing.centre.show_tab("Ways")
    page = failing.centre.below.page("ways")
    assert isinstance(page, RemedyPage)
    searched(failing, qtbot)
    failing.document.set_option("max_model_len", 10**9)
    failing.document.flush()
    qtbot.waitUntil(lambda: not failing.services.jobs.active)
    told = page.text.toPlainText()
    assert "Looking" not in told
    assert "No plan: " in told
    for offered in buttons(failing):
        assert offered.text() in told
    page._clicked(QUrl("#0"))
    failing.document.flush()
    assert failing.document.error is None
    assert "No plan" not in page.text.toPlainText()


def test_the_page_says_that_no_ways_are_sought_where_nothing_can_be_told(
    open_window: Callable[..., MainWindow], qtbot: QtBot
) -> None:
    window = open_window(gpu="MI300X")
    window.centre.show_tab("Ways")
    page = window.centre.below.page("ways")
    assert isinstance(page, RemedyPage)
    assert page.text.toPlainText() == UNKNOWN
