"""Opens each path of a list in one process and tells what came of it: `python -m tests.source.read_all < LIST`.

One line of JSON per path: outcome ("opened" or the error's class), its text, CPU seconds, and how far the process's
peak memory rose above that of the bare interpreter with the readers imported.
"""

from __future__ import annotations

import json
import resource
import sys
import time

from kvplanner.errors import PlannerError
from kvplanner.source import describe, gguf, gguf_model, opening, resolve, safetensors

_ = (describe, gguf, gguf_model, opening, safetensors)


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> None:
    base = peak_bytes()
    for line in sys.stdin:
        path = line.rstrip("\n")
        started = time.process_time()
        try:
            resolve.open_model(path)
            outcome, text = "opened", ""
        except PlannerError as error:
            outcome, text = type(error).__name__, str(error)
        seconds = time.process_time() - started
        told = {"path": path, "outcome": outcome, "text": text, "cpu_s": seconds, "rss": peak_bytes() - base}
        sys.stdout.write(json.dumps(told) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
