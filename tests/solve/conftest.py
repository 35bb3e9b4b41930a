"""The terminal, for what is told of solvers."""

from __future__ import annotations

import pytest

from tests.cli.kit import Terminal, in_this_process


@pytest.fixture
def terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """kvplanner with the given words, on a machine that has no NVIDIA driver and no display."""
    return in_this_process(capsys, monkeypatch)
