"""Opens each path of a list in one process and tells what came of it: `python -m tests.source.read_all < LIST`.

One line of JSON per path: outcome ("opened" or the error's class), its text, CPU seconds, and how far the process's
memory rose at its peak above what it held before.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from kvplanner.errors import PlannerError
from kvplanner.source import resolve
from kvplanner.source.checkpoint import opening, safetensors
from kvplanner.source.gguf import header as gguf
from kvplanner.source.gguf import model as gguf_model
from kvplanner.source.stores import describe

_ = (describe, gguf, gguf_model, opening, safetensors)


def _status_bytes(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    raise LookupError(field)


def main() -> None:
    for line in sys.stdin:
        path = line.rstrip("\n")
        Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew from what is held now
        base = _status_bytes("VmRSS")
        started = time.process_time()
        try:
            resolve.open_model(path)
            outcome, text = "opened", ""
        except PlannerError as error:
            outcome, text = type(error).__name__, str(error)
        seconds = time.process_time() - started
        rise = max(0, _status_bytes("VmHWM") - base)
        told = {"path": path, "outcome": outcome, "text": text, "cpu_s": seconds, "rise": rise}
        sys.stdout.write(json.dumps(told) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
