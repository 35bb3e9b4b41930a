"""The fractions that work: from the least that leaves pools to the largest that leaves room beside them.

The two failures ask for opposite moves, so a plan names both ends.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from kvplanner.engine.plan import WorkingRange
from kvplanner.engine.request import PlanRequest
from kvplanner.engine.sglang.settings import Settings
from kvplanner.engine.sglang.startup.replica import Replica, after_sizing
from kvplanner.engine.sglang.startup.standing import first, has_pools, has_room
from kvplanner.record import NamedTuple

_STEPS: Final = 1000  # --mem-fraction-static is written with three digits
_OPTION: Final = "mem_fraction_static"


class FractionWindow(NamedTuple):
    """least: of --mem-fraction-static, below which there are no pools; most: above which graphs or steps lack room.

    None where no fraction does. least may lie above most: then no fraction works. sure_least, sure_most: the same
    within every band.
    """

    least: float | None
    most: float | None
    sure_least: float | None = None
    sure_most: float | None = None

    @property
    def open(self) -> bool:
        """Whether some fraction works."""
        return self.least is not None and self.most is not None and self.least <= self.most

    @property
    def range(self) -> WorkingRange | None:
        """The window as any form can draw it, None where nothing is known of it."""
        if self.least is None and self.most is None:
            return None
        return WorkingRange(_OPTION, self.least, self.most, self.sure_least, self.sure_most,
                            "no KV cache", "no room for CUDA graphs and steps")  # fmt: skip


def fraction_window(request: PlanRequest, replicas: Sequence[Replica]) -> FractionWindow:
    """The window of all replicas, to a thousandth: by the values of the estimates, and within their bands."""
    distinct = {tuple(id(rank) for rank in made.ranks): made for made in replicas}.values()
    if any(rank.given_kv is not None for made in distinct for rank in made.ranks):
        return FractionWindow(None, None)  # no fraction decides a given cache
    found = [_window(request, made) for made in distinct]
    return FractionWindow(
        least=_highest([window.least for window in found]),
        most=_lowest([window.most for window in found]),
        sure_least=_highest([window.sure_least for window in found]),
        sure_most=_lowest([window.sure_most for window in found]),
    )


def _highest(ends: Sequence[float | None]) -> float | None:
    known = [end for end in ends if end is not None]
    return max(known) if len(known) == len(ends) else None


def _lowest(ends: Sequence[float | None]) -> float | None:
    known = [end for end in ends if end is not None]
    return min(known) if len(known) == len(ends) else None


def _window(request: PlanRequest, made: Replica) -> FractionWindow:
    tightest = min(made.ranks, key=lambda rank: rank.after.value)
    if min(rank.before.value for rank in made.ranks) <= 0 or tightest.after.value <= 0:
        return FractionWindow(None, None)

    def at(step: int) -> Settings:
        return made.settings._replace(fraction=step / _STEPS)

    def least(*, surely: bool) -> float | None:
        before, after = ((tightest.before.low, tightest.after.low) if surely else
                         (tightest.before.value, tightest.after.value))  # fmt: skip
        near = math.ceil((1 - after / max(before, 1)) * _STEPS)
        step = first(lambda n: has_pools(made, at(n), surely=surely), 0, _STEPS - 1, near)
        return None if step is None else step / _STEPS

    def most(near: int, *, surely: bool) -> float | None:
        step = first(lambda n: not has_room(request, made, at(n), surely=surely), 0, _STEPS - 1, near)
        largest = _STEPS - 1 if step is None else step - 1
        return largest / _STEPS if largest > 0 else None

    expected = _expected(made)
    sure = None if tightest.after.low <= 0 else least(surely=True)
    return FractionWindow(least(surely=False), most(expected[0], surely=False), sure, most(expected[1], surely=True))


def _expected(made: Replica) -> tuple[int, int]:
    """Where the largest fraction probably ends, by the values and surely: what is lacking now, as a share."""
    if not made.pools:
        return _STEPS * 9 // 10, _STEPS * 8 // 10
    pools = {rank.stage: made.pools[rank.stage] for rank in made.ranks}
    late = {rank.stage: made.late[index] for index, rank in enumerate(made.ranks)}
    stages = sorted(pools)
    found = after_sizing(made.ranks, [pools[n] for n in stages], [late[n] for n in stages], made.settings.fraction)
    before = min(rank.before.value for rank in made.ranks)
    lacking = max(check.missing for check in found), max(check.most for check in found)
    now = made.settings.fraction
    return math.floor((now - lacking[0] / before) * _STEPS) + 1, math.floor((now - lacking[1] / before) * _STEPS) + 1
