"""Which devices are drawn as one bar, which segments a bar holds and in which order, and where the budget lies."""

from __future__ import annotations

from typing import Final

from kvplanner.engine.base import BUDGET_KINDS, DevicePlan, Plan, Segment, SegmentKind, Stage

# vLLM has charged its graph estimate to the budget since 0.21 (its own start-up message says so).
GRAPHS_CHARGED_SINCE: Final = 21
_BEFORE: Final[frozenset[SegmentKind]] = frozenset({"driver_reserved", "other", "runtime_outside", "headroom"})
_RESIDENT: Final[frozenset[SegmentKind]] = _BEFORE | frozenset[SegmentKind]({"runtime", "weights", "workspace"})
# What a device holds, or is reckoned to need, at the stage where start-up fails.
_ADDED: Final[dict[Stage, tuple[SegmentKind, ...]]] = {
    "free_memory_check": (),
    "weights": ("weights",),
    "profile": ("activations",),
    "kv_cache_sizing": ("activations", "cuda_graphs"),
    "kv_cache_too_small": ("activations", "cuda_graphs", "kv_cache"),
    "kv_cache_allocation": ("kv_cache",),
    "graph_capture": ("kv_cache", "cuda_graphs"),
    "runtime": ("kv_cache", "cuda_graphs", "activations"),
}


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


def graphs_outside(plan: Plan, device: DevicePlan) -> bool:
    """Whether CUDA graphs are captured after the cache, outside the budget: by the cache's sum, else by the version."""
    graphs, cache = device.segment("cuda_graphs"), plan.kv_cache
    if device.budget is None or graphs is None or not graphs.bytes:
        return False
    charged = next((i.value for i in cache.available.inputs if i.name == "CUDA graphs"), None) if cache else None
    if charged is not None:
        return not charged
    numbers = [int(n) for n in plan.engine_version.split(".")[:2] if n.isdecimal()]
    return plan.request.engine == "vllm" and [0, 0] < numbers < [0, GRAPHS_CHARGED_SINCE]


def budget_kinds(plan: Plan, device: DevicePlan) -> tuple[SegmentKind, ...]:
    """The kinds that lie inside the budget, by this plan's rules."""
    return tuple(k for k in BUDGET_KINDS if k != "cuda_graphs" or not graphs_outside(plan, device))


def cache_is_given(plan: Plan) -> bool:
    """Whether the cache's size is given, so that utilisation does not decide it."""
    option = plan.options.get("kv_cache_memory_bytes")
    return bool(option and option.value) or "kv_cache" in plan.request.measured


def held(plan: Plan, device: DevicePlan, kind: SegmentKind) -> bool:
    """Whether a segment counts at the stage where the plan fails; always where it does not."""
    if plan.fits is not False or plan.stage is None:
        return True
    if kind == "cuda_graphs" and plan.stage.startswith("kv_cache") and graphs_outside(plan, device):
        return False
    early = plan.stage in ("free_memory_check", "weights")
    return kind in (_BEFORE if early else _RESIDENT) or kind in _ADDED[plan.stage]


def drawn(plan: Plan, device: DevicePlan) -> tuple[Segment, ...]:
    """The segments of a bar from left to right, so that those of the budget lie together."""
    found = [s for s in device.segments if held(plan, device, s.kind)]
    if graphs_outside(plan, device):
        order: dict[SegmentKind, int] = {"cuda_graphs": 1, "headroom": 2}
        found.sort(key=lambda s: order.get(s.kind, 0))
    return tuple(found)


def budget_start(device: DevicePlan) -> int:
    """Where the budget begins: at the end of what was there before the engine looked."""
    return sum(s.bytes for s in device.segments if s.kind in ("driver_reserved", "other", "runtime_outside"))


def used_bytes(plan: Plan, device: DevicePlan) -> int:
    """Everything drawn but the headroom."""
    return sum(s.bytes for s in drawn(plan, device) if s.kind != "headroom")


def telling_kind(plan: Plan, device: DevicePlan) -> SegmentKind | None:
    """The segment that tells most: the cache, what is in the way where the plan fails before it, None without any."""
    if plan.stage == "free_memory_check":
        other = device.segment("other")
        return "other" if other and other.bytes else "runtime_outside"
    kinds = [s.kind for s in drawn(plan, device)]
    telling: tuple[SegmentKind, ...] = ("kv_cache", "weights")
    return next((kind for kind in telling if kind in kinds), None)
