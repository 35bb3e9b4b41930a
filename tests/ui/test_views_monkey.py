"""A seeded monkey over all views at once: nothing it does may raise or make Qt warn."""

from __future__ import annotations

import random

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QVBoxLayout, QWidget
from pytestqt.qtbot import QtBot

from kvplanner.engine.plan import Plan
from kvplanner.engine.segment import SEGMENT_KINDS
from kvplanner.ui.bars.widget import MemoryBars
from kvplanner.ui.breakdown.view import BreakdownView
from kvplanner.ui.explain.view import ExplainView
from kvplanner.ui.startup.view import StartupView
from kvplanner.ui.theme.palette import THEMES
from kvplanner.ui.verdict.view import VerdictView
from kvplanner.units import GIB
from tests import sample_plans
from tests.ui.kit import apart, hosted, paint_theme, widened

pytestmark = pytest.mark.slow

KEYS = (
    Qt.Key.Key_Left, Qt.Key.Key_Right, Qt.Key.Key_Up, Qt.Key.Key_Down, Qt.Key.Key_Home, Qt.Key.Key_End,
    Qt.Key.Key_Return, Qt.Key.Key_Space, Qt.Key.Key_Plus, Qt.Key.Key_Minus, Qt.Key.Key_Tab, Qt.Key.Key_Escape,
)  # fmt: skip


def _some_plan(chance: random.Random) -> Plan | None:
    plan = chance.choice(list(sample_plans.ALL.values()))()
    turn = chance.randrange(6)
    if turn == 0:
        return None
    if turn == 1:
        return widened(plan, chance.randint(1, 16))
    if turn == 2:
        return apart(widened(plan, chance.randint(1, 16)), chance.randint(1, 9))
    return hosted(plan, 256 * GIB, chance.randint(0, 200) * GIB) if turn == 3 else plan


class _Monkey:
    def __init__(self, window: QWidget, app: QApplication, seed: int) -> None:
        self.window, self.app = window, app
        self.chance = random.Random(seed)
        self.plan: Plan | None = None
        self.views = (VerdictView(), MemoryBars(), BreakdownView(), ExplainView(), StartupView())
        column = QVBoxLayout(window)
        for view in self.views:
            column.addWidget(view)
            view.segment_selected.connect(self.select)

    def select(self, chosen: object) -> None:
        assert isinstance(chosen, tuple)
        device, kind = chosen
        assert kind in SEGMENT_KINDS
        assert self.plan is not None
        assert 0 <= device < len(self.plan.devices)
        for view in self.views:
            view.set_selected(device, kind)

    def change_plan(self) -> None:
        self.plan = _some_plan(self.chance)
        for view in self.views:
            view.set_plan(self.plan)

    def set_anything(self) -> None:
        for view in self.views:
            view.set_unit(self.chance.choice(("GiB", "GB")))
            view.set_selected(self.chance.randrange(3), self.chance.choice((*SEGMENT_KINDS, None)))

    def change_room(self) -> None:
        self.window.resize(self.chance.randint(200, 1600), self.chance.randint(300, 1400))

    def change_theme(self) -> None:
        paint_theme(self.app, self.chance.choice(list(THEMES)))

    def target(self) -> QWidget:
        _, bars, table, explain, startup = self.views
        return self.chance.choice((bars.canvas, table.table, explain.text, startup))

    def click(self) -> None:
        target = self.target()
        x, y = (self.chance.randrange(max(side, 1)) for side in (target.width(), target.height()))
        QTest.mouseClick(target, Qt.MouseButton.LeftButton, pos=QPoint(x, y))

    def press(self) -> None:
        QTest.keyClick(self.target(), self.chance.choice(KEYS))

    def act(self) -> None:
        acts = (
            self.change_plan, self.change_plan, self.set_anything, self.change_room, self.change_theme, self.click,
            self.press, self.press,
        )  # fmt: skip
        self.chance.choice(acts)()
        if self.chance.randrange(4) == 0:
            self.app.processEvents()


@pytest.mark.parametrize("seed", range(3))
def test_nothing_breaks(qtbot: QtBot, qapp: QApplication, seed: int) -> None:
    window = QWidget()
    qtbot.addWidget(window)
    monkey = _Monkey(window, qapp, seed)
    window.show()
    for _ in range(150):
        monkey.act()
    assert not window.grab().isNull()
