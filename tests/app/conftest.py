"""Fixtures for everything built on QtCore."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvplanner.files import FOLDER_VARIABLE


@pytest.fixture(autouse=True)
def own_data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every test has settings and sessions of its own."""
    folder = tmp_path / "data"
    monkeypatch.setenv(FOLDER_VARIABLE, str(folder))
    return folder
