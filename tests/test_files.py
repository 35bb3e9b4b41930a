"""Where the program keeps its own files."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from PySide6.QtCore import QStandardPaths

from kvplanner.files import FOLDER_VARIABLE, data_folder


@pytest.mark.parametrize("config", [None, "", "relative/place", "{tmp}/config"])
def test_the_data_folder_is_where_the_desktop_keeps_such_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: str | None
) -> None:
    monkeypatch.delenv(FOLDER_VARIABLE, raising=False)
    if config is None:
        monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    else:
        monkeypatch.setenv("XDG_CONFIG_HOME", config.format(tmp=tmp_path))
    place = QStandardPaths.writableLocation(QStandardPaths.StandardLocation.GenericConfigLocation)
    assert data_folder() == Path(place) / "kvplanner"


def test_a_chosen_folder_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "own"))
    assert data_folder() == tmp_path / "own"


@pytest.mark.parametrize(("platform", "expected"), [("win32", "AppData/Local"), ("darwin", "Library/Preferences")])
def test_other_systems_have_places_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, platform: str, expected: str
) -> None:
    monkeypatch.delenv(FOLDER_VARIABLE, raising=False)
    monkeypatch.delenv("LOCALAPPDATA", raising=False)
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    assert data_folder() == tmp_path / expected / "kvplanner"
