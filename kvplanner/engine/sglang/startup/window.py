"""The fractions that work: from the least that leaves pools to the largest that leaves room beside them.

The two failures ask for opposite moves, so a plan names both ends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from kvplanner.engine.request import PlanRequest
from kvplanner.engine.sglang.kv.pools import Measured, Pools, solve
from kvplanner.engine.sglang.startup.rank import eager
from kvplanner.engine.sglang.startup.replica import Replica

_STEPS = 1000  # --mem-fraction-static is written with three digits


class FractionWindow(NamedTuple):
    """least: of --mem-fraction-static, below which there are no pools; most: above which graphs or steps lack room.

    None where no fraction does. least may lie above most: then no fraction works.
    """

    least: float | None
    most: float | None

    @property
    def open(self) -> bool:
        """Whether some fraction works."""
        return self.least is not None and self.most is not None and self.least <= self.most


def fraction_window(request: PlanRequest, made: Replica) -> FractionWindow:
    """The window of a replica, to a thousandth, by the values of its estimates."""
    ranks = {id(rank): rank for rank in made.ranks}.values()
    before = min(rank.before.value for rank in ranks)
    after = min(rank.after.value for rank in ranks)
    if before <= 0 or after <= 0:
        return FractionWindow(None, None)
    measured = Measured(before, after)
    room = [(r.stage, r.after.value - r.workspace.value - r.graphs.value - r.late.value) for r in ranks]

    def pools_at(step: int) -> tuple[Pools, ...] | None:
        settings = made.settings._replace(fraction=step / _STEPS)
        found = [solve(settings, layout, measured) for layout in made.layouts]
        sized = tuple(pools for pools in found if isinstance(pools, Pools))
        return sized if len(sized) == len(found) else None

    def has_room(step: int) -> bool:
        sized = pools_at(step)
        if sized is None:
            return True
        for stage, left in room:
            pools = sized[stage]
            step_bytes = eager(request, request.model.spec, made.settings, pools.requests).value
            if pools.bytes + pools.draft_bytes + pools.table_bytes + pools.list_bytes + step_bytes > left:
                return False
        return True

    least = _first(lambda step: pools_at(step) is not None)
    most = _first(lambda step: not has_room(step))
    largest = _STEPS - 1 if most is None else most - 1
    return FractionWindow(None if least is None else least / _STEPS, largest / _STEPS if largest > 0 else None)


def _first(holds: Callable[[int], bool]) -> int | None:
    """The least step where a condition holds that goes on holding above, None where it never does."""
    low, high = 0, _STEPS
    if not holds(high - 1):
        return None
    while low + 1 < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
