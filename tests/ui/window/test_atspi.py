"""The window as a screen reader meets it: by AT-SPI, under X11, in a session bus of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pytest

from tests.patience import LONG_S

pytestmark = [pytest.mark.x11, pytest.mark.slow]

WALK: Final = Path(__file__).with_name("atspi_walk.py")
TABS: Final = 30
# What Debian's python3-gi and gir1.2-atspi-2.0 add to the system's Python.
READS: Final = "import gi; gi.require_version('Atspi', '2.0'); from gi.repository import Atspi"
PYTHON: Final = "/usr/bin/python3"
CONTROLS: Final = {
    "push button", "check box", "toggle button", "combo box", "text", "slider", "page tab", "page tab list", "table",
    "menu item", "menu bar", "list", "spin button", "link",
}  # fmt: skip


def can_walk() -> bool:
    if not all(shutil.which(tool) for tool in ("Xvfb", "xdotool", "dbus-run-session", PYTHON)):
        return False
    return subprocess.run([PYTHON, "-c", READS], capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(not can_walk(), reason="needs dbus, xdotool, python3-gi and gir1.2-atspi-2.0")
def test_a_screen_reader_finds_every_control_named_and_in_order(
    display: str,
    own_data_folder: Path,
) -> None:
    own_data_folder.mkdir(parents=True, exist_ok=True)
    (own_data_folder / "settings.json").write_text('{"toured": true}')
    environment = {**os.environ, "DISPLAY": display, "QT_QPA_PLATFORM": "xcb", "QT_LINUX_ACCESSIBILITY_ALWAYS_ON": "1"}
    opens = [sys.executable, "-c", "from kvplanner.ui import run; run([])"]
    done = subprocess.run(
        ["dbus-run-session", "--", PYTHON, str(WALK), "Llama", str(TABS), *opens],
        env=environment, capture_output=True, text=True, timeout=3 * LONG_S, check=False,
    )  # fmt: skip
    told = [line for line in done.stdout.splitlines() if line.startswith('{"rows"')]
    if not told and "could not load the Qt platform plugin" in done.stderr.lower():
        pytest.skip("Qt's X11 libraries are not installed")
    assert told, done.stderr[-3000:]
    walked = json.loads(told[-1])
    rows = [["push button", *row[1:]] if row[0] == "button" else row for row in walked["rows"]]  # as AT-SPI 2.56 says
    roles = {row[0] for row in rows}
    assert {"push button", "combo box", "text", "slider", "page tab", "table", "check box", "menu item"} <= roles
    assert sum(row[0] in CONTROLS for row in rows) > 40
    assert [row for row in rows if row[0] in CONTROLS and not row[1].strip()] == []
    assert [row for row in rows if row[3] and row[0] != "table cell" and not row[1].strip()] == []
    assert [row for row in rows if row[0] == "combo box" and not row[2].strip()] == [], "what a list is for"
    order_makes_sense(walked["steps"])


def order_makes_sense(steps: list[list[Any] | None]) -> None:
    """Tab leads on each time, down the form, then to the plan: bars, table, pages.

    The bars hand the focus on to the painted part that is selected, by an event; libatspi calls nothing focused then.
    """
    assert steps.count(None) == 1, steps
    bars = steps.index(None)
    told = [tuple(step) for step in steps if step is not None]
    assert [step for step in told if not step[1] and not step[2]] == []
    assert all(one != other for one, other in pairwise(told)), "Tab stayed where it was"
    form, beyond = told[: bars - 1], told[bars - 1 :]
    assert len(form) >= 15
    assert all(step[3] < 320 for step in form), "the form comes first, and whole"
    assert all(later[4] >= earlier[4] - 40 for earlier, later in pairwise(form)), form
    assert [step[1] for step in beyond[:3]] == ["Width of the setup", "Breakdown of the selected device", "Explain"]
