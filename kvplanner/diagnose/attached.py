"""What a server that runs teaches about plans like its own: by its KV cache, and by what its processes hold.

Its cache is what the budget left of everything else together, so it tells of that sum; the memory of its processes
tells of what lies outside the budget, as far as it is more or less than the rest can be. What torch keeps of a step's
memory lies between nothing and all of it, and from outside nobody sees which.
"""

from __future__ import annotations

from typing import Final

from kvplanner.diagnose.calibration import Learned, entries, of_cache
from kvplanner.engine.plan import DevicePlan, Plan
from kvplanner.engine.registry import engine
from kvplanner.engine.request import MeasuredKind
from kvplanner.engine.segment import SegmentKind
from kvplanner.record import NamedTuple
from kvplanner.units import MIB

# What an engine's processes hold on a device, as plans count it.
_HELD: Final[frozenset[SegmentKind]] = frozenset(
    {"runtime_outside", "runtime", "weights", "workspace", "activations", "cuda_graphs", "compute", "kv_cache"}
)
# Given back to the driver after it was used, or kept: nobody sees which.
_LOOSE: Final[tuple[SegmentKind, ...]] = ("activations",)
_OUTSIDE: Final[tuple[SegmentKind, ...]] = ("runtime_outside", "cuda_graphs")
# What the driver counts of a process besides, and a sample's own coarseness.
_SLACK: Final = 32 * MIB
# Beyond the bands of what lies outside the budget: more or less than that is of another start.
_MOST_BEYOND: Final = 256 * MIB


class Attached(NamedTuple):
    """What was seen of a running server: what its processes hold on the plan's tightest device, in bytes; the size of
    its KV cache in the engine's own units, or in tokens, of one replica. None where that is not known.
    """

    held_bytes: int | None = None
    units: int | None = None
    tokens: int | None = None


def bare(plan: Plan) -> Plan:
    """The plan by its engine's rules alone: what others measured is no rule."""
    request = plan.request
    if not request.calibration and not request.measured:
        return plan
    return engine(request.engine).plan(request._replace(calibration=(), measured={}))


def learn_running(plan: Plan, seen: Attached, source: str = "") -> Learned:
    """What a running server teaches. plan: of how it was started. Raises PlannerError."""
    plan = bare(plan)
    if not plan.fits:
        return Learned((), (), "the plan of it does not start, and it runs: its settings or its GPU are others")
    cache, device = _cache_bytes(plan, seen), plan.devices[plan.tightest]
    made: dict[MeasuredKind, int] = {}
    if cache is not None and device.budget is not None and not plan.cache_given:
        by_cache = of_cache(plan, cache)
        if by_cache is None:
            return Learned((), (), "its KV cache is not the plan's: another GPU, or settings that are not planned")
        made |= by_cache
    if seen.held_bytes is not None:
        outside = _outside(device, made, cache, seen.held_bytes)
        if outside is None:
            return Learned((), (), "it holds far more or less than the plan of it: it was started with other settings")
        made |= outside
    found = entries(plan, made, source)
    if found:
        return Learned(found)
    if cache is None:
        return Learned((), (), "what it holds is within the plan's range; its KV cache tells more: read that first")
    return Learned((), (), "what it measures is what the plan counts exactly")


def _cache_bytes(plan: Plan, seen: Attached) -> int | None:
    """The server's KV cache on each device, in bytes."""
    cache = plan.kv_cache
    if cache is None:
        return None
    if seen.units is not None:
        return seen.units * cache.bytes_per_unit
    if seen.tokens is None or not cache.tokens:
        return None
    return round(seen.tokens / cache.tokens * cache.units * cache.bytes_per_unit)


def _outside(
    device: DevicePlan, made: dict[MeasuredKind, int], cache: int | None, held: int
) -> dict[MeasuredKind, int] | None:
    """What lies outside the budget, where the processes hold more or less than all that the plan allows; {} where they
    do not, None where it is so much that it cannot be of this plan.
    """
    sizes = {s.kind: made.get(s.kind, s.bytes) for s in device.segments if s.kind in _HELD}
    if cache is not None:
        sizes["kv_cache"] = cache
    most = sum(sizes.values()) + _SLACK
    least = most - 2 * _SLACK - sum(sizes.get(kind, 0) for kind in _LOOSE)
    off = max(held - most, 0) or min(held - least, 0)
    if not off:
        return {}
    segments = [s for kind in _OUTSIDE if (s := device.segment(kind)) is not None and not s.in_budget]
    bands = {s.kind: s.estimate for s in segments if s.estimate.low < s.estimate.high}
    halves = {kind: (e.high - e.value) if off > 0 else (e.value - e.low) for kind, e in bands.items()}
    if abs(off) > sum(halves.values()) + _MOST_BEYOND:
        return None
    whole = sum(half**2 for half in halves.values())
    out: dict[MeasuredKind, int] = {}
    for kind, estimate in bands.items():
        out[kind] = max(estimate.value + (round(off * halves[kind] ** 2 / whole) if whole else 0), 0)
    return out
