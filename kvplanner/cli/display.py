"""Whether a window can be shown here, found out before Qt would abort the process over it."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

# What the xcb plugin and Qt's core load at run time, by Debian package.
LIBRARIES: Final[dict[str, str]] = {
    "libxcb-cursor.so.0": "libxcb-cursor0",
    "libxcb-icccm.so.4": "libxcb-icccm4",
    "libxcb-keysyms.so.1": "libxcb-keysyms1",
    "libxcb-image.so.0": "libxcb-image0",
    "libxcb-render-util.so.0": "libxcb-render-util0",
    "libxcb-xkb.so.1": "libxcb-xkb1",
    "libxcb-shape.so.0": "libxcb-shape0",
    "libxkbcommon-x11.so.0": "libxkbcommon-x11-0",
    "libEGL.so.1": "libegl1",
    "libGL.so.1": "libgl1",
    "libfontconfig.so.1": "libfontconfig1",
    "libdbus-1.so.3": "libdbus-1-3",
    "libgthread-2.0.so.0": "libglib2.0-0",
}
# Qt's own drawing needs these on every platform; the rest belongs to X11.
_EVERYWHERE: Final = ("libEGL.so.1", "libGL.so.1", "libfontconfig.so.1", "libdbus-1.so.3", "libgthread-2.0.so.0")
_LINKER_CACHE: Final = Path("/etc/ld.so.cache")
_NO_SCREEN_NEEDED: Final = ("offscreen", "minimal", "vnc", "linuxfb", "eglfs")


def has_display(environ: Mapping[str, str] | None = None, platform: str = sys.platform) -> bool:
    """Whether a window can appear: always where the system draws, on Linux when a display server answers."""
    environ = os.environ if environ is None else environ
    if not platform.startswith("linux"):
        return True
    wished = environ.get("QT_QPA_PLATFORM", "")
    if wished.split(":")[0].split(";")[0] in _NO_SCREEN_NEEDED:
        return True
    return _wayland_answers(environ) or _x11_answers(environ.get("DISPLAY", ""))


def _wayland_answers(environ: Mapping[str, str]) -> bool:
    name = environ.get("WAYLAND_DISPLAY", "")
    return bool(name) and _connects(str(Path(environ.get("XDG_RUNTIME_DIR", "")) / name))


def _x11_answers(display: str) -> bool:
    """A display of this machine is asked; one on another host is believed, since asking could take minutes."""
    host, colon, rest = display.rpartition(":")
    number = rest.split(".")[0]
    if not colon or not number.isdecimal():
        return False
    if host not in ("", "unix"):
        return True
    path = f"/tmp/.X11-unix/X{number}"
    return _connects(path) or _connects("\0" + path)


def _connects(path: str) -> bool:
    import socket

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(path)
        except OSError:
            return False
    return True


def missing_packages(environ: Mapping[str, str] | None = None, platform: str = sys.platform) -> tuple[str, ...]:
    """The Debian packages of the libraries that Qt would miss here; () on other systems than Linux.

    The linker's cache answers in most cases without loading anything; what it does not list is tried.
    """
    environ = os.environ if environ is None else environ
    if not platform.startswith("linux"):
        return ()
    wished = environ.get("QT_QPA_PLATFORM", "")
    only_core = wished.split(":")[0] in _NO_SCREEN_NEEDED
    needed = _EVERYWHERE if only_core else tuple(LIBRARIES)
    try:
        known = _LINKER_CACHE.read_bytes()
    except OSError:
        known = b""
    suspects = [name for name in needed if name.encode() + b"\0" not in known]
    return tuple(LIBRARIES[name] for name in suspects if not _loads(name))


def _loads(name: str) -> bool:
    bundled = getattr(sys, "_MEIPASS", "")
    if bundled and (Path(bundled) / name).exists():
        return True
    import ctypes

    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True


def install_hint(packages: tuple[str, ...]) -> str:
    """One sentence that names what to install."""
    return f"Qt needs system libraries that are missing here: apt-get install {' '.join(packages)}"
