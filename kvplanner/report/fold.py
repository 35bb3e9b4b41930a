"""Which devices are drawn as one bar, and which of its segments tells most."""

from __future__ import annotations

from kvplanner.engine.plan import DevicePlan, Plan
from kvplanner.engine.segment import SegmentKind
from kvplanner.report.held import drawn


def _likeness(device: DevicePlan) -> tuple[object, ...]:
    parts = tuple((s.kind, s.estimate.value, s.estimate.low, s.estimate.high) for s in device.segments)
    budget = device.budget.value if device.budget else None
    return device.device.kind, device.device.gpu.name, device.total_bytes, budget, device.overflow_bytes, parts


def groups(plan: Plan) -> tuple[tuple[int, ...], ...]:
    """Positions in plan.devices, neighbours that are alike together, in the plan's order."""
    made: list[list[int]] = []
    before: tuple[object, ...] | None = None
    for position, device in enumerate(plan.devices):
        likeness = _likeness(device)
        if likeness == before:
            made[-1].append(position)
        else:
            made.append([position])
        before = likeness
    return tuple(tuple(members) for members in made)


def group_of(plan: Plan, position: int) -> tuple[int, ...]:
    """The group that a device belongs to."""
    return next(g for g in groups(plan) if position in g)


def telling_kind(plan: Plan, device: DevicePlan) -> SegmentKind | None:
    """The segment that tells most: the cache, what is in the way where the plan fails before it, None without any."""
    if plan.stage == "free_memory_check":
        other = device.segment("other")
        return "other" if other and other.bytes else "runtime_outside"
    kinds = [s.kind for s in drawn(plan, device)]
    telling: tuple[SegmentKind, ...] = ("kv_cache", "weights")
    return next((kind for kind in telling if kind in kinds), None)
