"""Where the program keeps its own files."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from PySide6.QtCore import QStandardPaths

from kvplanner.files import FOLDER_VARIABLE, data_folder, write_whole


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


@pytest.mark.parametrize("year", [1980, 2090])
def test_a_jump_of_the_clock_takes_no_half_written_file_from_who_writes_it(tmp_path: Path, year: int) -> None:
    """The file of a process that lives stays; one that is old and nobody's goes."""
    ended = subprocess.Popen([sys.executable, "-c", "pass"])
    ended.wait()
    theirs, nobodys = tmp_path / ".kvplanner-1-7.part", tmp_path / f".kvplanner-{ended.pid}-7.part"
    then = float((year - 1970) * 365 * 86_400)
    for path in (theirs, nobodys):
        path.write_bytes(b"half")
        os.utime(path, (then, then))
    write_whole(tmp_path / "plan.json", b"whole")
    assert theirs.exists()
    assert nobodys.exists() == (year == 2090), "not yet, by a clock that was put back"
    assert (tmp_path / "plan.json").read_bytes() == b"whole"
