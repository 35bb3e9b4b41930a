"""Copies the stand-in for NVML (C source and scenarios) into tests/nvml_stub, with where it came from.

Usage: python packaging/copy_nvml_stub.py SOURCE_FOLDER
The source is part of kvplanner's own material and was written from NVML's public interface only.
"""

from __future__ import annotations

import hashlib
import shutil
import sys
from pathlib import Path

TARGET = Path(__file__).resolve().parent.parent / "tests" / "nvml_stub"
NOTE = """# A stand-in for NVML

`nvml_stub.c` builds into a `libnvidia-ml.so.1` that the real `pynvml` loads; what it answers comes from a scenario
file that is read again on every change. Written for kvplanner from the public interface (function names, return
codes, struct layouts as the published bindings declare them); the scenarios' figures follow public prints of
`nvidia-smi`, their UUIDs, serials and PIDs are invented. Tests build it outside the tree with the machine's compiler.

Keys of a scenario: see the parser in `nvml_stub.c` (`set_key`, `parse`). `NVML_STUB_SCENARIO` names the file,
`NVML_STUB_LOG` a file that gets one line per call.

Copied by `packaging/copy_nvml_stub.py`; SHA-256 of the copied files:

"""


def main(argv: list[str]) -> int:
    """Copies and writes the note. Returns the exit status."""
    if len(argv) != 1 or not (source := Path(argv[0])).is_dir():
        print(__doc__, file=sys.stderr)
        return 2
    scenarios = sorted((source / "scenarios").glob("*.ini"))
    files = [source / "nvml_stub.c", source / "Makefile", *scenarios]
    (TARGET / "scenarios").mkdir(parents=True, exist_ok=True)
    lines = []
    for file in files:
        relative = file.relative_to(source)
        # copyfile, not copy: the source may be read-only, the copy must not be.
        shutil.copyfile(file, TARGET / relative)
        lines.append(f"- `{relative}` {hashlib.sha256(file.read_bytes()).hexdigest()[:16]}")
    (TARGET / "README.md").write_text(NOTE + "\n".join(lines) + "\n", encoding="utf-8")
    print(f"copied {len(files)} files to {TARGET}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
