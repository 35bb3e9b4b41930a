"""What a device holds at the stage where a plan fails, where the budget lies, and what is missing there.

Told once for pictures, tables, reports and files.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from kvplanner.engine.plan import DevicePlan, Plan, Stage
from kvplanner.engine.segment import BUDGET_KINDS, Segment, SegmentKind

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
# Stages at which later ones lack more, all measured against the budget.
_BEFORE_THE_CACHE: Final[tuple[Stage, ...]] = ("weights", "profile", "kv_cache_sizing")
# Stages at which the card, not the budget, is too small.
_ON_THE_CARD: Final[tuple[Stage, ...]] = ("weights", "profile", "kv_cache_allocation", "graph_capture", "runtime")


def graphs_outside(device: DevicePlan) -> bool:
    """Whether CUDA graphs are captured after the cache, outside the budget."""
    graphs = device.segment("cuda_graphs")
    return device.budget is not None and graphs is not None and graphs.bytes > 0 and not device.graphs_charged


def budget_kinds(device: DevicePlan) -> tuple[SegmentKind, ...]:
    """The kinds that lie inside the budget, by the rules of the device's plan."""
    return tuple(k for k in BUDGET_KINDS if k != "cuda_graphs" or not graphs_outside(device))


def charged_kinds(plan: Plan, device: DevicePlan) -> tuple[SegmentKind, ...]:
    """The kinds that the budget has to hold: none without a budget, and no cache whose size is given."""
    if device.budget is None:
        return ()
    return tuple(k for k in budget_kinds(device) if k != "kv_cache" or not cache_is_given(plan))


def cache_is_given(plan: Plan) -> bool:
    """Whether the cache's size is given, so that utilisation does not decide it."""
    flags = (plan.options.get(name) for name in ("kv_cache_memory_bytes", "num_gpu_blocks_override"))
    return any(flag is not None and flag.value for flag in flags) or "kv_cache" in plan.request.measured


def held(plan: Plan, device: DevicePlan, kind: SegmentKind) -> bool:
    """Whether a segment counts at the stage where the plan fails; always where it does not."""
    if plan.fits is not False or plan.stage is None:
        return True
    if kind == "cuda_graphs" and plan.stage.startswith("kv_cache") and graphs_outside(device):
        return False
    early = plan.stage in ("free_memory_check", "weights")
    return kind in (_BEFORE if early else _RESIDENT) or kind in _ADDED[plan.stage]


def drawn(plan: Plan, device: DevicePlan) -> tuple[Segment, ...]:
    """The segments of a bar from left to right, so that those of the budget lie together."""
    found = [s for s in device.segments if held(plan, device, s.kind)]
    if graphs_outside(device):
        order: dict[SegmentKind, int] = {"cuda_graphs": 1, "headroom": 2}
        found.sort(key=lambda s: order.get(s.kind, 0))
    return tuple(found)


def budget_start(device: DevicePlan) -> int:
    """Where the budget begins: at the end of what was there before the engine looked."""
    return sum(s.bytes for s in device.segments if s.kind in ("driver_reserved", "other", "runtime_outside"))


def used_bytes(plan: Plan, device: DevicePlan) -> int:
    """Everything drawn but the headroom."""
    return sum(s.bytes for s in drawn(plan, device) if s.kind != "headroom")


class Lacking(NamedTuple):
    """From where to where (bytes) a device lacks memory; asked: nothing stands there yet, it is only wanted.

    in_all: what the device lacks until one full-length request fits, None where that is not known or no more.
    """

    start: int
    end: int
    asked: bool
    in_all: int | None = None

    @property
    def bytes(self) -> int:
        """What is missing at the failing stage."""
        return self.end - self.start


def alike(plan: Plan, position: int) -> tuple[int, ...]:
    """Positions of all devices that hold the same as this one."""

    def sizes(device: DevicePlan) -> tuple[object, ...]:
        parts = tuple((s.kind, s.bytes) for s in device.segments)
        return device.total_bytes, device.budget.value if device.budget else None, parts

    wanted = sizes(plan.devices[position])
    return tuple(p for p, device in enumerate(plan.devices) if sizes(device) == wanted)


def lack_of(plan: Plan, positions: tuple[int, ...]) -> Lacking | None:
    """What a device lacks, None where it lacks nothing."""
    device = plan.devices[positions[0]]
    used = used_bytes(plan, device)
    worst = plan.tightest in positions
    if plan.fits is not False or not plan.missing_bytes:
        return Lacking(device.total_bytes, used, False) if used > device.total_bytes else None
    end = budget_start(device) + device.budget.value if device.budget else device.total_bytes
    if plan.stage == "free_memory_check" and end > device.total_bytes:
        return Lacking(device.total_bytes, end, True)
    if plan.stage in _ON_THE_CARD and (used > device.total_bytes or worst):
        over = max(used - device.total_bytes, plan.missing_bytes if worst else 0)
        return Lacking(device.total_bytes, device.total_bytes + over, used <= device.total_bytes, _in_all(plan, worst))
    if used > end and plan.stage == "kv_cache_sizing":
        return Lacking(end, used, False, _in_all(plan, worst))
    if worst:
        return Lacking(used, used + plan.missing_bytes, True)
    if plan.stage == "kv_cache_too_small" and (missing := _beside_the_worst(plan, positions[0])) > 0:
        return Lacking(used, used + missing, True)
    return Lacking(device.total_bytes, used, False) if used > device.total_bytes else None


def _beside_the_worst(plan: Plan, position: int) -> int:
    """What another replica's cache lacks, told from what the worst one lacks, within a block; at most 0 for nothing.

    Ranks of one replica hold equally many blocks, so beside the worst rank of its own none lacks more.
    """
    replica, worst = (plan.devices[p].role.partition("/")[0] for p in (position, plan.tightest))
    if replica == worst or not replica.startswith("dp"):
        return 0
    cache, least = (plan.devices[p].segment("kv_cache") for p in (position, plan.tightest))
    return plan.missing_bytes + (least.bytes if least else 0) - (cache.bytes if cache else 0)


def _in_all(plan: Plan, worst: bool) -> int | None:
    """Everything in the budget with one full-length request, less the budget."""
    device, cache = plan.devices[plan.tightest], plan.kv_cache
    known = worst and plan.stage in _BEFORE_THE_CACHE and cache is not None and device.budget is not None
    if not known or cache is None or device.budget is None or cache_is_given(plan):
        return None
    kinds = [k for k in budget_kinds(device) if k != "kv_cache"]
    inside = sum(s.bytes for s in device.segments if s.kind in kinds)
    request = sum(group.blocks_per_request for group in cache.groups) * cache.bytes_per_block
    whole = inside + request - device.budget.value
    return whole if whole > plan.missing_bytes * 1.01 else None
