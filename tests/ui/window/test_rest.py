"""A window that nobody touches rests: nothing wakes it, and it takes what its plan takes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.patience import LONG_S

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/status").is_file(), reason="counts a process' wakes where Linux does"),
]

_WATCHED_S: Final = 3.0
_MOST_WAKES: Final = 2  # one is its own end; a timer of once in two seconds would make as many; the rest is let be
_MOST_MIB: Final = 110
_SCRIPT: Final = """
import json, sys, time
from pathlib import Path
from PySide6.QtCore import QTimer
from kvplanner import ui
from kvplanner.ui.window import run

def status(name):
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
    return int(line.split()[1])

watched_s, most_wakes = float(sys.argv[1]), int(sys.argv[2])

def begin(tries):
    first = status("voluntary_ctxt"), time.process_time()
    def end():
        wakes, cpu = status("voluntary_ctxt") - first[0], time.process_time() - first[1]
        if (wakes > most_wakes or cpu > 0.01 * watched_s) and tries > 1:
            begin(tries - 1)
            return
        print(json.dumps({"wakes": wakes, "cpu": cpu, "kib": status("VmRSS")}), flush=True)
        application.end()
    QTimer.singleShot(round(watched_s * 1000), end)

open_first = run.open_first

def opened(app, arguments):
    global application
    application, window = open_first(app, arguments)
    # What follows a first plan goes first: its ways are found, the session is written. It takes what the machine takes.
    window.filled.connect(lambda: QTimer.singleShot(1500, lambda: begin(20)))
    return application, window

run.open_first = opened
ui.run([])
"""


@pytest.fixture(scope="module")
def resting(tmp_path_factory: pytest.TempPathFactory) -> dict[str, float]:
    """What a whole application does in its first three seconds of rest with its first plan, and its memory then."""
    folder = str(tmp_path_factory.mktemp("rest"))
    environment = {**os.environ, "QT_QPA_PLATFORM": "offscreen", "KVPLANNER_DATA_DIR": folder, "HOME": folder}
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT, str(_WATCHED_S), str(_MOST_WAKES)],
        env=environment, capture_output=True, text=True, timeout=LONG_S, check=True,
    )  # fmt: skip
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_nothing_wakes_it(resting: dict[str, float]) -> None:
    assert resting["wakes"] <= _MOST_WAKES
    assert resting["cpu"] < 0.01 * _WATCHED_S


def test_a_plan_takes_little_memory(resting: dict[str, float]) -> None:
    assert resting["kib"] / 1024 <= _MOST_MIB
