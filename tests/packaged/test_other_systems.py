"""What can be known here of the builds for Windows and macOS, which nobody has run: files, names and icons."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from PySide6.QtGui import QColor, QGuiApplication, QImage

PACKAGING = Path(__file__).parents[2] / "packaging"
VECTOR = PACKAGING.parent / "resources" / "icons" / "kvplanner.svg"
sys.path.insert(0, str(PACKAGING))


@pytest.mark.parametrize("script", ["windows/build_installer.py", "macos/build_dmg.py"])
def test_elsewhere_a_script_says_where_it_runs(script: str) -> None:
    done = subprocess.run([sys.executable, PACKAGING / script], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("runs on ")
    assert "packaging" in done.stderr


def test_the_icons_hold_what_the_systems_ask_for(qapp: QGuiApplication, tmp_path: Path) -> None:
    import icons

    data = icons.ico(VECTOR)
    for at in range(int.from_bytes(data[4:6], "little")):
        entry = data[6 + 16 * at : 22 + 16 * at]
        size, length, offset = (
            entry[0] or 256,
            int.from_bytes(entry[8:12], "little"),
            int.from_bytes(entry[12:], "little"),
        )
        image = QImage.fromData(data[offset : offset + length])
        assert (image.width(), image.height()) == (size, size)
        assert any(QColor(image.pixelColor(x, size // 2)).alpha() for x in range(size)), "nothing is drawn"
    assert offset + length == len(data)
    data = icons.icns(VECTOR)
    assert (data[:4], int.from_bytes(data[4:8], "big")) == (b"icns", len(data))
    at, found = 8, {}
    while at < len(data):
        length = int.from_bytes(data[at + 4 : at + 8], "big")
        found[data[at : at + 4]] = QImage.fromData(data[at + 8 : at + length]).width()
        at += length
    assert found == {b"ic11": 32, b"ic07": 128, b"ic08": 256, b"ic09": 512, b"ic10": 1024}


def test_the_installer_names_files_that_the_build_makes() -> None:
    text = (PACKAGING / "windows" / "kvplanner.iss").read_text(encoding="utf-8")
    spec = (PACKAGING / "kvplanner.spec").read_text(encoding="utf-8")
    for name in set(re.findall(r"\{app\}\\([\w-]+)\.exe", text)):
        assert f'name="{name}"' in spec
    assert (PACKAGING.parent / "LICENSE").exists()


def test_the_archive_for_windows_is_the_same_twice(tmp_path: Path) -> None:
    sys.path.insert(0, str(PACKAGING / "windows"))
    import build_installer

    app = tmp_path / "app"
    (app / "_internal").mkdir(parents=True)
    (app / "kvplanner.exe").write_bytes(b"MZ")
    (app / "_internal" / "a.pyd").write_bytes(b"x" * 1000)
    made = [build_installer.archive(tmp_path, app, "1.0").read_bytes() for _ in range(2)]
    assert made[0] == made[1]
    assert b"kvplanner/_internal/a.pyd" in made[0]
