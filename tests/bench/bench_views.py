"""The window's views: redraws of the memory bars, and a slider's step through every view."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kvplanner.engine.plan import Plan
from tests.bench import Row, repeats

if TYPE_CHECKING:
    from PySide6.QtCore import QCoreApplication

STEP_MS = 16.0
STEPS = 60


def run() -> list[Row]:
    """A new plan each time, as while a slider moves; painted at once, offscreen."""
    os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
    from PySide6.QtWidgets import QApplication

    from kvplanner.ui.bars.widget import MemoryBars
    from tests import sample_plans
    from tests.ui.kit import apart, widened

    app = QApplication.instance() or QApplication([])
    rows: list[Row] = []
    for count in (1, 8, 16):
        plans = [apart(widened(sample_plans.eight_gpus(), count), step) for step in range(1, STEPS)]
        bars = MemoryBars()
        bars.resize(1000, 700)
        bars.show()
        app.processEvents()

        def redraw(plan: Plan, bars: MemoryBars = bars) -> None:
            bars.set_plan(plan)
            bars.canvas.repaint()

        rows.append(_p95(f"bars: new plan to repaint, {count} GPUs", redraw, plans))
        bars.close()
    rows.append(_all_views())
    rows.append(_picker_key(app))
    app.processEvents()
    return rows


def _all_views() -> Row:
    from PySide6.QtWidgets import QApplication, QVBoxLayout, QWidget

    from kvplanner.ui.bars.widget import MemoryBars
    from kvplanner.ui.breakdown.view import BreakdownView
    from kvplanner.ui.explain.view import ExplainView
    from kvplanner.ui.verdict.view import VerdictView
    from tests import sample_plans
    from tests.ui.kit import apart, widened

    plans = [apart(widened(sample_plans.eight_gpus(), 8), step) for step in range(1, STEPS)]
    window = QWidget()
    column = QVBoxLayout(window)
    views = (VerdictView(), MemoryBars(), BreakdownView(), ExplainView())
    for view in views:
        column.addWidget(view)
    window.resize(1000, 1100)
    window.show()
    QApplication.processEvents()

    def step(plan: Plan) -> None:
        for view in views:
            view.set_plan(plan)
            view.set_selected(0, "kv_cache")
        window.repaint()

    row = _p95("verdict, bars, table and Explain: new plan to repaint, 8 GPUs", step, plans)
    window.close()
    return row


def _picker_key(app: QCoreApplication) -> Row:
    """A key typed into the chooser of models, with the catalogue and hundreds of local ones: search, list and paint."""
    from PySide6.QtCore import Qt
    from PySide6.QtWidgets import QApplication

    from kvplanner.app.library import LocalModel
    from kvplanner.ui.window.application import Application
    from tests.ui.window.kit import Keyboard

    assert isinstance(app, QApplication)
    application = Application(app, keep=False)
    application.library.models = tuple(
        LocalModel(f"local-{number}-qwen", f"/m/{number}", "folder", 10**9, "Q4_K_M") for number in range(300)
    )
    application.library._scanned_once = True
    window = application.new_window()
    window.show()
    window.fill()
    rounds: list[list[float]] = []
    for _ in range(max(repeats(), 3)):
        window.activateWindow()
        window.pickers.open_models()
        QApplication.processEvents()
        keyboard, times = Keyboard(), []
        for character in "qwen3 coder 30b":
            start = time.process_time_ns()
            keyboard.type(character)
            QApplication.processEvents()
            times.append((time.process_time_ns() - start) / 1e6)
        rounds.append(times)
        keyboard.press(Qt.Key.Key_Escape)
    application.shut_down()
    window.close()
    slowest = max(min(times) for times in zip(*rounds, strict=True))
    return Row("picker: the slowest of 15 keys typed", slowest, budget=STEP_MS, unit="ms CPU")


def _p95(name: str, action: Callable[[Plan], object], turns: Sequence[Plan]) -> Row:
    """The 95th percentile of CPU time of one call, the smallest of three series."""
    series: list[float] = []
    for _ in range(3):
        times: list[float] = []
        for turn in range(max(repeats() * 4, 20)):
            start = time.process_time_ns()
            action(turns[turn % len(turns)])
            times.append((time.process_time_ns() - start) / 1e6)
        series.append(sorted(times)[int(len(times) * 0.95)])
    return Row(name, min(series), budget=STEP_MS, unit="ms CPU p95")
