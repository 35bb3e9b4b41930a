#!/usr/bin/env python3
"""Makes a Debian package and a portable archive of the built application: packaging/linux/build_deb.py [FOLDER].

Needs dpkg-deb and dist/kvplanner (python3 packaging/dev.py build), and the Python of .venv. In the package the
application keeps to /opt/kvplanner, and what the desktop and the shells need goes where they look for it; the archive
unpacks to one folder whose install.sh does the same below ~/.local. The same build gives the same bytes.
"""

from __future__ import annotations

import gzip
import lzma
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from xml.etree import ElementTree

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path[:0] = [str(ROOT), str(HERE), str(HERE.parent)]

import contents  # noqa: E402 - after the folders that it lies in
import pages  # noqa: E402 - after the folders that it lies in
from system_libraries import system_libraries  # noqa: E402 - after the folders that it lies in

APP_ID = "org.kvplanner.kvplanner"
METAINFO = HERE / f"{APP_ID}.metainfo.xml"

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

# Debian's own tools keep the lists of applications and file types; triggers call them, so that no script is needed.
INSTALL = """#!/bin/sh
# Puts kvplanner below ~/.local for this user: ./install.sh, or ./install.sh --remove
set -eu
here=$(cd "$(dirname "$0")" && pwd)
share=${XDG_DATA_HOME:-$HOME/.local/share}
bin=$HOME/.local/bin
cd "$here/share"
if [ "${1:-}" = --remove ]; then
    find . -type f -exec rm -f "$share/{}" ';'
    rm -f "$bin/kvplanner" "$bin/kvplanner-gui"
else
    find . -type f -exec sh -c 'mkdir -p "$(dirname "$1/$2")" && cp "$2" "$1/$2"' sh "$share" {} ';'
    mkdir -p "$bin"
    for name in kvplanner kvplanner-gui; do ln -sf "$here/app/$name" "$bin/$name"; done
    sed -i "s#^Exec=kvplanner-gui#Exec=\\"$here/app/kvplanner-gui\\"#" "$share/applications/kvplanner.desktop"
fi
for tool in "update-desktop-database $share/applications" "update-mime-database $share/mime"; do
    if command -v "${tool%% *}" >/dev/null; then $tool || true; fi
done
"""


def release() -> tuple[str, int]:
    """The date of this release, and as seconds: what every file of the packages is dated."""
    import calendar
    import time

    newest = next(iter(ElementTree.parse(METAINFO).getroot().iter("release")))
    date = str(newest.get("date"))
    return date, int(os.environ.get("SOURCE_DATE_EPOCH") or calendar.timegm(time.strptime(date, "%Y-%m-%d")))


def libraries() -> tuple[str, ...]:
    """The Debian packages that Qt loads from the system."""
    from kvplanner.cli.display import LIBRARIES

    return tuple(LIBRARIES.values())


def write(path: Path, data: bytes) -> None:
    """Writes a file in a folder that is made where it is missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def lay_out_share(share: Path, app: Path, version: str) -> None:
    """What the desktop, the shells and `man` look for, below a `share` folder."""
    date, _ = release()
    write(share / "applications" / "kvplanner.desktop", (HERE / "kvplanner.desktop").read_bytes())
    write(share / "metainfo" / METAINFO.name, METAINFO.read_bytes())
    write(share / "mime" / "packages" / "kvplanner.xml", (HERE / "kvplanner.xml").read_bytes())
    for icon in sorted((ROOT / "resources" / "icons").glob("kvplanner*.svg")):
        write(share / "icons" / "hicolor" / "scalable" / "apps" / icon.name, icon.read_bytes())
    page = gzip.compress(pages.man_page(date).encode(), mtime=0)
    for name in ("kvplanner", "kvplanner-gui"):
        write(share / "man" / "man1" / f"{name}.1.gz", page)
    write(share / "bash-completion" / "completions" / "kvplanner", pages.bash_completion().encode())
    write(share / "zsh" / "vendor-completions" / "_kvplanner", pages.zsh_completion().encode())
    write(share / "fish" / "vendor_completions.d" / "kvplanner.fish", pages.fish_completion().encode())
    papers = share / "doc" / "kvplanner"
    libraries = system_libraries(app)
    own = (ROOT / "LICENSE").read_text(encoding="utf-8")
    write(papers / "copyright", contents.licences(own, libraries).encode())
    write(papers / "sbom.cdx.json", contents.sbom(version, platform.python_version(), libraries).encode())
    write(papers / "changelog.gz", gzip.compress((ROOT / "CHANGELOG.md").read_bytes(), mtime=0))


def tidy(tree: Path, when: int) -> None:
    """The same dates and permissions whoever builds it."""
    for path in sorted(tree.rglob("*"), reverse=True):
        if path.is_symlink():
            os.utime(path, (when, when), follow_symlinks=False)
            continue
        executable = path.is_dir() or path.stat().st_mode & 0o100
        path.chmod(0o755 if executable else 0o644)
        os.utime(path, (when, when))
    os.utime(tree, (when, when))


def debian_package(target: Path, app: Path, version: str) -> Path:
    """Writes the .deb into a folder. Raises CalledProcessError."""
    found = subprocess.run(["dpkg", "--print-architecture"], capture_output=True, text=True, check=True)
    architecture, (_, when) = found.stdout.strip(), release()
    with tempfile.TemporaryDirectory() as scratch:
        tree = Path(scratch) / "tree"
        shutil.copytree(app, tree / "opt" / "kvplanner", symlinks=True)
        commands = tree / "usr" / "bin"
        commands.mkdir(parents=True)
        for name in ("kvplanner", "kvplanner-gui"):
            (commands / name).symlink_to(f"../../opt/kvplanner/{name}")
        lay_out_share(tree / "usr" / "share", app, version)
        size_kib = sum(f.lstat().st_size for f in tree.rglob("*")) // 1024
        control = CONTROL.format(
            version=version, architecture=architecture, size_kib=size_kib, libraries=", ".join(libraries())
        )
        write(tree / "DEBIAN" / "control", control.encode())
        tidy(tree, when)
        package = target / f"kvplanner_{version}_{architecture}.deb"
        env = {**os.environ, "SOURCE_DATE_EPOCH": str(when)}
        command = [
            "dpkg-deb",
            "--build",
            "--root-owner-group",
            "-Zxz",
            "-z9",
            "--threads-max=1",
            str(tree),
            str(package),
        ]
        subprocess.run(command, check=True, env=env, stdout=subprocess.DEVNULL)
    return package


def portable(target: Path, app: Path, version: str) -> Path:
    """Writes the archive into a folder."""
    name, (_, when) = f"kvplanner-{version}-linux-{platform.machine()}", release()
    archive = target / f"{name}.tar.xz"
    with tempfile.TemporaryDirectory() as scratch:
        tree = Path(scratch) / name
        shutil.copytree(app, tree / "app", symlinks=True)
        lay_out_share(tree / "share", app, version)
        write(tree / "install.sh", INSTALL.encode())
        (tree / "install.sh").chmod(0o755)
        tidy(tree, when)
        with lzma.open(archive, "wb", preset=4) as packed, tarfile.open(fileobj=packed, mode="w") as tar:
            for path in (tree, *sorted(tree.rglob("*"))):
                tar.add(path, str(path.relative_to(scratch)), recursive=False, filter=_owned_by_nobody_special)
    return archive


def _owned_by_nobody_special(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = "root"
    return entry


def main() -> int:
    """Returns 0 when the packages lie in the folder, 1 with the reason otherwise."""
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "dist"
    app = Path(os.environ.get("KVPLANNER_PACKAGED") or ROOT / "dist" / "kvplanner")
    if not (app / "kvplanner").exists() or shutil.which("dpkg-deb") is None:
        print("needs dpkg-deb and dist/kvplanner: run python3 packaging/dev.py build first", file=sys.stderr)
        return 1
    version = (app / "VERSION").read_text(encoding="ascii").strip()
    target.mkdir(parents=True, exist_ok=True)
    made = [debian_package(target, app, version), portable(target, app, version)]
    contents.add_checksums(target, made)
    for file in made:
        print(f"{file} {file.stat().st_size / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
