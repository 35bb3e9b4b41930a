"""Runs the terminal in this process, and as a process of its own where that matters."""

from __future__ import annotations

import sys

import pytest

from kvplanner.__main__ import main
from tests.cli.kit import Ran, Terminal


@pytest.fixture
def terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """kvplanner with the given words, on a machine that has no NVIDIA driver and no display."""
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
