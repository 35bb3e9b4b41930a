#!/usr/bin/env python3
"""Makes a wheel and a source archive: .venv/bin/python packaging/build_wheel.py [FOLDER].

Needs the Python of .venv, whose setuptools builds them from a copy of what git tracks. The same source gives the same
bytes, whatever the dates and permissions of its files, the folder that it lies in, and the day.
"""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from io import BytesIO
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "packaging"))

import contents  # noqa: E402 - after the folder that it lies in
import dev  # noqa: E402 - after the folder that it lies in

# setuptools changes sys.argv, and warns of folders of data that could be packages.
_BUILD = "from setuptools import build_meta as b; import sys; to = sys.argv[1]; b.build_wheel(to); b.build_sdist(to)"
# What goes into either: the rest is for whoever works on it.
_PARTS = ("kvplanner", "resources", "pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md")


def copy_source(root: Path, target: Path, when: int) -> None:
    """Copies what is built, each file with the same date and permissions. Raises CalledProcessError."""
    listed = subprocess.run(["git", "ls-files", "-z", *_PARTS], cwd=root, capture_output=True, check=True).stdout
    for name in listed.decode().split("\0"):
        if not name:
            continue
        file = target / name
        file.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(root / name, file)
        file.chmod(0o644)
        os.utime(file, (when, when))


def evened(archive: bytes, when: int) -> bytes:
    """A source archive whose entries are in order, of one date, and nobody's."""
    plain, packed = BytesIO(), BytesIO()
    with (
        tarfile.open(fileobj=BytesIO(archive), mode="r:gz") as given,
        tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as made,
    ):
        for entry in sorted(given.getmembers(), key=lambda entry: entry.name):
            entry.mtime, entry.uid, entry.gid, entry.uname, entry.gname, entry.pax_headers = when, 0, 0, "", "", {}
            entry.mode = 0o755 if entry.isdir() else 0o644
            made.addfile(entry, given.extractfile(entry) if entry.isfile() else None)
    with gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=9, mtime=0, filename="") as file:
        file.write(plain.getvalue())
    return packed.getvalue()


def build(root: Path, target: Path) -> list[Path]:
    """Writes both into a folder. Raises CalledProcessError and dev.Failed."""
    when = int(os.environ.get("SOURCE_DATE_EPOCH") or dev.RELEASED)
    with tempfile.TemporaryDirectory() as scratch:
        source, made = Path(scratch) / "source", Path(scratch) / "made"
        copy_source(root, source, when)
        made.mkdir()
        env = {**os.environ, "SOURCE_DATE_EPOCH": str(when), "PYTHONHASHSEED": "1"}
        command = [sys.executable, "-c", _BUILD, str(made)]
        built = subprocess.run(command, cwd=source, env=env, capture_output=True, text=True, umask=0o022)
        if built.returncode:
            raise dev.Failed(f"setuptools: {built.stderr[-2000:]}")
        (archive,) = made.glob("*.tar.gz")
        archive.write_bytes(evened(archive.read_bytes(), when))
        target.mkdir(parents=True, exist_ok=True)
        return [Path(shutil.copyfile(path, target / path.name)) for path in sorted(made.iterdir())]


def main() -> int:
    """Returns 0 when both lie in the folder, 1 with the reason otherwise."""
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "dist"
    if shutil.which("git") is None:
        print("needs git, which knows what belongs to the source", file=sys.stderr)
        return 1
    try:
        made = build(ROOT, target)
    except (subprocess.CalledProcessError, dev.Failed) as error:
        print(f"not built: {error}", file=sys.stderr)
        return 1
    contents.add_checksums(target, made)
    sys.stdout.write(contents.checksums(made))
    return 0


if __name__ == "__main__":
    sys.exit(main())
