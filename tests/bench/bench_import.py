"""What importing the core costs, against a bare interpreter."""

from __future__ import annotations

import sys

from tests.bench import Row, process_cpu_ms


def run() -> list[Row]:
    """The engine interface alone: the least that every plan loads."""
    floor = process_cpu_ms([sys.executable, "-c", "pass"])
    spine = process_cpu_ms([sys.executable, "-c", "import kvplanner.engine.base"])
    return [Row("import kvplanner.engine.base", spine, floor)]
