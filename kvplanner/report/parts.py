"""The lines of a device's table: what it holds, their sum, what is missing, and what start-up never reaches.

Where a plan fails, the sum is that of the failing stage: what comes later stands below it and counts nowhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal, NamedTuple

from kvplanner.engine.plan import Plan, Stage
from kvplanner.engine.segment import SegmentKind
from kvplanner.estimate import Estimate
from kvplanner.report.held import alike, drawn, lack_of
from kvplanner.sized_text import MINUS, show_size
from kvplanner.units import ByteUnit, in_unit

# When start-up fails there.
STAGES: Final[dict[Stage, str]] = {
    "free_memory_check": "at the free-memory check, before loading",
    "weights": "while loading the weights",
    "profile": "in the profile run",
    "kv_cache_sizing": "when the KV cache is sized",
    "kv_cache_too_small": "when the KV cache is sized",
    "kv_cache_allocation": "when the KV cache is allocated",
    "graph_capture": "while capturing CUDA graphs",
    "runtime": "while serving",
}
# "in use" at the stage that the table is of: the failing one, else serving.
State = Literal["in use", "not reached", "released", "total", "missing", "not planned"]


class Part(NamedTuple):
    """One line. kind and estimate: of a segment, None for a sum and for what is missing.

    in_all: what is missing until one full-length request fits, where that is known and more.
    """

    kind: SegmentKind | None
    state: State
    bytes: int
    estimate: Estimate | None = None
    in_all: int | None = None

    @property
    def basis(self) -> str:
        """How sure the number is; of what is not in use, why not; "" for a sum."""
        if self.estimate is None:
            return ""
        return self.estimate.basis if self.state == "in use" else self.state


def parts(plan: Plan, position: int) -> Iterator[Part]:
    """The lines of the device at `position` of plan.devices."""
    device = plan.devices[position]
    if plan.fits is None and device.segment("weights") is None:
        yield Part(None, "not planned", device.total_bytes)
        return
    shown = drawn(plan, device)
    for segment in shown:
        yield Part(segment.kind, "in use", segment.bytes, segment.estimate)
    if shown:
        yield Part(None, "total", sum(s.bytes for s in shown))
    lack = lack_of(plan, alike(plan, position))
    if lack is not None:
        yield Part(None, "missing", lack.bytes, in_all=lack.in_all)
    for segment in device.segments:
        if segment not in shown:
            released = segment.kind == "activations" and plan.stage in ("kv_cache_allocation", "graph_capture")
            yield Part(segment.kind, "released" if released else "not reached", segment.bytes, segment.estimate)


def number(value: int | float, unit: ByteUnit, digits: int = 2) -> str:
    """Bytes as a number of the unit, without its name and with a real minus sign."""
    return f"{in_unit(value, unit):,.{digits}f}".replace("-", MINUS)


def low_end(estimate: Estimate) -> int:
    """The low end as it is shown: of what is there, no less than nothing is left."""
    return max(estimate.low, 0) if estimate.value >= 0 else estimate.low


def span(estimate: Estimate, unit: ByteUnit) -> str:
    """The range as "7.40–7.61", as fine as the value beside it; "" where those decimals do not tell the ends apart."""
    low, high = number(low_end(estimate), unit), number(estimate.high, unit)
    if low == high:
        return ""
    return f"{low} to {high}" if low.startswith(MINUS) else f"{low}–{high}"


def short(missing_bytes: int, in_all: int | None, unit: ByteUnit) -> str:
    """What is missing at the failing stage, and in all where later stages would lack more."""
    said = f"{show_size(missing_bytes, unit)} short"
    return said if in_all is None else f"{said} at this stage, {show_size(in_all, unit)} in all"


def percent(part: int, whole: int) -> str:
    """A share: "31 %", "0.4 %"; too little to tell from nothing is "0 %"."""
    share = 100 * part / whole if whole else 0.0
    return f"{share:.1f} %" if 0.05 <= share < 0.95 else f"{share:.0f} %"
