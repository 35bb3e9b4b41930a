#!/usr/bin/env python3
"""Writes locked.txt and locked-run.txt anew from constraints.txt: every file's checksum of every pinned version.

Run it after changing a pin: python3 packaging/lock.py UV, with the path of the `uv` program (`pip install uv` in an
environment of its own). The result holds for every Python from 3.11 on and every platform, and names no registry.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
# What is locked: the file, and the extras that it holds.
FILES: tuple[tuple[str, tuple[str, ...]], ...] = (("locked-run.txt", ()), ("locked.txt", ("test", "package")))
HEAD = """# Exact versions and checksums of {what}, made by packaging/lock.py from constraints.txt.
# Nothing else is installed: a file with another checksum, on a registry or on the way from it, is refused.
"""


def compiled(uv: str, extras: tuple[str, ...]) -> str:
    """What is installed with these extras, as pip reads it. Raises CalledProcessError."""
    command = [uv, "pip", "compile", "pyproject.toml", "-c", "packaging/constraints.txt", "--python-version", "3.11"]
    for extra in extras:
        command += ["--extra", extra]
    command += ["--universal", "--generate-hashes", "--no-header", "--no-annotate", "--quiet"]
    # setuptools builds the package itself.
    seed = HERE / "constraints.txt"
    built = next(line for line in seed.read_text(encoding="utf-8").splitlines() if line.startswith("setuptools=="))
    done = subprocess.run([*command, "-"], cwd=ROOT, input=built, capture_output=True, text=True, check=True)
    return done.stdout


def blocks(text: str) -> list[str]:
    """A requirement with its checksums each; none for browsers, which no part of this runs in."""
    found = re.findall(r"^(?=[a-z0-9])(?:.*\\\n)*.*\n", text, re.MULTILINE)
    return [re.sub(r" ; sys_platform != 'emscripten'", "", b) for b in found if "== 'emscripten'" not in b]


def main() -> int:
    """Returns 0 once both files are written."""
    if len(sys.argv) != 2:
        print((__doc__ or "").strip(), file=sys.stderr)
        return 2
    for name, extras in FILES:
        what = "what the program needs" + (" and what tests and builds it" if extras else "")
        (HERE / name).write_text(HEAD.format(what=what) + "".join(blocks(compiled(sys.argv[1], extras))))
        print(f"{name}: {len((HERE / name).read_text().splitlines()):,} lines")
    return 0


if __name__ == "__main__":
    sys.exit(main())
