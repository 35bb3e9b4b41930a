"""Starts the window as a process on an X server and drives it with xdotool, as a person would."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from kvplanner.files import FOLDER_VARIABLE
from tests.patience import LONG_S

SCREEN_VARIABLES = ("DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM")
SOURCE_VARIABLES = ("PYTHONPATH", "VIRTUAL_ENV")
PATIENCE_S = LONG_S
# Qt itself takes the picture: it is there wherever the window is, unlike any picture program.
GRAB = """
import sys
from PySide6.QtGui import QGuiApplication
app = QGuiApplication([])
sys.exit(not app.primaryScreen().grabWindow(int(sys.argv[1])).save(sys.argv[2], "PNG"))
"""


class Window(NamedTuple):
    """A running window: its process, its id on the X server, the server's name."""

    process: subprocess.Popen[str]
    id: str
    display: str

    def press(self, *keys: str) -> None:
        """Gives the window the focus and presses keys such as "ctrl+q".

        A window that is not in sight at that moment takes no focus, and one may stand in for that which was found.
        """
        deadline, id_ = time.monotonic() + PATIENCE_S, self.id
        while True:
            assert self.process.poll() is None, "it ended before it was given keys"
            try:
                xdotool(self.display, "windowfocus", "--sync", id_)
                break
            except subprocess.CalledProcessError:
                assert time.monotonic() < deadline, f"window {id_} takes no focus"
                time.sleep(0.2)
                id_ = main_window(self.process, self.display)
        xdotool(self.display, "key", *keys)

    def ends_cleanly(self) -> None:
        """Asserts that it ends with 0 and without a traceback once it was asked to."""
        _, errors = self.process.communicate(timeout=PATIENCE_S)
        assert "Traceback" not in errors, errors
        assert self.process.returncode == 0, errors

    def interrupt(self) -> None:
        """Asks it to end, as Ctrl+C in a terminal does, and sees to it that it does."""
        self.process.send_signal(signal.SIGINT)
        self.ends_cleanly()


def without(names: Sequence[str]) -> dict[str, str]:
    """The environment less some variables."""
    return {name: value for name, value in os.environ.items() if name not in names}


def xdotool(display: str, *words: str) -> str:
    """What xdotool prints."""
    done = subprocess.run(
        ["xdotool", *words],
        capture_output=True, text=True, timeout=PATIENCE_S, env={**os.environ, "DISPLAY": display}, check=True,
    )  # fmt: skip
    return done.stdout


def main_window(process: subprocess.Popen[str], display: str) -> str:
    """The id of a process' window on the X server, once it is in sight."""
    words = ("search", "--sync", "--onlyvisible", "--pid", str(process.pid), "--name", "kvplanner")
    return xdotool(display, *words).split()[0]


def come_to_rest(pid: int) -> None:
    """Waits until a process sleeps and takes no more CPU time: keys that come before a window has its menus are lost.

    One that another keeps from the processor takes none either, but does not sleep.
    """
    stat, deadline, before, still = Path(f"/proc/{pid}/stat"), time.monotonic() + PATIENCE_S, -1, 0
    while still < 3 and time.monotonic() < deadline:
        time.sleep(0.2)
        fields = stat.read_text().rpartition(")")[2].split()
        ticks = sum(map(int, fields[11:13]))
        still = still + 1 if ticks - before <= 2 and fields[0] == "S" else 0
        before = ticks


@contextmanager
def window(command: Sequence[str], home: Path, **more: str) -> Iterator[Window]:
    """Starts a command that shows the window, which keeps its settings in `home`; ends it in any case.

    Yields once the window is up and at rest.
    """
    display = os.environ.get("DISPLAY", "")
    assert display, "an X server is needed: python3 packaging/dev.py test --only x11 packaged"
    elsewhere = ("XDG_", FOLDER_VARIABLE)
    clean = {name: value for name, value in without(SCREEN_VARIABLES).items() if not name.startswith(elsewhere)}
    env = {**clean, "DISPLAY": display, "HOME": str(home), **more}
    process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        found = main_window(process, display)
        come_to_rest(process.pid)
        yield Window(process, found, display)
    finally:
        process.kill()
        process.wait()


def picture(shown: Window, path: Path) -> None:
    """Writes what the window shows as a PNG."""
    env = {**os.environ, "DISPLAY": shown.display, "QT_QPA_PLATFORM": "xcb"}
    subprocess.run([sys.executable, "-c", GRAB, shown.id, str(path)], env=env, timeout=PATIENCE_S, check=True)


def png_size(path: Path) -> tuple[int, int]:
    """Width and height of a PNG file."""
    head = path.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    return int.from_bytes(head[16:20], "big"), int.from_bytes(head[20:24], "big")
