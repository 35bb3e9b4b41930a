"""Where the program keeps its own files."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from PySide6.QtCore import QStandardPaths

from kvplanner.files import FOLDER_VARIABLE, data_folder, is_alive, write_whole


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


class Kernel32:
    """Windows' calls for processes: one runs, one has ended while a handle of it is open, one may not be asked."""

    RUNS, ENDED, REFUSED = 8, 12, 16

    def __init__(self) -> None:
        self.open: set[int] = set()
        self.error = 0
        for name in ("OpenProcess", "WaitForSingleObject", "CloseHandle"):
            setattr(self, name, Call(getattr(self, f"_{name}")))

    def _OpenProcess(self, access: int, inherit: bool, pid: int) -> int | None:
        assert (access, inherit) == (0x100000, False), "may only wait"
        if pid not in (self.RUNS, self.ENDED):
            self.error = 5 if pid == self.REFUSED else 87
            return None
        self.open.add(pid + 1000)
        return pid + 1000

    def _WaitForSingleObject(self, handle: int, milliseconds: int) -> int:
        assert handle in self.open
        assert milliseconds == 0
        return 0x102 if handle == self.RUNS + 1000 else 0

    def _CloseHandle(self, handle: int) -> int:
        self.open.remove(handle)
        return 1


class Call:
    """A function of a library, whose types can be set."""

    def __init__(self, function: Callable[..., object]) -> None:
        self.function = function
        self.argtypes: object = None
        self.restype: object = None

    def __call__(self, *arguments: object) -> object:
        return self.function(*arguments)


def test_a_process_is_looked_for_in_windows_without_ending_it(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Kernel32()
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr(os, "kill", lambda pid, number: pytest.fail("ends the process"))
    monkeypatch.setattr(ctypes, "WinDLL", lambda name, use_last_error: kernel, raising=False)
    monkeypatch.setattr(ctypes, "get_last_error", lambda: kernel.error, raising=False)
    assert is_alive(Kernel32.RUNS)
    assert is_alive(Kernel32.REFUSED)
    assert not is_alive(Kernel32.ENDED)
    assert not is_alive(20)
    assert not is_alive(1 << 40)
    assert not is_alive(0)
    assert not kernel.open, "every handle is closed"


def test_a_process_is_looked_for_elsewhere() -> None:
    ended = subprocess.Popen([sys.executable, "-c", "pass"])
    assert is_alive(ended.pid)
    ended.wait()
    assert not is_alive(ended.pid)
    assert is_alive(os.getpid())
    assert not is_alive(1 << 40)
