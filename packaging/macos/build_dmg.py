"""macOS: a disk image with kvplanner.app, and an archive of it. Untested: nobody ran it yet.

  python3 packaging/dev.py build
  .venv/bin/python packaging/macos/build_dmg.py [FOLDER]

Signed with $CODESIGN_IDENTITY and notarised with the keychain profile $NOTARY_PROFILE where those are set; without
them macOS asks before the first start. There are no NVIDIA GPUs to attach to: plans are for other machines.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE.parent))

import contents  # noqa: E402 - after the folders that it lies in

APP = ROOT / "dist" / "kvplanner.app"


def call(*words: str | Path) -> None:
    """Runs a program of the system. Raises CalledProcessError."""
    subprocess.run([str(word) for word in words], check=True)


def add_papers(app: Path, version: str) -> None:
    """Licences and the bill of materials, in the bundle's resources."""
    papers = app / "Contents" / "Resources"
    own = (ROOT / "LICENSE").read_text(encoding="utf-8")
    (papers / "licences.txt").write_text(contents.licences(own), encoding="utf-8")
    (papers / "sbom.cdx.json").write_text(contents.sbom(version, platform.python_version()), encoding="utf-8")


def sign(path: Path) -> None:
    """The developer's signature where one is given, else one of this machine alone, which Apple silicon asks for."""
    identity = os.environ.get("CODESIGN_IDENTITY", "-")
    hardened = ["--options", "runtime", "--timestamp"] if identity != "-" else []
    call("codesign", "--force", "--deep", *hardened, "--sign", identity, path)


def image(target: Path, app: Path, version: str) -> Path:
    """Writes the disk image into a folder: the bundle beside a link to the applications."""
    path = target / f"kvplanner-{version}-macos-{platform.machine()}.dmg"
    with tempfile.TemporaryDirectory() as scratch:
        shutil.copytree(app, Path(scratch, app.name), symlinks=True)
        Path(scratch, "Applications").symlink_to("/Applications")
        words = ("-volname", f"kvplanner {version}", "-srcfolder", scratch, "-format", "ULFO", "-ov", path)
        call("hdiutil", "create", *words)
    if profile := os.environ.get("NOTARY_PROFILE"):
        sign(path)
        call("xcrun", "notarytool", "submit", path, "--keychain-profile", profile, "--wait")
        call("xcrun", "stapler", "staple", path)
    return path


def archive(target: Path, app: Path, version: str) -> Path:
    """Writes the bundle as a zip, with links and permissions as they are."""
    path = target / f"kvplanner-{version}-macos-{platform.machine()}.zip"
    call("ditto", "-c", "-k", "--keepParent", app, path)
    return path


def main() -> int:
    """Returns 0 when the files lie in the folder, 1 with the reason otherwise."""
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "dist"
    if platform.system() != "Darwin" or not APP.exists():
        print("runs on macOS, after: python3 packaging/dev.py build", file=sys.stderr)
        return 1
    version = (ROOT / "dist" / "kvplanner" / "VERSION").read_text(encoding="ascii").strip()
    target.mkdir(parents=True, exist_ok=True)
    add_papers(APP, version)
    sign(APP)
    made = [image(target, APP, version), archive(target, APP, version)]
    contents.add_checksums(target, made)
    for file in made:
        print(f"{file} {file.stat().st_size / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
