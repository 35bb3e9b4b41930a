"""What runs the terminal: in this process, and as a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple

import pytest

from tests.patience import LONG_S

# What a terminal obeys, or what turns the text after it.
OBEYED = [chr(c) for c in (*range(0x20), *range(0x7F, 0xA0)) if c != 0x0A] + list(
    "\u202a\u202b\u202d\u202e\u2066\u2069"
)


class Ran(NamedTuple):
    """What a command printed and its exit status."""

    status: int
    out: str
    err: str


Terminal = Callable[..., Ran]


def in_this_process(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """kvplanner with the given words, on a machine that has no NVIDIA driver and no display."""
    from kvplanner.__main__ import main

    monkeypatch.setattr("kvplanner.cli.local.machine", lambda: None)
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM"):
        monkeypatch.delenv(name, raising=False)
    hook = sys.excepthook

    def run(*words: str) -> Ran:
        try:
            status = main(words)
        finally:
            sys.excepthook = hook
        captured = capsys.readouterr()
        return Ran(status, captured.out, captured.err)

    return run


def process(words: Sequence[str], *, env: dict[str, str] | None = None, code: str = "") -> Ran:
    """kvplanner as a process of its own, or Python code that calls it."""
    command = [sys.executable, "-c", code, *words] if code else [sys.executable, "-m", "kvplanner", *words]
    without = {k: v for k, v in os.environ.items() if k not in ("DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM")}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=LONG_S, env={**without, **(env or {})}, check=False
    )
    return Ran(done.returncode, done.stdout, done.stderr)
