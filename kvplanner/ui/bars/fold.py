"""Which devices are drawn as one bar: neighbours whose memory is used alike."""

from __future__ import annotations

from kvplanner.engine.base import DevicePlan, Plan


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


def budget_start(device: DevicePlan) -> int:
    """Where the budget begins: at the end of what was there before the engine looked."""
    return sum(s.bytes for s in device.segments if s.kind in ("driver_reserved", "other", "runtime_outside"))


def used_bytes(device: DevicePlan) -> int:
    """Everything but the headroom."""
    return sum(s.bytes for s in device.segments if s.kind != "headroom")
