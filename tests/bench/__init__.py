"""Benchmarks: reported, never asserted. `python -m tests.bench [AREA ...] [--json] [--repeat N]`.

The convention: one file per area, `tests/bench/bench_AREA.py`, with a module docstring whose first line names the
area and a function `run() -> list[Row]`. A row is CPU time (user + system), the minimum of several runs, and where
it makes sense the floor that was measured in the same run: compare ratios, since the machine's speed is not ours.
Import what is measured inside `run`, so that listing the areas costs nothing.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple


def repeats() -> int:
    """Runs of each measurement: --repeat, else 15."""
    return int(os.environ.get("KVPLANNER_BENCH_REPEAT", "15"))


class Row(NamedTuple):
    """One figure.

    value: CPU milliseconds (or what `unit` says), the smallest of the runs. floor: the same measure of the least that
    could be done, in the same run. budget: what the project allows itself, in `unit`; budget_ratio: as a multiple of
    the floor. Missing a budget is shown, not failed.
    """

    name: str
    value: float
    floor: float | None = None
    budget: float | None = None
    budget_ratio: float | None = None
    unit: str = "ms CPU"
    note: str = ""

    @property
    def ratio(self) -> float | None:
        """How many times the floor the value is."""
        return self.value / self.floor if self.floor else None

    @property
    def within(self) -> bool | None:
        """Whether the budget is kept; None where there is none."""
        if self.budget is not None and self.value > self.budget:
            return False
        if self.budget_ratio is not None and self.ratio is not None:
            return self.ratio <= self.budget_ratio
        return True if self.budget is not None else None


def cpu_ms(action: Callable[[], object], *, repeat: int | None = None, inner: int = 1) -> float:
    """The smallest CPU time of one call of `action`, in milliseconds; each of `repeat` runs makes `inner` calls."""
    best = float("inf")
    for _ in range(repeat or repeats()):
        start = time.process_time_ns()
        for _ in range(inner):
            action()
        best = min(best, (time.process_time_ns() - start) / inner)
    return best / 1e6


def process_cpu_ms(
    command: Sequence[str],
    *,
    repeat: int | None = None,
    env: Mapping[str, str] | None = None,
    statuses: Sequence[int] = (0,),
) -> float:
    """The smallest CPU time of a whole child process, from its start to its end, in milliseconds.

    Raises RuntimeError when the process ends with a status that is not among `statuses`.
    """
    best = float("inf")
    environment = {**os.environ, **env} if env else None
    for _ in range(repeat or repeats()):
        with tempfile.TemporaryFile() as errors:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors, env=environment
            )
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = code = os.waitstatus_to_exitcode(status)
            errors.seek(0)
            if code not in statuses:
                told = errors.read().decode(errors="replace").strip()
                raise RuntimeError(f"{command[0]} ended with status {code}:\n{told}")
        best = min(best, usage.ru_utime + usage.ru_stime)
    return best * 1e3
