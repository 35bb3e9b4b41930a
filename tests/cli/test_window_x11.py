"""The window from source on a real X server: opens, obeys the keyboard, ends as it should."""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path

import pytest

from tests.packaged.driving import picture, png_size, window, xdotool

pytestmark = pytest.mark.x11

COMMAND = (sys.executable, "-m", "kvplanner")


def test_it_opens_and_quits_by_keyboard(tmp_path: Path) -> None:
    with window(COMMAND, tmp_path) as shown:
        picture(shown, tmp_path / "window.png")
        assert png_size(tmp_path / "window.png") == (1280, 800)
        shown.press("ctrl+q")
        shown.ends_cleanly()


def test_an_interrupt_ends_it_in_order(tmp_path: Path) -> None:
    with window((*COMMAND, "gui", "Llama-3.1-8B-Instruct", "--gpu", "8xH100"), tmp_path) as shown:
        shown.interrupt()


def test_a_plan_survives_the_end_of_the_window(tmp_path: Path) -> None:
    with window((*COMMAND, "gui", "Llama-3.1-70B-Instruct", "--gpu", "8xH100"), tmp_path) as shown:
        time.sleep(2)
        shown.press("ctrl+q")
        shown.ends_cleanly()
    kept = [f for f in tmp_path.rglob("*") if f.is_file() and b"Llama-3.1-70B-Instruct" in f.read_bytes()]
    assert kept, "the session holds the plan"


# Says where the slider of layers and the grip between the GPUs are, once the window is filled.
_TELLS = """
import sys
from PySide6.QtCore import QPoint, QTimer
from kvplanner import ui
from kvplanner.ui.window import run

open_first = run.open_first

def opened(app, arguments):
    application, window = open_first(app, arguments)

    def tell():
        slider, bar = window.panel.fields["n_gpu_layers"].slider, window.panel.fields["tensor_split"].bar
        grip = bar.grips[0]
        for widget, x in ((slider, round(slider.x_of(37))), (grip, grip.width() // 2)):
            at = widget.mapTo(window, QPoint(x, widget.height() // 2))
            print(at.x(), at.y(), flush=True)

    window.filled.connect(lambda: QTimer.singleShot(500, tell))
    return application, window

run.open_first = opened
sys.exit(ui.run(["gpt-oss-120b", "--gpu", "2xRTX 3090", "--engine", "llamacpp"]))
"""


def test_a_real_mouse_moves_layers_and_shares_and_keeps_what_fit_placed(tmp_path: Path) -> None:
    """Written out beside what is moved, as the session shows that the window leaves."""
    with window((sys.executable, "-c", _TELLS), tmp_path) as shown:
        assert shown.process.stdout is not None
        places = [shown.process.stdout.readline().split() for _ in range(2)]
        for x, y in places:
            held = ("mousemove", "--window", shown.id, x, y, "mousedown", "1")
            moves = [w for by in (4, 8, 12) for w in ("mousemove", "--window", shown.id, str(int(x) - by), y)]
            xdotool(shown.display, *held, *moves, "mouseup", "1")
        shown.press("ctrl+q")
        shown.ends_cleanly()
    kept = "".join(f.read_text("utf-8", "replace") for f in tmp_path.rglob("*.json") if f.is_file())
    options = {
        name: re.search(rf'"{name}": ?"?([^",}}]+)', kept) for name in ("n_gpu_layers", "tensor_split", "ctx_size")
    }
    assert all(options.values()), kept[:2000]
    assert options["n_gpu_layers"] is not None
    assert 20 < int(options["n_gpu_layers"][1]) < 37
    assert "override_tensor" in kept
    assert "exps=CPU" in kept
