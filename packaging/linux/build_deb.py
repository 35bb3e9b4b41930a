#!/usr/bin/env python3
"""Makes a Debian package of the built application: python3 packaging/linux/build_deb.py [FOLDER] (dist by default).

Needs dpkg-deb and dist/kvplanner (python3 packaging/dev.py build). The application keeps to /opt/kvplanner; what the
desktop needs goes where it looks for it.
"""

from __future__ import annotations

import gzip
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
APP_ID = "org.kvplanner.kvplanner"

CONTROL = """Package: kvplanner
Version: {version}
Section: utils
Priority: optional
Architecture: {architecture}
Maintainer: The kvplanner developers <kvplanner@localhost>
Installed-Size: {size_kib}
Depends: libc6 (>= 2.34), {libraries}
Description: plans an LLM engine's GPU memory before the server is started
 kvplanner tells whether a model fits on given GPUs, where the memory goes, how
 much KV cache is left and how many tokens and users that is, without a network.
 It comes as a desktop application and as a terminal program.
"""


def libraries() -> tuple[str, ...]:
    """The Debian packages that Qt loads from the system."""
    sys.path.insert(0, str(ROOT))
    from kvplanner.cli.display import LIBRARIES

    return tuple(LIBRARIES.values())


def lay_out(tree: Path, app: Path) -> None:
    """The package's files below `tree`."""
    shutil.copytree(app, tree / "opt" / "kvplanner", symlinks=True)
    commands = tree / "usr" / "bin"
    commands.mkdir(parents=True)
    for name in ("kvplanner", "kvplanner-gui"):
        (commands / name).symlink_to(f"../../opt/kvplanner/{name}")
    share = tree / "usr" / "share"
    places = {
        "applications": "kvplanner.desktop",
        "metainfo": f"{APP_ID}.metainfo.xml",
        "mime/packages": "kvplanner.xml",
    }
    for folder, name in places.items():
        (share / folder).mkdir(parents=True)
        shutil.copy(HERE / name, share / folder / name)
    for icon in sorted((ROOT / "resources" / "icons").glob("kvplanner*.svg")):
        target = share / "icons" / "hicolor" / "scalable" / "apps"
        target.mkdir(parents=True, exist_ok=True)
        shutil.copy(icon, target / icon.name)
    papers = share / "doc" / "kvplanner"
    papers.mkdir(parents=True)
    shutil.copy(ROOT / "LICENSE", papers / "copyright")
    (papers / "changelog.gz").write_bytes(gzip.compress(b"See the application's About box.\n", mtime=0))


def main() -> int:
    """Returns 0 when the package lies in the folder, 1 with the reason otherwise."""
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "dist"
    app = ROOT / "dist" / "kvplanner"
    if not (app / "kvplanner").exists() or shutil.which("dpkg-deb") is None:
        print("needs dpkg-deb and dist/kvplanner: run python3 packaging/dev.py build first", file=sys.stderr)
        return 1
    version = (app / "VERSION").read_text(encoding="ascii").strip()
    found = subprocess.run(["dpkg", "--print-architecture"], capture_output=True, text=True, check=True)
    architecture = found.stdout.strip()
    with tempfile.TemporaryDirectory() as scratch:
        tree = Path(scratch) / "tree"
        lay_out(tree, app)
        size_kib = sum(f.lstat().st_size for f in tree.rglob("*")) // 1024
        control = CONTROL.format(
            version=version, architecture=architecture, size_kib=size_kib, libraries=", ".join(libraries())
        )
        (tree / "DEBIAN").mkdir()
        (tree / "DEBIAN" / "control").write_text(control, encoding="utf-8")
        package = target / f"kvplanner_{version}_{architecture}.deb"
        subprocess.run(["dpkg-deb", "--build", "--root-owner-group", "-Zxz", str(tree), str(package)], check=True)
    print(f"{package} {package.stat().st_size / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
