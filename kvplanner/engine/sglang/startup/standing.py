"""Whether a replica that is planned also stands with other settings: another fraction, another context length.

Only settings that leave its ranks and layouts as they are: what lies before the pools is not planned again.
"""

from __future__ import annotations

from collections.abc import Callable

from kvplanner.engine.request import PlanRequest
from kvplanner.engine.sglang.settings import Settings
from kvplanner.engine.sglang.startup.replica import Replica, after_sizing, late_of, pools_of


def has_pools(made: Replica, settings: Settings, *, surely: bool) -> bool:
    """Whether there are pools by the values, or at the low end of the band too."""
    return bool(pools_of(settings, made.layouts, made.ranks, "low" if surely else "value")[0])


def has_room(request: PlanRequest, made: Replica, settings: Settings, *, surely: bool) -> bool:
    """Whether what lives beside the pools has room, if there are any; surely: within the bands."""
    pools, _ = pools_of(settings, made.layouts, made.ranks, "value")
    if not pools:
        return True
    late = [late_of(request, settings, each) for each in pools]
    checks = after_sizing(made.ranks, pools, late, settings.fraction)
    return all((check.most if surely else check.missing) <= 0 for check in checks)


def stands(request: PlanRequest, made: Replica, settings: Settings, *, surely: bool) -> bool:
    """Whether start-up comes to its end."""
    return has_pools(made, settings, surely=surely) and has_room(request, made, settings, surely=surely)


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
