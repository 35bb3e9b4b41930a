"""Plans that a search tries, each made once; whether one works, what is in its way, and where a range's edge lies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final

from kvplanner.engine.command import role_option
from kvplanner.engine.option import Option, OptionValue, Role
from kvplanner.engine.plan import Plan
from kvplanner.engine.registry import engine
from kvplanner.engine.request import PlanRequest
from kvplanner.errors import BadInput, PlannerError
from kvplanner.record import NamedTuple
from kvplanner.solve.change import Change

_POINTS: Final = 48  # of a range, that are looked at where a search by halves might be misled


class Trial(NamedTuple):
    """A changed request with the value that it stands for."""

    value: OptionValue
    request: PlanRequest
    changes: tuple[Change, ...]


class Trials:
    """Plans of one request's changes, each made once."""

    def __init__(self, request: PlanRequest, check: Callable[[], None] | None = None) -> None:
        self.request = request
        self.engine = engine(request.engine)
        self._check = check
        self.plan = cache(self._plan)

    def option(self, role: Role, asked: str) -> Option:
        """The option of a role. Raises BadInput where the engine has none, naming what was asked."""
        found = role_option(self.engine, self.request.version, role)
        if found is None:
            raise BadInput(f"{self.engine.title} has no setting for that", f"--solve {asked}", "Solve another one")
        return found

    def with_options(self, value: OptionValue, options: dict[str, OptionValue], **fields: Any) -> Trial:
        """A trial with options set."""
        changes = tuple(Change(name, v) for name, v in options.items() if self.request.options.get(name) != v)
        request = self.request._replace(options={**self.request.options, **options}, **fields)
        return Trial(value, request, changes)

    def works(self, make: Callable[..., Trial], *at: object, surely: bool) -> bool:
        """Whether a trial's plan does."""
        return works(self.plan(make, *at)[1], surely=surely)

    def _plan(self, make: Callable[..., Trial], *at: object) -> tuple[Trial, Plan | None]:
        trial = make(*at)
        if self._check is not None:
            self._check()
        try:
            return trial, self.engine.plan(trial.request)
        except PlannerError:
            return trial, None


def works(plan: Plan | None, *, surely: bool) -> bool:
    """Whether a plan starts and carries its load, by the values or surely."""
    if plan is None or not plan.fits or (surely and not plan.sure):
        return False
    load, limits = plan.request.load, plan.limits
    served = limits.sure_serves_users if surely else limits.serves_users
    return load is None or (served or 0) >= load.users


def starts(plan: Plan | None, *, surely: bool) -> bool:
    """Whether a plan starts, whatever load it carries."""
    return plan is not None and bool(plan.sure if surely else plan.fits)


def bound(plan: Plan | None, *, surely: bool) -> str:
    """What is in the way of a plan that does not work, "" where nothing is."""
    if plan is None:
        return "engine"
    short = plan.verdict.failing or (plan.verdict.doubt if surely else None)
    if short is not None and (surely or not plan.fits):
        return short.stage
    return plan.limits.limited_by or ("kv_cache" if not works(plan, surely=surely) else "")


def largest(low: int, high: int, does: Callable[[int], bool], hints: Sequence[int] = ()) -> int | None:
    """The largest number of [low, high] that does; None for none.

    hints: where the edge probably lies. The range is scanned from above at even points, so that a number below which
    something does not work hides none above; between two points the edge is found by halves.
    """
    if high < low:
        return None
    if does(high):
        return high
    points = sorted({low, high, *(p for hint in hints for p in (hint, hint + 1) if low <= p <= high),
                     *(low + (high - low) * part // _POINTS for part in range(_POINTS))})  # fmt: skip
    place = next((at for at in range(len(points) - 2, -1, -1) if does(points[at])), None)
    if place is None:
        return None
    below, above = points[place], points[place + 1]
    while below + 1 < above:
        middle = (below + above) // 2
        below, above = (middle, above) if does(middle) else (below, middle)
    return below
