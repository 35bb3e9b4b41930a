"""The window from source on a real X server: opens, obeys the keyboard, ends as it should."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from tests.packaged.driving import picture, png_size, window

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
