"""A plan's devices for readers: the lines of each one's table, what is missing where, and like devices as one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final, Literal

from kvplanner.engine.plan import DevicePlan, KvCache, Plan
from kvplanner.engine.segment import SegmentKind
from kvplanner.estimate import Estimate
from kvplanner.record import NamedTuple
from kvplanner.sized_text import MINUS, show_size
from kvplanner.units import ByteUnit, in_unit

# "in use" at the stage that the table is of: the failing one, else serving.
State = Literal["in use", "not reached", "released", "total", "missing", "not planned"]
_STATES: Final[dict[str, State]] = {"in_use": "in use", "not_reached": "not reached", "released": "released"}
_NUMBER: Final = re.compile(r"\d+")


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


def unplanned(plan: Plan, position: int) -> bool:
    """Whether nothing is known of a device but its memory."""
    return plan.fits is None and plan.devices[position].segment("weights") is None


def parts(plan: Plan, position: int) -> Iterator[Part]:
    """The lines of the device at `position` of plan.devices: what it has, the sum, what is missing, what comes later.

    Where a plan fails, the sum is that of the failing stage: what comes later stands below it and counts nowhere.
    """
    device = plan.devices[position]
    if unplanned(plan, position):
        yield Part(None, "not planned", device.total_bytes)
        return
    shown = device.in_use
    for segment in shown:
        yield Part(segment.kind, "in use", segment.bytes, segment.estimate)
    if shown:
        yield Part(None, "total", sum(s.bytes for s in shown))
    if device.lack is not None:
        yield Part(None, "missing", device.lack.bytes, in_all=device.lack.in_all)
    for segment in device.segments:
        if segment.state != "in_use":
            yield Part(segment.kind, _STATES[segment.state], segment.bytes, segment.estimate)


class Shortage(NamedTuple):
    """positions: in plan.devices, of devices that are alike; bytes: what each of them lacks at the failing stage."""

    positions: tuple[int, ...]
    bytes: int


def shortages(plan: Plan) -> tuple[Shortage, ...]:
    """The devices that lack memory, those that lack most first; () where the plan does not fail for lack of it."""
    if plan.fits is not False or plan.missing_bytes <= 0:
        return ()
    worst = plan.group_of(plan.tightest)
    found = [Shortage(worst, plan.missing_bytes)]
    for positions in plan.groups:
        lack = plan.devices[positions[0]].lack
        if positions != worst and lack is not None:
            found.append(Shortage(positions, lack.bytes))
    return tuple(sorted(found, key=lambda s: -s.bytes))


def run_of(numbers: Iterable[int]) -> str:
    """Numbers told shortly: "0–3, 6"."""
    runs: list[list[int]] = []
    for value in sorted(numbers):
        if runs and value == runs[-1][-1] + 1:
            runs[-1].append(value)
        else:
            runs.append([value])
    return ", ".join(str(r[0]) if len(r) == 1 else f"{r[0]}–{r[-1]}" for r in runs)


def where(plan: Plan, positions: Iterable[int]) -> str:
    """The devices at some positions by the numbers that the engine knows them by: "GPU 0–3", "Host"."""
    devices = [plan.devices[p].device for p in positions]
    return "Host" if devices[0].kind == "host" else f"GPU {run_of(d.index for d in devices)}"


def group_title(plan: Plan, positions: tuple[int, ...]) -> str:
    """Like devices over their table: "GPU 0", "GPUs 0–7, same"."""
    if len(positions) == 1:
        device = plan.devices[positions[0]].device
        return f"{'Host' if device.kind == 'host' else 'GPU'} {device.index}"
    return f"{where(plan, positions).replace('GPU', 'GPUs', 1)}, same"


def replicas(plan: Plan, positions: tuple[int, ...]) -> str:
    """How many replicas of the model several devices hold: "4 replicas", "" for one."""
    found = {plan.devices[p].replica for p in positions}
    return f"{len(found)} replicas" if len(found) > 1 else ""


def roles(plan: Plan, positions: tuple[int, ...]) -> str:
    """ "tp0" or, for several, "tp0–7"; of several replicas the part that each has: "tp0–1"."""
    found = [plan.devices[p].role for p in positions]
    if replicas(plan, positions):
        found = [role.partition("/")[2] for role in found]
    names = sorted(set(found), key=lambda role: tuple(int(n) for n in _NUMBER.findall(role)))
    first, last = names[0], names[-1]
    if first == last:
        return first
    stem = first.rstrip("0123456789")
    numbers = [name.removeprefix(stem) for name in names]
    if stem and all(name.startswith(stem) for name in names) and all(n.isdecimal() for n in numbers):
        return stem + run_of(map(int, numbers))
    return f"{first}–{last}"


def telling_kind(plan: Plan, device: DevicePlan) -> SegmentKind | None:
    """The segment that tells most: the cache, what is in the way where the plan fails before it, None without any."""
    kinds = [s.kind for s in device.in_use]
    order: tuple[SegmentKind, ...] = ("kv_cache", "weights")
    if plan.fits is False and "weights" not in kinds:
        other = device.segment("other")
        return "other" if other and other.bytes else "runtime_outside"
    return next((kind for kind in order if kind in kinds), None)


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
    text = f"{show_size(missing_bytes, unit)} short"
    return text if in_all is None else f"{text} at this stage, {show_size(in_all, unit)} in all"


def percent(part: int, whole: int) -> str:
    """A share: "31 %", "0.4 %"; too little to tell from nothing is "0 %"."""
    share = 100 * part / whole if whole else 0.0
    return f"{share:.1f} %" if 0.05 <= share < 0.95 else f"{share:.0f} %"


def per_device(plan: Plan, cache: KvCache) -> str:
    """Of what the bytes of a cache are that are told: " per GPU", " over all devices", "" where one has it all."""
    if cache.shared_out:
        return " over all devices" if sum(d.segment("kv_cache") is not None for d in plan.devices) > 1 else ""
    return " per GPU" if len(plan.gpus) > 1 else ""
