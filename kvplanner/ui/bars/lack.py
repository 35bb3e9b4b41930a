"""What a device lacks when a plan does not fit, told once for bars, table and pictures."""

from __future__ import annotations

from typing import Final, NamedTuple

from kvplanner.engine.base import Plan, Stage
from kvplanner.ui.bars import words
from kvplanner.ui.bars.fold import budget_kinds, budget_start, cache_is_given, used_bytes
from kvplanner.ui.bars.words import Unit

# Stages at which later ones lack more, all measured against the budget.
_BEFORE_THE_CACHE: Final[tuple[Stage, ...]] = ("weights", "profile", "kv_cache_sizing")
# Stages at which the card, not the budget, is too small.
_ON_THE_CARD: Final[tuple[Stage, ...]] = ("weights", "profile", "kv_cache_allocation", "graph_capture", "runtime")


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
    return Lacking(device.total_bytes, used, False) if used > device.total_bytes else None


def _in_all(plan: Plan, worst: bool) -> int | None:
    """Everything in the budget with one full-length request, less the budget."""
    device, cache = plan.devices[plan.tightest], plan.kv_cache
    known = worst and plan.stage in _BEFORE_THE_CACHE and cache is not None and device.budget is not None
    if not known or cache is None or device.budget is None or cache_is_given(plan):
        return None
    kinds = [k for k in budget_kinds(plan, device) if k != "kv_cache"]
    inside = sum(s.bytes for s in device.segments if s.kind in kinds)
    request = sum(group.blocks_per_request for group in cache.groups) * cache.bytes_per_block
    whole = inside + request - device.budget.value
    return whole if whole > plan.missing_bytes * 1.01 else None


def lack_text(lack: Lacking, unit: Unit) -> str:
    """What is missing at the failing stage, and in all where later stages would lack more."""
    short = f"{words.size(lack.bytes, unit)} short"
    return short if lack.in_all is None else f"{short} at this stage, {words.number(lack.in_all, unit)} in all"
