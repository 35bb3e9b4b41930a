"""The window where desktops differ: under Wayland, on screens of different scales, at fractional ones."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.patience import LONG_S

pytestmark = pytest.mark.slow

_SCRIPT: Final = """
import json, sys
from kvplanner.ui.window import run
from kvplanner.ui.window.arguments import parse
from PySide6.QtCore import QTimer
from tests.ui.measure import faults

move = len(sys.argv) > 1
app = run.make_app()
application, window = run.open_first(app, parse([]))
told = []

def look():
    if not window.centre.built or window.document.plan is None or not window.windowHandle().isExposed():
        return
    timer.stop()
    tell()
    if move:
        other = next(screen for screen in app.screens() if screen is not window.screen())
        window.move(other.geometry().topLeft())
        moved(other)
    else:
        end()

def tell():
    told.append({
        "platform": app.platformName(), "screen": window.screen().name(), "ratio": window.devicePixelRatio(),
        "size": window.size().toTuple(), "exposed": window.windowHandle().isExposed(), "faults": faults(window),
        "pixels": window.grab().size().toTuple(),
    })

def moved(other):
    if window.screen() is other:
        QTimer.singleShot(400, last)
    else:
        QTimer.singleShot(50, lambda: moved(other))

def last():
    tell()
    end()

def end():
    print(json.dumps(told), flush=True)
    application.end()

timer = QTimer()
timer.timeout.connect(look)
timer.start(150)
QTimer.singleShot(200_000, application.end)
sys.exit(app.exec())
"""


def opened(folder: Path, *arguments: str, **environment: str) -> list[dict[str, Any]]:
    """What a window says of itself, first and after it was moved."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "settings.json").write_text('{"toured": true}')
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT, *arguments], env={**os.environ, **environment},
        capture_output=True, text=True, timeout=LONG_S, check=False,
    )  # fmt: skip
    lines = [line for line in done.stdout.splitlines() if line.startswith("[{")]
    assert done.returncode == 0, done.stderr[-2000:]
    assert lines, done.stderr[-2000:]
    found: list[dict[str, Any]] = json.loads(lines[-1])
    return found


@pytest.fixture
def compositor(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dict[str, str]]:
    """A Wayland compositor without a screen, of the scale that is asked for."""
    if shutil.which("weston") is None:
        pytest.skip("needs weston")
    runtime = tmp_path / "run"
    runtime.mkdir(mode=0o700)
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(runtime)}
    server = subprocess.Popen(
        ["weston", "--backend=headless-backend.so", "--socket=kvplanner", "--no-config", "--idle-time=0",
         "--width=1600", "--height=1000", f"--scale={request.param}"],
        env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        deadline = time.monotonic() + LONG_S
        while not (runtime / "kvplanner").exists() and time.monotonic() < deadline and server.poll() is None:
            time.sleep(0.05)
        if not (runtime / "kvplanner").exists():
            pytest.skip("the compositor does not start here")
        yield {"XDG_RUNTIME_DIR": str(runtime), "WAYLAND_DISPLAY": "kvplanner", "QT_QPA_PLATFORM": "wayland"}
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(LONG_S)


@pytest.mark.parametrize("compositor", [2], indirect=True)
def test_under_wayland(compositor: dict[str, str], own_data_folder: Path) -> None:
    (told,) = opened(own_data_folder, **compositor)
    assert told["platform"] == "wayland"
    assert told["exposed"]
    assert told["size"] == [1280, 800]
    assert told["faults"] == []


def test_at_a_fractional_scale(own_data_folder: Path) -> None:
    scale = "1.5"
    screens = {"screens": [{"name": "only", "x": 0, "y": 0, "width": 2560, "height": 1600}]}
    config = own_data_folder.parent / "screens.json"
    config.write_text(json.dumps(screens))
    platform = f"offscreen:configfile={config}"
    (told,) = opened(own_data_folder, QT_QPA_PLATFORM=platform, QT_SCALE_FACTOR=scale)
    assert told["ratio"] == float(scale)
    assert told["pixels"] == [round(side * float(scale)) for side in told["size"]]
    assert told["faults"] == []


def test_from_one_screen_to_another_of_another_scale(own_data_folder: Path) -> None:
    screens = {"screens": [
        {"name": "usual", "x": 0, "y": 0, "width": 1600, "height": 1000},
        {"name": "fine", "x": 1600, "y": 0, "width": 3840, "height": 2160},
    ]}  # fmt: skip
    config = own_data_folder.parent / "screens.json"
    config.write_text(json.dumps(screens))
    scales = {"QT_SCREEN_SCALE_FACTORS": "usual=1;fine=2"}
    before, after = opened(own_data_folder, "move", QT_QPA_PLATFORM=f"offscreen:configfile={config}", **scales)
    assert (before["screen"], before["ratio"]) == ("usual", 1)
    assert (after["screen"], after["ratio"]) == ("fine", 2)
    assert after["size"] == before["size"] == [1280, 800]
    assert after["pixels"] == [2560, 1600], "drawn anew, not enlarged"
    assert before["faults"] == after["faults"] == []
