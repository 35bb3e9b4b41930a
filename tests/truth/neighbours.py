"""Leave one out: how far a calibration from one report of a thread improves the other reports of it.

A thread is one page, issue or repository: mostly one machine, and models with other settings. Each report that states
its available KV memory calibrates each other one of its thread; mean errors are those of the pairs whose estimates a
calibration moves at all.
"""

from __future__ import annotations

import re
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from kvplanner.diagnose.calibration import Figures, entries, measured_of
from kvplanner.engine.request import Calibration
from kvplanner.errors import PlannerError
from kvplanner.units import GIB
from tests.truth.measure import Pair, as_ran, kv_of, plan, usable
from tests.truth.rows import Row, Skip

_NAMES: Final = {
    "weights": "model_loading_gib", "kv_cache": "available_kv_gib", "activations": "activation_peak_gib",
    "runtime": "non_torch_gib", "cuda_graphs_estimated": "cudagraph_estimated_gib", "cuda_graphs": "graph_capture_gib",
    "budget": "budget_gib", "consumed": "consumed_weights_plus_non_torch_gib",
}  # fmt: skip


class Improved(NamedTuple):
    """A report calibrated by another one of its thread: available KV memory before and after, in bytes."""

    row: str
    by: str
    before: Pair
    after: Pair


def calibrations_of(row: Row) -> tuple[Calibration, ...]:
    """What a report teaches. Raises Skip or PlannerError."""
    made = plan(as_ran(row))
    sizes = {name: round(row.reported[key] * GIB) for name, key in _NAMES.items() if key in row.reported}
    seen = measured_of(Figures(sizes), made)
    return entries(made, seen, row.id) if seen else ()


def _thread(source: str) -> str:
    """A page, an issue, or all the files of a repository."""
    found = re.match(r"https://github\.com/[^/]+/[^/]+(?=/blob/)", source)
    return found[0] if found else source


def _place(row: Row) -> str:
    """The rank whose cache limits the plan of a report: what one pipeline stage measures is not another's."""
    made = plan(as_ran(row))
    return made.devices[made.tightest].role


def improved(rows: Iterable[Row]) -> list[Improved]:
    """Every pair of reports of one thread whose first calibrates the second."""
    threads: dict[str, list[tuple[Row, Pair, tuple[Calibration, ...]]]] = defaultdict(list)
    for row in rows:
        try:
            if row.version is None or "available_kv_gib" not in row.reported or not usable(row) or row.cold:
                continue
            threads[_thread(str(row.facts["source"]))].append((row, kv_of(row), calibrations_of(row)))
        except (Skip, PlannerError, LookupError, TypeError, ValueError):
            continue
    out: list[Improved] = []
    for members in threads.values():
        for first, _, taught in members:
            for second, before, _ in members:
                if first.id == second.id or not taught or _place(first) != _place(second):
                    continue
                after = kv_of(second, taught)
                if after != before:
                    out.append(Improved(second.id, first.id, before, after))
    return out


def summary(found: Sequence[Improved]) -> dict[str, Any]:
    """Mean errors before and after, GiB, and how often the bands hold what was printed."""
    if not found:
        return {"pairs": 0}
    return {
        "pairs": len(found),
        "reports": len({one.row for one in found}),
        "before_gib": statistics.fmean(abs(one.before.error) for one in found) / GIB,
        "after_gib": statistics.fmean(abs(one.after.error) for one in found) / GIB,
        "before_median_gib": statistics.median(abs(one.before.error) for one in found) / GIB,
        "after_median_gib": statistics.median(abs(one.after.error) for one in found) / GIB,
        "before_covered": sum(one.before.covered for one in found) / len(found),
        "after_covered": sum(one.after.covered for one in found) / len(found),
        "before_width_gib": statistics.median(one.before.high - one.before.low for one in found) / GIB,
        "after_width_gib": statistics.median(one.after.high - one.after.low for one in found) / GIB,
    }


def line(found: Sequence[Improved]) -> str:
    """One line for people."""
    s = summary(found)
    if not s["pairs"]:
        return "calibrated by another report of its thread: no pairs"
    return (
        f"calibrated by another report of its thread: {s['pairs']} pairs of {s['reports']} reports, mean KV error "
        f"{s['before_gib']:.2f} GiB before, {s['after_gib']:.2f} after (median {s['before_median_gib']:.2f}, "
        f"{s['after_median_gib']:.2f}); bands hold {100 * s['before_covered']:.0f} % before, "
        f"{100 * s['after_covered']:.0f} % after; width {s['before_width_gib']:.2f} GiB, {s['after_width_gib']:.2f}"
    )
