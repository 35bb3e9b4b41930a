"""window: the first frames against a bare PySide6 window, and the steps of drags to their repaints at 8 GPUs."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from typing import Final

from tests.bench import Row, repeats

_BARE: Final = """
import time
from PySide6.QtCore import QEvent, QObject, QTimer
from PySide6.QtWidgets import QApplication, QWidget
app = QApplication([])
window = QWidget()
window.resize(1280, 800)
class Painted(QObject):
    def eventFilter(self, watched, event):
        if event.type() == QEvent.Type.Paint:
            QTimer.singleShot(0, done)
        return False
def done():
    print(time.process_time() * 1000)
    app.quit()
filter = Painted()
window.installEventFilter(filter)
window.show()
app.exec()
"""
_WINDOW: Final = """
import sys, time
import kvplanner.__main__ as entry
from kvplanner.ui.window import arguments as main_arguments

def watch():
    \"\"\"Have the first window say when it has been painted and nothing else is waiting.\"\"\"
    from PySide6.QtCore import QCoreApplication, QEvent, QObject, QTimer
    from kvplanner.ui.window import run as main_run
    def done():
        heavy = [m for m in ("numpy", "pyqtgraph", "huggingface_hub", "pynvml", "psutil") if m in sys.modules]
        assert not heavy, heavy
        print(time.process_time() * 1000, flush=True)
        QCoreApplication.quit()
    class Painted(QObject):
        def eventFilter(self, watched, event):
            if event.type() == QEvent.Type.Paint:
                watched.removeEventFilter(self)
                QTimer.singleShot(0, done)
            return False
    painted = Painted()
    open_first = main_run.open_first
    def opened(app, arguments):
        application, window = open_first(app, arguments)
        window.painted = painted
        if SHELL:
            window._begun = True  # only the shell: its content would follow in the next turn
            window.centralWidget().installEventFilter(painted)
        else:
            window.ready.connect(lambda: window.planned_once.connect(
                lambda: window.centre.bars.canvas.installEventFilter(painted)))
        return application, window
    main_run.open_first = opened

parse = main_arguments.parse
main_arguments.parse = lambda words: (watch(), parse(words))[1]
entry.main(["gui"])
"""
# What is dragged: vLLM's and llama.cpp's context, and what moves SGLang's budget and slack.
_MOVED: Final = (
    ("vllm", "max_model_len"), ("sglang", "mem_fraction_static"), ("sglang", "chunked_prefill_size"),
    ("sglang", "max_running_requests"), ("sglang", "context_length"), ("llamacpp", "ctx_size"),
)  # fmt: skip
_FRAME: Final = 16.0
_WORST: Final = 25.0
_SLIDER: Final = """
import time
from kvplanner import ui
from kvplanner.app.start import start_state
from kvplanner.request.words import PlanWords
from kvplanner.ui.window import run
from kvplanner.ui.window.arguments import parse
from PySide6.QtCore import QTimer

open_first = run.open_first

def opened(app, arguments):
    \"\"\"The window as anyone opens it; dragged once it is filled and at rest.\"\"\"
    application, window = open_first(app, arguments)
    window.filled.connect(lambda: QTimer.singleShot(300, lambda: drag(app, application, window)))
    return application, window

def drag(app, application, window):
    window.document.reset(start_state(PlanWords(model=MODEL, gpu="8xH100", engine=ENGINE), lambda: None))
    window.document.flush()
    until = time.monotonic() + 0.5
    while time.monotonic() < until:
        app.processEvents()
    slider = getattr(window.panel.fields[FIELD], "slider", None)
    times = []
    for i in range(60):
        start = time.process_time()
        if slider is not None:
            slider.setSliderDown(True)
            slider.setValue(300 + 7 * i)
        else:
            window.document.set_option(FIELD, 64 + 8 * i, key="drag")
        for _ in range(3):
            app.processEvents()
        times.append((time.process_time() - start) * 1000)
    first, *rest = times
    rest.sort()
    print(first, rest[len(rest) // 2], rest[int(len(rest) * 0.95)], rest[-1])
    application.end()

run.open_first = opened
ui.run([])
"""


def child(script: str) -> list[float]:
    """What a child process prints: CPU milliseconds."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {
            **os.environ, "QT_QPA_PLATFORM": os.environ.get("QT_QPA_PLATFORM", "offscreen"),
            "KVPLANNER_DATA_DIR": folder, "HOME": folder,
        }  # fmt: skip
        # As an installed program: with its byte code at hand.
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        done = subprocess.run(
            [sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=120, check=True
        )
    return [float(part) for part in done.stdout.split()]


def _least(*scripts: str) -> list[float]:
    """The least of each script, run in turns: a machine that slows down slows them all."""
    rounds = [[child(script)[0] for script in scripts] for _ in range(repeats())]
    return [min(of_one) for of_one in zip(*rounds, strict=True)]


def run() -> list[Row]:
    """CPU from process start to the event loop being idle after the first paint; and of one slider step."""
    child("SHELL = False\n" + _WINDOW)
    bare, shell, bars = _least(_BARE, "SHELL = True\n" + _WINDOW, "SHELL = False\n" + _WINDOW)
    return [
        Row("bare PySide6 window, first frame", bare),
        Row("shell, first frame", shell, floor=bare, budget_ratio=1.25),
        Row("window with bars, first plan drawn", bars, floor=bare, budget_ratio=1.9),
        *(row for engine, field in _MOVED for row in _steps(engine, field)),
    ]


def _steps(engine: str, field: str) -> list[Row]:
    """A drag of 60 steps, table and explanation following; of a few drags the least of each figure."""
    script = f"MODEL, ENGINE, FIELD = 'Llama-3.3-70B-Instruct', {engine!r}, {field!r}\n{_SLIDER}"
    first, median, late, worst = (min(of_one) for of_one in zip(*(child(script) for _ in range(3)), strict=True))
    name = f"{engine}: {field} to repaint, 8 GPUs"
    return [
        Row(f"{name}, first step", first, budget=_WORST),
        Row(f"{name}, median", median, budget=_FRAME),
        Row(f"{name}, 95th percentile", late, budget=_FRAME),
        Row(f"{name}, worst after the first", worst, budget=_WORST),
    ]
