"""One setting over its range, or several against each other: what the plan says at each point.

Points come one by one, so that whoever shows them can stop. Every point is a plan of its own but for users: how many
of a load's users are served never changes what is planned, so one plan stands for all of their number.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import product

from kvplanner.engine.option import OptionValue
from kvplanner.engine.plan import Limits, Plan
from kvplanner.engine.registry import engine
from kvplanner.engine.request import PlanRequest
from kvplanner.engine.verdict import Certainty
from kvplanner.errors import BadInput, PlannerError
from kvplanner.record import NamedTuple
from kvplanner.solve.axis import MOST_POINTS, RELEASE, USERS, Axis
from kvplanner.solve.change import GPUS, WEIGHT_FORMAT
from kvplanner.solve.others import more_gpus


class Point(NamedTuple):
    """values: one for each axis. refused: why there is no plan, "" where there is one.

    limit: what stops it first, as far as the bands allow: a stage of start-up, then why not all users are served;
    "" for nothing. missing_bytes: at the failing stage. users: that the load asks for here. The others as in a plan's
    cache and limits; None where there is nothing to tell.
    """

    values: tuple[OptionValue, ...]
    fits: bool | None = None
    sure: bool = False
    certainty: Certainty | None = None
    stage: str | None = None
    limit: str = ""
    missing_bytes: int = 0
    available_bytes: int | None = None
    tokens: int | None = None
    tokens_low: int | None = None
    tokens_high: int | None = None
    max_concurrency: float | None = None
    users: int | None = None
    serves_users: int | None = None
    sure_serves_users: int | None = None
    refused: str = ""

    def works(self, *, surely: bool) -> bool:
        """Whether it starts and serves the users that are asked for, by the values or at every band's worse end."""
        if not self.fits or (surely and not self.sure):
            return False
        served = self.sure_serves_users if surely else self.serves_users
        return self.users is None or (served or 0) >= self.users


def sweep(request: PlanRequest, axes: Sequence[Axis]) -> Iterator[Point]:
    """Every combination of the axes' values, the last axis the fastest. Raises BadInput for none, and for too many."""
    count = 1
    for axis in axes:
        count *= len(axis.values)
    if not axes or not 1 <= count <= MOST_POINTS:
        raise BadInput(f"{count:,} points are too many" if axes else "nothing is varied", "--over",
                       f"Give fewer --points: {MOST_POINTS:,} in all at most")  # fmt: skip
    return _points(request, axes)


def _points(request: PlanRequest, axes: Sequence[Axis]) -> Iterator[Point]:
    crowd = max((int(value) for axis in axes if axis.name == USERS for value in axis.values), default=None)
    kept: dict[tuple[OptionValue, ...], Plan | str] = {}
    for values in product(*(axis.values for axis in axes)):
        if crowd is None:
            yield point(values, planned(changed(request, axes, values)))
            continue
        users = next(int(v) for axis, v in zip(axes, values, strict=True) if axis.name == USERS)
        key = tuple(v for axis, v in zip(axes, values, strict=True) if axis.name != USERS)
        found = kept.get(key)
        if found is None:
            most = tuple(crowd if axis.name == USERS else v for axis, v in zip(axes, values, strict=True))
            found = kept[key] = planned(changed(request, axes, most))
        yield point(values, found if isinstance(found, str) else for_users(found, users))


def changed(request: PlanRequest, axes: Sequence[Axis], values: Sequence[OptionValue]) -> PlanRequest:
    """The request with a value of each axis."""
    for axis, value in zip(axes, values, strict=True):
        if axis.name == USERS and request.load is not None:
            request = request._replace(load=request.load._replace(users=int(value)))
        elif axis.name == RELEASE:
            request = request._replace(version=str(value))
        elif axis.name == WEIGHT_FORMAT:
            own = value == request.model.weight_format
            request = request._replace(weight_format=None if own else str(value))
        elif axis.name == GPUS:
            request = request._replace(machine=more_gpus(request.machine, int(value)))
        else:
            request = request._replace(options={**request.options, axis.name: value})
    return request


def planned(request: PlanRequest) -> Plan | str:
    """The plan of a request, or why there is none."""
    try:
        return engine(request.engine).plan(request)
    except PlannerError as error:
        return error.what


def for_users(plan: Plan, users: int) -> Plan:
    """A plan whose load has more users, as one of `users`: they are served up to what the larger plan serves."""
    load = plan.request.load
    if load is None:
        return plan
    return plan._replace(request=plan.request._replace(load=load._replace(users=users)),
                         limits=_served(plan.limits, users))  # fmt: skip


def _served(limits: Limits, users: int) -> Limits:
    value, sure = limits.serves_users, limits.sure_serves_users
    return limits._replace(
        serves_users=None if value is None else min(value, users),
        sure_serves_users=None if sure is None else min(sure, users),
        limited_by=limits.limited_by if (value or 0) < users else "",
    )


def point(values: tuple[OptionValue, ...], plan: Plan | str) -> Point:
    """What a plan says, or why there is none."""
    if isinstance(plan, str):
        return Point(values, refused=plan)
    verdict, cache, load = plan.verdict, plan.kv_cache, plan.request.load
    short = verdict.failing or verdict.doubt
    found = Point(
        values, plan.fits, plan.sure, verdict.certainty, plan.stage,
        short.stage if short is not None else plan.limits.limited_by,
        plan.missing_bytes,
        users=load.users if load else None,
        serves_users=plan.limits.serves_users if load else None,
        sure_serves_users=plan.limits.sure_serves_users if load else None,
    )  # fmt: skip
    if cache is None:
        return found
    return found._replace(
        available_bytes=cache.available.value,
        tokens=cache.tokens,
        tokens_low=cache.tokens_low,
        tokens_high=cache.tokens_high,
        max_concurrency=cache.max_concurrency,
    )


def runs(points: Iterable[Point], *, surely: bool) -> tuple[tuple[OptionValue, OptionValue], ...]:
    """The stretches of a sweep over one axis in which it works, each by its first and its last value."""
    found: list[list[OptionValue]] = []
    before = False
    for one in points:
        works = one.works(surely=surely)
        if works and before:
            found[-1][1] = one.values[0]
        elif works:
            found.append([one.values[0], one.values[0]])
        before = works
    return tuple((first, last) for first, last in found)


def home(plan: Plan, axes: Sequence[Axis], points: Sequence[Point]) -> int:
    """The position of the point that is nearest to what a plan itself has."""
    at = 0
    for axis in axes:
        at = at * len(axis.values) + _nearest(_own(plan, axis), axis.values)
    return min(at, max(len(points) - 1, 0))


def _own(plan: Plan, axis: Axis) -> OptionValue | None:
    """The value that a plan has of an axis."""
    request = plan.request
    if axis.name == USERS:
        return request.load.users if request.load else None
    if axis.name == RELEASE:
        return request.version or engine(request.engine).versions[0]
    if axis.name == WEIGHT_FORMAT:
        return request.weight_format or request.model.weight_format
    if axis.name == GPUS:
        return len(request.machine.devices)
    resolved = plan.options.get(axis.name)
    return resolved.value if resolved else None


def _nearest(value: OptionValue | None, values: Sequence[OptionValue]) -> int:
    if value in values:
        return values.index(value)
    numbers = [(abs(v - value), i) for i, v in enumerate(values)
               if not isinstance(v, str) and value is not None and not isinstance(value, str)]  # fmt: skip
    return min(numbers)[1] if numbers else 0
