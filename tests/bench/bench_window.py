"""The window: first frames against a bare one, and a slider step to its repaint on eight GPUs."""

from __future__ import annotations

import os
import sys
import time

from tests.bench import Row, process_cpu_ms, repeats

# Each script ends by itself at the moment that it measures; the interpreter's teardown is not part of a first frame.
# A posted event comes after the paint and before any timer, so work put off until after it is not counted.
AFTER_PAINT = """
import os, sys
from PySide6.QtCore import QCoreApplication, QEvent, QObject

class AfterPaint(QObject):
    def eventFilter(self, watched, event):
        if event.type() == QEvent.Type.Paint:
            QCoreApplication.postEvent(self, QEvent(QEvent.Type.User))
        return False

    def event(self, event):
        os._exit(0)

after_paint = AfterPaint()
"""
BARE = (
    AFTER_PAINT
    + """
from PySide6.QtWidgets import QApplication, QWidget
app = QApplication(["bare"])
window = QWidget()
window.installEventFilter(after_paint)
window.resize(1280, 800)
window.show()
app.exec()
"""
)
WINDOW = (
    AFTER_PAINT
    + """
from kvplanner.ui.main_arguments import parse
from kvplanner.ui.main_run import make_app, begin
from kvplanner.ui.main_app import Application
from kvplanner.app.session import Restored

app = make_app()
application = Application(app, keep=False, theme="light")
window = application.new_window()
arguments = parse([])
if sys.argv[1] == "shell":
    window.installEventFilter(after_paint)
else:
    window.planned_once.connect(lambda: window.centre.bars.installEventFilter(after_paint))
    window.planned_once.connect(lambda: window.centre.bars.update())
window.resize(1280, 800)
window.show()
window.filled.connect(lambda: begin(application, window, arguments, Restored((), crashed=False)))
app.exec()
"""
)
ENV = {"QT_QPA_PLATFORM": "offscreen"}


def run() -> list[Row]:
    """First frames as processes of their own, then the slider in this one."""
    bare = process_cpu_ms([sys.executable, "-c", BARE], env=ENV)
    shell = process_cpu_ms([sys.executable, "-c", WINDOW, "shell"], env=ENV)
    bars = process_cpu_ms([sys.executable, "-c", WINDOW, "bars"], env=ENV)
    return [
        Row("bare window of PySide6, first frame", bare),
        Row("shell, first frame", shell, bare, budget_ratio=1.5),
        Row("window with bars, first frame", bars, bare, budget_ratio=2.0),
        *_slider(),
    ]


def _slider() -> list[Row]:
    """CPU time from an edit of the context length to the last paint that follows, at eight GPUs."""
    os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
    from kvplanner.ui.main_app import Application
    from kvplanner.ui.main_arguments import parse
    from kvplanner.ui.main_run import make_app
    from kvplanner.ui.screenshot import prepared_window

    app = make_app()
    application = Application(app, keep=False, theme="light")
    try:
        arguments = parse(["Llama-3.1-70B-Instruct", "--gpu", "8xH100", "--load", "64@1500+500"])
        window = prepared_window(application, arguments)
        times: list[float] = []
        for step in range(repeats() * 6):
            start = time.process_time_ns()
            window.document.set_option("max_model_len", 8192 + 256 * step, key="slider")
            window.document.flush()
            for _ in range(3):
                app.processEvents()
            times.append((time.process_time_ns() - start) / 1e6)
    finally:
        application.shut_down()
    times.sort()
    p95 = times[int(len(times) * 0.95)]
    return [
        Row("slider step to repaint, 8 GPUs", times[0], budget=16.0),
        Row("slider step to repaint, 8 GPUs, 95th percentile", p95, budget=16.0),
    ]
