"""What a start loads before its first bars: each module there is a part of what people wait for."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from tests.patience import LONG_S

_SCRIPT: Final = """
import builtins, sys, typing
plain = builtins.__import__
from kvplanner import ui
from PySide6.QtCore import QCoreApplication, QEvent, QObject
from kvplanner.app import session
from kvplanner.ui.window import run, window as windows

windows.REST_AFTER_MS = 60_000  # nothing but the first bars may bring on the rest, however slow the machine is
session.DELAY_MS = 60_000  # nor the first writing of the session

class Painted(QObject):
    def eventFilter(self, watched, event):
        if event.type() == QEvent.Type.Paint and loaded is None:
            tell()
        return False

loaded = None

def tell():
    global loaded
    loaded = sorted(name for name in sys.modules if not name.startswith("PySide6"))
    for name in loaded:
        print(name, vars(sys.modules[name]).get("NamedTuple") is typing.NamedTuple)
    print("import", builtins.__import__ is plain)
    QCoreApplication.quit()

painted = Painted()
open_first = run.open_first

def opened(app, arguments):
    application, window = open_first(app, arguments)
    window.planned_once.connect(lambda: window.centre.bars.canvas.installEventFilter(painted))
    return application, window

run.open_first = opened
ui.run([])
"""
# What a start does not need, each with whose work it is: to read what a config or a file says, to understand words,
# to describe engines, to look for ways, to watch GPUs.
_LATER: Final = (
    "kvplanner.model.config", "kvplanner.model.families", "kvplanner.model.towers",
    "kvplanner.model.quantisation.names",
    "kvplanner.model.whatif", "kvplanner.source", "kvplanner.gpu.match", "kvplanner.gpu.variant",
    "kvplanner.request.words", "kvplanner.request.planfile", "kvplanner.app.planstore", "kvplanner.engine.protocol",
    "kvplanner.engine.lever", "kvplanner.engine.sglang.planner", "kvplanner.engine.llamacpp.planner",
    "kvplanner.engine.vllm.options", "kvplanner.engine.vllm.levers", "kvplanner.solve", "kvplanner.diagnose",
    "kvplanner.observe", "kvplanner.ui.setup.panel", "kvplanner.ui.window.actions", "kvplanner.ui.window.details",
    "numpy", "pyqtgraph", "huggingface_hub", "pynvml", "psutil",
)  # fmt: skip
MOST: Final = 170


@cache
def loaded() -> dict[str, bool]:
    """The modules loaded when the first bars are painted, and whether each makes typing's named tuples."""
    folder = os.environ["KVPLANNER_DATA_DIR"]
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT],
        env={**os.environ, "QT_QPA_PLATFORM": "offscreen", "HOME": folder},
        capture_output=True, text=True, timeout=LONG_S, check=True,
    )  # fmt: skip
    return {name: made == "True" for name, made in (line.split() for line in done.stdout.splitlines())}


@pytest.mark.parametrize("name", _LATER)
def test_what_the_first_bars_do_not_need_is_loaded_later(own_data_folder: Path, name: str) -> None:
    assert [found for found in loaded() if found == name or found.startswith(f"{name}.")] == []


def test_python_imports_without_qt_reading_along(own_data_folder: Path) -> None:
    assert loaded()["import"], "PySide6's import reads the source of every module"


def test_the_first_bars_need_few_modules(own_data_folder: Path) -> None:
    ours = [name for name in loaded() if name.startswith("kvplanner")]
    assert "kvplanner.ui.bars.painter" in ours
    assert len(ours) <= MOST, "load what they do not need later, or say here why they need more"


def test_their_named_tuples_are_made_the_quick_way(own_data_folder: Path) -> None:
    slow = {name for name, typings in loaded().items() if typings and name.startswith("kvplanner")}
    # Generic ones are typing's own.
    assert slow <= {"kvplanner.app.history", "kvplanner.engine.vllm.releases"}, "take NamedTuple from kvplanner.record"
