"""Libraries of the building system that lie in a built application: where each is from, and under which licence.

PyInstaller copies what Qt and Python link to. Debian's own records say which package a file is of and its terms; on
another system the file's checksum stands alone.
"""

from __future__ import annotations

import hashlib
import subprocess
from functools import cache
from pathlib import Path
from typing import NamedTuple


class SystemLibrary(NamedTuple):
    """A file of the application. package, version: Debian's, "" where unknown. text: of its licences."""

    name: str
    sha256: str
    package: str
    version: str
    text: str


def system_libraries(app: Path) -> list[SystemLibrary]:
    """Those beside the application's modules, by name: what has a folder of its own came with a distribution."""
    inner = app / "_internal"
    files = [path for path in inner.glob("lib*.so*") if path.is_file() and not path.is_symlink()]
    return [_described(path) for path in sorted(files) if not path.name.startswith("libpython")]


def _described(path: Path) -> SystemLibrary:
    package = _package(path.name)
    found = Path("/usr/share/doc", package.partition(":")[0], "copyright") if package else Path()
    text = found.read_text(encoding="utf-8", errors="replace") if found.is_file() else ""
    version = _asked("dpkg-query", "--show", "--showformat=${Version}", package) if package else ""
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return SystemLibrary(path.name, digest, package.partition(":")[0], version, text)


def _package(name: str) -> str:
    """The package that the system's library of this name is of."""
    for place in _places().get(name, ()):
        real = place.resolve()
        for path in (place, real, Path("/", *place.parts[2:]), Path("/", *real.parts[2:])):  # /usr/lib is /lib by now
            owner = _asked("dpkg", "--search", str(path)).partition(": ")[0]
            if owner:
                return owner.split(", ")[0]
    return ""


@cache
def _places() -> dict[str, list[Path]]:
    """Where the loader finds libraries, by name."""
    found: dict[str, list[Path]] = {}
    for line in _asked("/sbin/ldconfig", "-p").splitlines():
        name, arrow, place = line.strip().partition(" => ")
        if arrow:
            found.setdefault(name.split(" ")[0], []).append(Path(place))
    return found


def _asked(*command: str) -> str:
    """What a program of the system prints, "" where it fails or is missing."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def system() -> str:
    """The name of this system, as purls have it."""
    try:
        lines = Path("/etc/os-release").read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    return next((line.partition("=")[2].strip('"') for line in lines if line.startswith("ID=")), "")
