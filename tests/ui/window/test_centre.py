"""The views in their window: one round of Tab, cards as high as their content, problems and stale plans."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QFontDatabase
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QWidget
from pytestqt.qtbot import QtBot

from kvplanner.app.start import start_state
from kvplanner.ui.bars import canvas
from kvplanner.ui.bars.shapes import COMFORT, THICK
from kvplanner.ui.theme.ink import tokens_of
from kvplanner.ui.theme.palette import LIGHT, paled
from kvplanner.ui.window.application import Application
from kvplanner.ui.window.centre import GAP, NO_PLAN
from kvplanner.ui.window.window import MainWindow
from tests.ui.window.kit import chart, explanation, words

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("key", [Qt.Key.Key_Tab, Qt.Key.Key_Backtab])
def test_tab_comes_round_through_every_part(window: MainWindow, key: Qt.Key) -> None:
    window.activateWindow()
    start = window.panel.model.button
    start.setFocus()
    seen: list[QWidget] = []
    for _ in range(120):
        focus = QApplication.focusWidget()
        assert focus is not None
        QTest.keyClick(focus, key)
        focus = QApplication.focusWidget()
        assert focus is not None
        seen.append(focus)
        if focus is start:
            break
    assert seen[-1] is start, "Tab never comes back"
    centre = window.centre
    parts = (
        centre.export_button, centre.copy_button, centre.bars.canvas, centre.below.breakdown.table,
        explanation(centre).text, explanation(centre).copy,
    )  # fmt: skip
    assert set(parts) <= set(seen)


def _settled(window: MainWindow, qtbot: QtBot, size: tuple[int, int]) -> None:
    """Gives the window a size, and waits until nothing in it moves any more, however busy the machine is."""
    window.resize(*size)
    qtbot.wait(150)
    seen: list[object] = []
    while len(seen) < 5 or len(set(map(repr, seen[-5:]))) > 1:
        qtbot.wait(30)
        bar, ground = window.centre._scroll.verticalScrollBar(), window.centre._scroll.widget()
        seen.append((bar.maximum(), ground.size() if ground else None, window.centre._bars_card.geometry()))
        assert len(seen) < 200, "the window never comes to rest"


@pytest.mark.parametrize("size", [(1280, 800), (1600, 1000), (2200, 1300)])
def test_cards_end_with_their_content(window: MainWindow, qtbot: QtBot, size: tuple[int, int]) -> None:
    _settled(window, qtbot, size)
    centre = window.centre
    table = centre.below.breakdown.table
    assert table.verticalScrollBar().maximum() == 0
    rows = table.rowViewportPosition(table.model().rowCount() - 1) + table.rowHeight(table.model().rowCount() - 1)
    assert 0 <= table.viewport().height() - rows <= 24
    assert not table.isColumnHidden(2)
    assert not table.isColumnHidden(4)
    assert centre._scroll.verticalScrollBar().maximum() == 0
    assert centre.below.charted or explanation(centre).height() <= max(
        explanation(centre).natural_height() + 12, table.height() + 40
    )


def test_a_tall_window_is_put_to_use(window: MainWindow, qtbot: QtBot) -> None:
    centre = window.centre
    assert centre.show_tab("startup")
    heights: dict[int, tuple[float, int]] = {}
    for size in ((1280, 800), (2560, 1440), (1280, 800)):
        _settled(window, qtbot, size)
        layout = centre.bars.canvas.arranged()
        assert layout is not None
        assert centre.bars.verticalScrollBar().maximum() == 0
        assert centre._scroll.verticalScrollBar().maximum() == 0
        told = (layout.rows[0].frame.h, chart(centre).height())
        assert heights.setdefault(size[0], told) == told
    assert heights[1280][0] == COMFORT.bar
    assert heights[2560][0] == THICK.bar
    assert heights[2560][1] >= 500


@pytest.mark.parametrize("size", [(1280, 800), (1920, 1080), (2560, 1440), (3840, 2160)])
def test_nothing_stays_empty_below_the_details(window: MainWindow, qtbot: QtBot, size: tuple[int, int]) -> None:
    _settled(window, qtbot, size)
    centre, details = window.centre, window.centre.below
    lowest = details.chart_card if details.charted else details.tabs_card
    viewport = centre._scroll.viewport()
    bottom = lowest.mapTo(viewport, lowest.rect().bottomLeft()).y()
    assert viewport.height() - bottom <= 16
    assert details.charted == (size[1] > 900)
    assert centre.show_tab("Start-up")
    qtbot.wait(60)
    assert chart(centre).isVisible()


@pytest.mark.parametrize("model", ["Llama-3.1-8B-Instruct", "Qwen3-32B"])
def test_in_a_low_window_the_verdict_takes_less_than_a_fifth(
    open_window: Callable[..., MainWindow], qtbot: QtBot, model: str
) -> None:
    window = open_window(model, "2xRTX 4090", load="8@4000+1000", flags=("--kv-cache-dtype", "fp8"))
    _settled(window, qtbot, (1024, 640))
    assert window.centre.verdict.height() < window.height() / 5


def test_a_window_fits_a_small_screen_at_150_percent(window: MainWindow, qtbot: QtBot) -> None:
    window.resize(10, 10)
    qtbot.wait(60)
    assert window.width() * 1.5 <= 1024
    assert window.height() * 1.5 <= 640
    assert not window.side.open
    assert window.side.rail.isVisible()
    window.side.rail.click()
    assert window.panel.isVisible()
    assert window.minimumSizeHint().width() * 1.5 <= 1024
    window.resize(1280, 800)
    qtbot.wait(20)
    assert window.side.open


def test_the_setup_can_be_widened_and_stays_so(window: MainWindow, open_window: Callable[..., MainWindow]) -> None:
    before = window.panel.width()
    window.side.grip.setFocus()
    for _ in range(3):
        QTest.keyClick(window.side.grip, Qt.Key.Key_Right)
    assert window.panel.width() == before + 60
    assert open_window().panel.width() == before + 60
    QTest.mouseDClick(window.side.grip, Qt.MouseButton.LeftButton)
    assert window.panel.width() == before


@pytest.mark.parametrize("gpu", ["1xRTX 4090", "H100"])
def test_no_hole_opens_between_bars_and_details(application: Application, qtbot: QtBot, gpu: str) -> None:
    window = application.new_window()
    window.resize(2560, 1440)
    window.show()
    window.fill()  # nothing is planned yet
    qtbot.wait(20)
    window.document.reset(start_state(words(model="Llama-3.1-8B-Instruct", gpu=gpu), lambda: None))
    window.document.flush()
    centre = window.centre
    for _ in range(60):
        QApplication.processEvents()
        time.sleep(0.002)
        assert centre.below.splitter.y() - centre._bars_card.geometry().bottom() <= GAP + 1
    assert explanation(centre).text.verticalScrollBar().maximum() == 0


def test_a_narrow_window_stacks_without_inner_scroll_bars(window: MainWindow, qtbot: QtBot) -> None:
    _settled(window, qtbot, (1024, 640))
    centre = window.centre
    assert centre.below.splitter.orientation() == Qt.Orientation.Vertical
    table = centre.below.breakdown.table
    assert table.verticalScrollBar().maximum() == 0
    assert not table.isColumnHidden(4)
    assert explanation(centre).text.verticalScrollBar().maximum() == 0
    qtbot.waitUntil(lambda: centre._scroll.verticalScrollBar().maximum() > 0)  # the page scrolls instead
    window.view.show_startup()
    qtbot.wait(50)
    bottom = chart(centre).mapTo(centre._scroll.viewport(), chart(centre).rect().bottomLeft()).y()
    assert bottom <= centre._scroll.viewport().height()
    _settled(window, qtbot, (1280, 800))
    assert centre.below.splitter.orientation() == Qt.Orientation.Horizontal


@pytest.mark.parametrize("tab", ["explain", "startup"])
def test_in_a_low_window_the_ground_scrolls_to_the_last_row(
    open_window: Callable[..., MainWindow], qtbot: QtBot, tab: str
) -> None:
    window = open_window("Llama-3.1-8B-Instruct", "1xRTX 4090")  # fails: the verdict is high
    centre = window.centre
    assert centre.show_tab(tab)
    _settled(window, qtbot, (1280, 560))
    assert centre.below.splitter.orientation() == Qt.Orientation.Horizontal
    ground, table = centre._scroll.widget(), centre.below.breakdown.table
    current = centre.below.tabs.currentWidget()
    assert ground is not None
    assert current is not None
    rows = table.model().rowCount()
    assert table.verticalScrollBar().maximum() == 0
    assert table.rowViewportPosition(rows - 1) + table.rowHeight(rows - 1) <= table.viewport().height()
    assert centre._scroll.verticalScrollBar().maximum() == ground.height() - centre._scroll.viewport().height() > 0
    for part in (table, current):
        assert part.mapTo(ground, part.rect().bottomLeft()).y() < ground.height()
        assert part.mapTo(centre.below.splitter, part.rect().bottomLeft()).y() < centre.below.splitter.height()
    assert current is not chart(centre) or chart(centre).height() >= 150


def test_an_opened_group_of_four_does_not_scroll(open_window: Callable[..., MainWindow], qtbot: QtBot) -> None:
    window = open_window("Llama-3.3-70B-Instruct", "4xH100")
    bars = window.centre.bars
    qtbot.wait(50)
    bars.canvas.set_opened(0, opened=True)
    qtbot.wait(50)
    layout = bars.canvas.arranged()
    assert layout is not None
    assert len(layout.rows) == 4
    assert bars.verticalScrollBar().maximum() == 0
    assert bars.height() - layout.height <= 8  # no empty ground under the axis


def test_the_failing_check_selects_what_is_in_the_way(open_window: Callable[..., MainWindow]) -> None:
    window = open_window("Llama-3.1-8B-Instruct", "1xRTX 4090", free=("20GiB",))
    plan = window.document.plan
    assert plan is not None
    assert plan.stage == "free_memory_check"
    assert window.centre.kind == "other"
    assert window.centre.bars.canvas.readout().startswith("GPU 0 · Other programs 3.52 GiB")


def test_the_engines_words_look_like_a_terminals_from_the_first_frame(open_window: Callable[..., MainWindow]) -> None:
    window = open_window("Llama-3.1-8B-Instruct", "1xRTX 4090")
    message, first = window.centre.verdict.message, window.centre.verdict.height()
    fixed = QFontDatabase.systemFont(QFontDatabase.SystemFont.FixedFont).family()
    for _ in range(2):
        assert message.isVisible()
        assert message.font().family() == fixed
        assert message.font().pointSizeF() < window.font().pointSizeF()
        window.view.toggle_unit()
    assert window.centre.verdict.height() == first


def test_a_problem_and_its_remedy_are_said_once(window: MainWindow, qtbot: QtBot) -> None:
    centre = window.centre
    plan = window.document.plan
    centre.set_problem("the tensors of this model are not known", "Open the model's folder")
    qtbot.waitUntil(lambda: explanation(centre).text.toPlainText() == NO_PLAN)
    assert "tensors" in centre.verdict.headline.text()
    assert "Open the model's folder" in centre.verdict.details.text()
    assert centre.bars.canvas._empty == NO_PLAN
    assert not centre.below.charted, "an empty chart says nothing"
    qtbot.waitUntil(lambda: not centre.below.breakdown.isVisible())
    centre.set_plan(plan)
    assert centre.bars.canvas._empty == canvas.EMPTY
    assert centre.verdict.icon.accessibleName() == "Fits"
    qtbot.waitUntil(centre.below.breakdown.isVisible)


def test_without_a_plan_no_room_is_kept_for_the_table(window: MainWindow, qtbot: QtBot) -> None:
    _settled(window, qtbot, (1024, 640))
    window.centre.set_problem("the tensors of this model are not known", "Open the model's folder")
    window.view.show_startup()
    bars, tabs = window.centre._bars_card, window.centre.below.tabs_card
    beneath = bars.parentWidget()
    assert beneath is not None

    def gap() -> int:
        return tabs.mapTo(beneath, tabs.rect().topLeft()).y() - bars.geometry().bottom()

    qtbot.waitUntil(lambda: gap() <= 12)


def test_a_stale_plan_is_pale_until_the_next(window: MainWindow) -> None:
    centre = window.centre
    views = (centre.bars.canvas, centre.below.breakdown, explanation(centre), chart(centre))

    def pale() -> list[bool]:
        return [tokens_of(view) == paled(LIGHT) for view in views]

    centre.set_stale("3 GPUs do not divide 32 heads")
    assert all(pale())
    assert centre.verdict.headline.text() == "No plan: 3 GPUs do not divide 32 heads"
    assert tokens_of(centre.verdict) == LIGHT
    centre.set_stale(None)
    assert not any(pale())
    centre.set_stale("again")
    centre.set_plan(window.document.plan)
    assert not any(pale())
    assert "No plan" not in centre.verdict.headline.text()


def test_the_startup_tab_follows_from_one_start_to_another(
    open_window: Callable[..., MainWindow], qtbot: QtBot
) -> None:
    window = open_window("Qwen3-30B-A3B", "2xRTX 4090")
    window.view.show_startup()
    startup = chart(window.centre)
    startup.setFocus()
    qtbot.waitUntil(lambda: "while loading the weights" in startup.failure())
    assert "load weights" in startup.readout()
    window.machines.choose("4xRTX 4090")
    window.document.flush()
    qtbot.waitUntil(lambda: startup.failure() == "")
    assert startup.readout().startswith("Highest: ")
    window.machines.choose("1xNVIDIA GeForce RTX 4090")
    window.document.set_option("gpu_memory_utilization", 1.0)
    window.document.flush()
    qtbot.waitUntil(lambda: startup.failure().startswith("Fails at the free-memory check"))
    assert startup.access_current() == 0


def _inks(widget: QWidget) -> tuple[set[str], set[str]]:
    """The colours that a widget shows as a whole, and those of at least 40 pixels."""
    image = widget.grab().toImage()
    seen = Counter(image.pixelColor(x, y).name() for y in range(image.height()) for x in range(image.width()))
    return set(seen), {name for name, count in seen.items() if count >= 40}


def test_pale_views_keep_their_texts_ink(window: MainWindow, qtbot: QtBot) -> None:
    """What a text is drawn in is in sight as it stands in the palette, not blended with the ground."""
    centre = window.centre
    centre.show_tab("startup")
    qtbot.wait(50)
    bars, table, startup = centre.bars.canvas, centre.below.breakdown.table.viewport(), chart(centre)
    own = LIGHT.segments["weights"].fill
    for view in (bars, startup, table):
        assert LIGHT.text in _inks(view)[0]
    assert own in _inks(bars)[1]
    centre.set_stale("again")
    qtbot.wait(50)
    pale = paled(LIGHT)
    for view in (bars, startup, table):
        assert pale.text in _inks(view)[0], view
    assert own not in _inks(bars)[0]
    assert pale.segments["weights"].fill in _inks(bars)[1]
    assert pale.segments["weights"].fill in _inks(table)[1]
