"""Windows: an archive of dist/kvplanner, and an installer where Inno Setup 6 is there. Untested: nobody ran it yet.

  py -3.11 packaging\\dev.py build
  .venv\\Scripts\\python packaging\\windows\\build_installer.py [FOLDER]

The installer needs no administrator: it goes to the user's own programs, and offers to put `kvplanner` on the PATH.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE.parent))

import contents  # noqa: E402 - after the folders that it lies in

APP = ROOT / "dist" / "kvplanner"
# Archives have no dates before 1980, and the same source gives the same bytes.
_DATE = (1980, 1, 1, 0, 0, 0)
_INNO = (Path(os.environ.get("PROGRAMFILES(X86)", "C:/Program Files (x86)")), "Inno Setup 6", "ISCC.exe")


def add_papers(app: Path, version: str) -> None:
    """Licences and the bill of materials, beside the program."""
    (app / "licences.txt").write_text(contents.licences((ROOT / "LICENSE").read_text(encoding="utf-8")), "utf-8")
    (app / "sbom.cdx.json").write_text(contents.sbom(version, platform.python_version()), "utf-8")


def archive(target: Path, app: Path, version: str) -> Path:
    """Writes the portable archive into a folder."""
    path = target / f"kvplanner-{version}-windows-{platform.machine().lower()}.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as packed:
        for file in sorted(app.rglob("*")):
            if file.is_file():
                entry = zipfile.ZipInfo(f"kvplanner/{file.relative_to(app).as_posix()}", _DATE)
                entry.compress_type = zipfile.ZIP_DEFLATED
                packed.writestr(entry, file.read_bytes())
    return path


def installer(target: Path, version: str) -> Path | None:
    """Writes the installer into a folder; None without Inno Setup. Raises CalledProcessError."""
    found = shutil.which("ISCC") or Path(*_INNO)
    if not Path(found).exists():
        return None
    name = f"kvplanner-{version}-setup"
    words = [str(found), f"/DVersion={version}", f"/O{target}", f"/F{name}", str(HERE / "kvplanner.iss")]
    subprocess.run(words, check=True)
    return target / f"{name}.exe"


def main() -> int:
    """Returns 0 when the files lie in the folder, 1 with the reason otherwise."""
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "dist"
    if platform.system() != "Windows" or not (APP / "kvplanner.exe").exists():
        print("runs on Windows, after: py -3.11 packaging\\dev.py build", file=sys.stderr)
        return 1
    version = (APP / "VERSION").read_text(encoding="ascii").strip()
    target.mkdir(parents=True, exist_ok=True)
    add_papers(APP, version)
    made = [path for path in (archive(target, APP, version), installer(target, version)) if path is not None]
    contents.add_checksums(target, made)
    for file in made:
        print(f"{file} {file.stat().st_size / 1e6:.1f} MB")
    if len(made) == 1:
        print("no installer: Inno Setup 6 is not here", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
