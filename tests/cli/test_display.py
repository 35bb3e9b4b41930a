"""Displays and system libraries: found out without starting Qt."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from kvplanner.cli import display


@pytest.mark.parametrize(
    ("environ", "platform", "shown"),
    [
        ({}, "linux", False),
        ({"DISPLAY": ""}, "linux", False),
        ({"DISPLAY": ":987"}, "linux", False),
        ({"DISPLAY": "nonsense"}, "linux", False),
        ({"DISPLAY": "elsewhere:10.0"}, "linux", True),
        ({"WAYLAND_DISPLAY": "wayland-9"}, "linux", False),
        ({"QT_QPA_PLATFORM": "offscreen"}, "linux", True),
        ({"QT_QPA_PLATFORM": "xcb"}, "linux", False),
        ({}, "win32", True),
        ({}, "darwin", True),
    ],
)
def test_when_a_window_can_appear(environ: dict[str, str], platform: str, shown: bool) -> None:
    assert display.has_display(environ, platform) is shown


def test_a_wayland_server_that_answers_is_a_display(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.bind(str(tmp_path / "wayland-0"))
        server.listen()
        environ = {"WAYLAND_DISPLAY": "wayland-0", "XDG_RUNTIME_DIR": str(tmp_path)}
        assert display.has_display(environ, "linux")


def test_missing_libraries_become_packages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    present = [name for name in display.LIBRARIES if "icccm" not in name and "keysyms" not in name]
    cache.write_bytes(b"\0".join(name.encode() for name in present) + b"\0")
    monkeypatch.setattr(display, "_LINKER_CACHE", cache)
    monkeypatch.setattr(display, "_loads", lambda name: False)
    assert display.missing_packages({}, "linux") == ("libxcb-icccm4", "libxcb-keysyms1")
    assert display.missing_packages({"QT_QPA_PLATFORM": "offscreen"}, "linux") == ()
    assert display.missing_packages({}, "win32") == ()
    hint = display.install_hint(("libxcb-icccm4", "libxcb-keysyms1"))
    assert "apt-get install libxcb-icccm4 libxcb-keysyms1" in hint


def test_a_library_that_the_cache_does_not_list_is_tried(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(display, "_LINKER_CACHE", tmp_path / "none")
    tried: list[str] = []

    def loads(name: str) -> bool:
        tried.append(name)
        return True

    monkeypatch.setattr(display, "_loads", loads)
    assert display.missing_packages({}, "linux") == ()
    assert tried == list(display.LIBRARIES)


def test_a_library_that_is_nowhere_does_not_load() -> None:
    assert display._loads("libc.so.6")
    assert not display._loads("libno-such-library.so.1")
