"""Advanced in motion: rows come a few at a time, changed options stand on top, what is being edited stays in place."""

from __future__ import annotations

import gc
from itertools import pairwise
from time import thread_time

import pytest
from PySide6.QtCore import QPoint, Qt, QTimer
from PySide6.QtGui import QHideEvent
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QLabel, QWidget
from pytestqt.qtbot import QtBot

from kvplanner.errors import BadInput
from kvplanner.ui.setup.advanced import AdvancedSection
from kvplanner.ui.setup.advanced_row import OptionEntry
from kvplanner.ui.setup.column import Column
from kvplanner.ui.window.window import MainWindow
from tests.patience import slowness
from tests.ui.window.kit import Keyboard, opened_options, settled

pytestmark = pytest.mark.slow


def in_sight(section: AdvancedSection) -> list[str]:
    """Headings ("# …") and options, from the top."""
    column = section.findChild(Column)
    assert column is not None
    rows = [row for row in column.children() if isinstance(row, OptionEntry | QLabel) and row.isVisible()]
    rows.sort(key=QWidget.y)
    for above, below in pairwise(rows):
        assert above.geometry().bottom() + 1 == below.y(), "rows leave no gap and do not overlap"
    assert not rows or rows[-1].geometry().bottom() + 1 == column.height()
    return [row.option.name if isinstance(row, OptionEntry) else f"# {row.accessibleName()}" for row in rows]


def ends_with_section(section: AdvancedSection, name: str) -> bool:
    """Whether a row says to which section it belongs."""
    entry = section.entries[name]
    return entry.about.text().endswith(f"· {entry.option.section}")


def test_opening_takes_many_short_turns(window: MainWindow) -> None:
    section = window.panel.advanced
    assert section is not None
    made, turns = [], []

    def turn() -> None:
        turns.append(thread_time())
        made.append(len(section.entries))

    watch = QTimer()
    watch.setInterval(0)
    watch.timeout.connect(turn)
    gc.disable()  # what other tests left behind is not the rows' cost
    try:
        watch.start()
        section.toggle.setChecked(True)
        assert len(section.entries) < 20, "the first rows stand at once, and only they"
        settled(section)
    finally:
        watch.stop()
        gc.enable()
    names = [name for name in in_sight(section) if not name.startswith("# ")]
    assert sorted(names) == sorted(option.name for option in window.document.options())
    assert len(set(made)) > 8
    costs = sorted(after - before for before, after in pairwise(turns))
    assert costs[-1] < 0.04 * slowness(), "all at once took 0.13 s, and 0.016 s is a frame"


def test_closing_before_all_rows_stand_and_opening_again(window: MainWindow) -> None:
    section = window.panel.advanced
    assert section is not None
    section.toggle.setChecked(True)
    section.toggle.setChecked(False)
    assert not section.filling
    opened_options(window)
    assert len(section.entries) == len(window.document.options())
    in_sight(section)


def test_closing_the_window_ends_it(window: MainWindow) -> None:
    section = window.panel.advanced
    assert section is not None
    section.toggle.setChecked(True)
    assert section.filling
    window.hide()
    assert not section.filling
    window.show()
    settled(section)
    assert len(section.entries) == len(window.document.options())
    section.toggle.setChecked(False)
    section.toggle.setChecked(True)  # the fixture sees that no timer outlives the application


def test_changed_options_come_to_the_top_and_go_back(window: MainWindow) -> None:
    section, document = opened_options(window), window.document
    before = in_sight(section)
    assert "# Changed" not in before
    document.set_option("block_size", 32)
    document.flush()
    settled(section)
    assert in_sight(section)[:2] == ["# Changed", "block_size"]
    assert in_sight(section).count("block_size") == 1
    assert ends_with_section(section, "block_size")
    window.document.undo()
    document.flush()
    settled(section)
    assert in_sight(section) == before
    assert not ends_with_section(section, "block_size")
    document.set_options({"block_size": 32, "max_num_seqs": 7}, "Two")
    document.flush()
    settled(section)
    assert in_sight(section)[:3] == ["# Changed", "max_num_seqs", "block_size"]
    window.panel.edits.reset_options()
    document.flush()
    settled(section)
    assert in_sight(section) == before


def test_a_row_that_is_being_edited_stays_until_the_focus_leaves_it(window: MainWindow, qtbot: QtBot) -> None:
    section, panel = opened_options(window), window.panel
    window.activateWindow()
    before = in_sight(section)
    entry = section.entries["num_gpu_blocks_override"]
    panel.ensureWidgetVisible(entry, 0, 200)
    entry.field.inputs[0].setFocus()
    keyboard = Keyboard()
    keyboard.type("100")
    keyboard.press(Qt.Key.Key_Return)
    window.document.flush()
    settled(section)
    assert in_sight(section) == before
    assert not ends_with_section(section, "num_gpu_blocks_override")
    place = entry.mapTo(panel, QPoint()).y()
    keyboard.press(Qt.Key.Key_Tab)
    focus = QApplication.focusWidget()
    while focus is not None and entry.isAncestorOf(focus):
        place = focus.mapTo(panel, QPoint()).y()
        keyboard.press(Qt.Key.Key_Tab)
        focus = QApplication.focusWidget()
    assert focus is not None
    settled(section)
    assert in_sight(section)[:2] == ["# Changed", "num_gpu_blocks_override"]
    assert ends_with_section(section, "num_gpu_blocks_override")
    assert 0 < focus.mapTo(panel, QPoint()).y() - place < 120, "what is edited next stays where it was"


def test_taking_the_edit_back_in_its_row_leaves_nothing_behind(window: MainWindow) -> None:
    section = opened_options(window)
    window.activateWindow()
    before = in_sight(section)
    section.entries["block_size"].field.inputs[0].setFocus()
    keyboard = Keyboard()
    keyboard.type("32")
    keyboard.press(Qt.Key.Key_Return)
    window.document.undo()
    window.document.flush()
    settled(section)
    window.panel.model.button.setFocus()
    settled(section)
    assert in_sight(section) == before


def test_rearranging_makes_no_row_anew(window: MainWindow) -> None:
    section = opened_options(window)
    rows = dict(section.entries)
    for text in ("tokens", "zzz", ""):
        section.search.setText(text)
        settled(section)
    window.document.set_option("block_size", 32)
    window.document.flush()
    window.document.edit("Version", version="0.11")
    window.document.flush()
    settled(section)
    window.document.edit("Version", version=None)
    window.document.flush()
    settled(section)
    assert section.entries == rows
    in_sight(section)


def test_a_search_begun_while_rows_come_finds_all(window: MainWindow) -> None:
    section = window.panel.advanced
    assert section is not None
    section.toggle.setChecked(True)
    section.search.setText("lora")
    settled(section)
    found = [name for name in in_sight(section) if not name.startswith("# ")]
    assert {"enable_lora", "max_loras", "max_lora_rank"} <= set(found)
    assert len(section.entries) < len(window.document.options()), "only what was found is made"
    section.search.setText("zzz")
    settled(section)
    assert in_sight(section) == []


def test_a_message_takes_its_room_in_the_column(window: MainWindow) -> None:
    section = opened_options(window)
    field = section.entries["num_gpu_blocks_override"].field
    field.set_error("A message that is long enough to take at least two lines of this narrow form, or even three")
    settled(section)
    in_sight(section)
    assert field.error.height() >= field.error.heightForWidth(field.error.width())
    field.set_error("")
    settled(section)
    in_sight(section)


@pytest.mark.parametrize("flag", ["--attention-backend", "--max-lora-rank", "VLLM_USE_V2_MODEL_RUNNER"])
def test_an_error_of_a_row_that_is_still_to_come_is_shown(window: MainWindow, flag: str) -> None:
    section, panel = window.panel.advanced, window.panel
    assert section is not None
    panel.show_error(BadInput("no such value", flag, "Choose another"))
    settled(section)
    QTest.qWait(20)
    field = next(entry.field for entry in section.entries.values() if entry.field.error.message)
    assert not field.error.visibleRegion().isEmpty()


def test_a_row_that_goes_may_have_others_arranged_by_its_edit(qtbot: QtBot) -> None:
    """Hiding what has the focus ends what is typed there, which takes effect, and so brings other rows."""
    made: dict[str, QWidget] = {}

    class Row(QLabel):
        def hideEvent(self, event: QHideEvent) -> None:
            if self is made["a"]:
                column.arrange([("c", True), ("d", True)])

    def make(key: str) -> QWidget:
        made[key] = Row(key, column)
        made[key].hide()
        return made[key]

    ground = QWidget()
    qtbot.addWidget(ground)
    column = Column(make, 20, ground)
    ground.show()
    column.arrange([("a", True), ("b", True)])
    qtbot.waitUntil(lambda: not column.filling)
    column.arrange([("b", True)])
    qtbot.waitUntil(lambda: not column.filling)
    assert [key for key, row in made.items() if not row.isHidden()] == ["c", "d"], "the later ones stay"
