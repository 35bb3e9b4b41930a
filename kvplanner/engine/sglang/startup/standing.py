"""Whether a replica that is planned also stands with other settings: another fraction, another context length.

Only settings that leave its ranks and layouts as they are: what lies before the pools is not planned again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kvplanner.engine.request import PlanRequest
from kvplanner.engine.sglang.kv.pools import Pools, Sizing, Stop, any_length, furnished
from kvplanner.engine.sglang.settings import Settings
from kvplanner.engine.sglang.startup import checks
from kvplanner.engine.sglang.startup.replica import Replica, after_sizing, late_of, pools_of, sizings_of


def has_pools(made: Replica, settings: Settings, *, surely: bool) -> bool:
    """Whether there are pools by the values, or at the low end of the band too."""
    return bool(pools_of(settings, made.layouts, made.ranks, "low" if surely else "value")[0])


def has_room(request: PlanRequest, made: Replica, settings: Settings, *, surely: bool) -> bool:
    """Whether what lives beside the pools has room, if there are any; surely: within the bands."""
    pools, _ = pools_of(settings, made.layouts, made.ranks, "value")
    if not pools:
        return True
    late = [late_of(request, settings, each) for each in pools]
    found = after_sizing(made.ranks, pools, late, settings.fraction)
    return all((check.most if surely else check.missing) <= 0 for check in found)


class AtLength:
    """Whether a replica stands with other context lengths: what a length does not move is worked out once.

    A longer context takes no tokens from the pools but widens the request table, which has to find room in the slack.
    """

    def __init__(self, request: PlanRequest, made: Replica) -> None:
        self._request, self._made = request, made
        self._fixed = all(any_length(layout) for layout in made.layouts)
        self._sizings: dict[str, tuple[Sizing, ...]] = {}
        self._limits: dict[tuple[int, int, int, bool], int] = {}
        self._ranks = list({id(rank): rank for rank in made.ranks}.values())

    def pools(self, length: int, end: str) -> tuple[Pools, ...]:
        """The pools of every stage at an end of the band, none where one of them is refused."""
        made = self._made
        settings = made.settings._replace(context_length=length)
        try:
            if end not in self._sizings or not self._fixed:
                self._sizings[end] = sizings_of(settings, made.layouts, made.ranks, end)
            found = zip(made.layouts, self._sizings[end], strict=True)
            return tuple(furnished(settings, layout, sizing) for layout, sizing in found)
        except Stop:
            return ()

    def has_room(self, pools: Sequence[Pools], *, surely: bool) -> bool:
        """Whether what lives beside these pools has room; surely: within the bands."""
        return all(each.table_bytes + each.list_bytes <= self._limit(stage, each, surely=surely)
                   for stage, each in enumerate(pools))  # fmt: skip

    def _limit(self, stage: int, pools: Pools, *, surely: bool) -> int:
        """What the request table and the free lists of a stage may take."""
        key = stage, pools.requests, pools.allocated, surely
        if key not in self._limits:
            settings = self._made.settings
            late = late_of(self._request, settings, pools)._replace(exact_bytes=0)
            found = [check for rank in self._ranks if rank.stage == stage
                     for check in checks.after_sizing(rank, 0, pools.allocated, late, settings.fraction)]  # fmt: skip
            self._limits[key] = -max(check.most if surely else check.missing for check in found)
        return self._limits[key]


def first(holds: Callable[[int], bool], low: int, high: int, near: int) -> int | None:
    """The least of low + 1 … high where a condition holds that goes on holding above, None where it never does.

    near: where that is expected, so that few are tried.
    """
    at = min(max(near, low + 1), high)
    step = 1
    if holds(at):
        high, at = at, at - step
        while at > low and holds(at):
            high, step = at, 2 * step
            at -= step
        low = max(low, at)
    else:
        low, at = at, at + step
        while at < high and not holds(at):
            low, step = at, 2 * step
            at += step
        if at >= high:
            if not holds(high):
                return None
        else:
            high = at
    while low + 1 < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
