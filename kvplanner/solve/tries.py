"""The plans that a search for remedies makes: each changed request once, and of a lever's steps as few as it allows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kvplanner.engine.command import role_option
from kvplanner.engine.lever import Aim, Lever
from kvplanner.engine.plan import Plan
from kvplanner.engine.registry import engine
from kvplanner.engine.request import PlanRequest
from kvplanner.engine.verdict import Shortfall
from kvplanner.errors import PlannerError
from kvplanner.record import NamedTuple
from kvplanner.solve.candidate import Candidate, candidate_of, is_beyond
from kvplanner.solve.change import stepped
from kvplanner.solve.ranking import served

# How much more a remedy has to serve, to be worth telling.
_GAIN: Final = 1.02
# More than any device has.
_STAGE: Final = 1 << 50


class Tried(NamedTuple):
    """A candidate with its plan."""

    candidate: Candidate
    plan: Plan


def short_of(plan: Plan) -> Shortfall | None:
    """Where a plan fails, else where it may."""
    return plan.verdict.failing or plan.verdict.doubt


class Tries:
    """Plans changes of one request, each once."""

    def __init__(self, request: PlanRequest, plan: Plan, aim: Aim) -> None:
        self.request, self.plan, self.aim = request, plan, aim
        self.engine = engine(request.engine)
        option = role_option(self.engine, request.version, "context")
        self._context = option.name if option is not None else None
        self._failing = short_of(plan) is not None
        self._known: dict[tuple[object, ...], tuple[PlanRequest, Plan | None]] = {}  # which keeps what is named by id
        self._left: int | None = None  # plans that may still be made

    @property
    def spent(self) -> bool:
        """Whether no further plan may be made."""
        return self._left is not None and self._left <= 0

    def planned(self, request: PlanRequest, *, counted: bool = True) -> Plan | None:
        """The plan of a changed request, None where the engine refuses it, nothing can be told or it serves nobody.

        counted: as one of those that may still be made.
        """
        key = id(request.model), id(request.machine), request.weight_format, frozenset(request.options.items())
        known = self._known.get(key)
        if known is not None:
            return known[1]
        if counted and self._left is not None:
            if self.spent:
                return None
            self._left -= 1
        plan = self._plan(request)
        self._known[key] = request, plan
        return plan

    def _plan(self, request: PlanRequest) -> Plan | None:
        if self.aim == "fit" and self._failing and is_beyond(request, self.request, self.plan, self._context):
            return None
        try:
            return self.engine.plan(request)
        except PlannerError:
            return None

    def _hopeless(self, request: PlanRequest) -> bool:
        """Whether a changed request cannot serve more, whatever its plan: then it is not planned."""
        try:
            most = self.engine.serves_at_most(request)
        except PlannerError:
            return True
        return most is not None and most <= served(self.plan) * _length(self.plan) * _GAIN

    def mildest(
        self, request: PlanRequest, before: Plan, lever: Lever, does: Callable[[Plan], bool],
        seen: list[Tried] | None = None, *, worth: bool = False,
    ) -> Tried | None:  # fmt: skip
        """The mildest step of a lever that does, None for none. request, before: what it is pulled of, with its plan.

        seen: gets all that it planned. worth: steps that cannot serve more are not planned.
        """
        tried: dict[int, Tried | None] = {}

        def at(place: int) -> Tried | None:
            if place not in tried:
                changed, changes = stepped(request, lever.steps[place])
                plan = self.planned(changed) if changes and not (worth and self._hopeless(changed)) else None
                found = None if plan is None else Tried(candidate_of(lever, changed, changes), plan)
                tried[place] = found
                if found is not None and seen is not None:
                    seen.append(found)
            held = tried[place]
            return held if held is not None and does(held.plan) else None

        last = len(lever.steps) - 1
        if last < 0:
            return None
        if lever.monotone and last:
            return _by_halves(at, last)
        if lever.ordered and last > 1 and at(0) is None:
            at(last)
            if _alike(tried[0], tried[last]):
                return None
        for place in range(last + 1):
            found, held = at(place), tried[place]
            if found is not None:
                return found
            # One that makes up for nothing is followed by none that does.
            if not lever.ordered and held is not None and short_of(before) and self.gain(before, held.plan) <= 0:
                return None
            before = before if held is None else held.plan
        return None

    def does(self, plan: Plan, aim: Aim) -> bool:
        """Whether a plan is what was looked for."""
        if not plan.fits:
            return False
        load = self.request.load
        if aim == "fit":
            better = plan.sure or not self.plan.fits
            return better and (load is None or bool(plan.limits.serves_users))
        if not plan.sure:
            return False
        if aim == "less":
            before, now = (one.limits.sure_serves_users or 0 for one in (self.plan, plan))
            return now >= before and (load is None or now > 0)
        if aim == "faster":
            return self._is_faster(plan)
        return self.serves_more(plan)

    def _is_faster(self, plan: Plan) -> bool:
        """Whether no weights are left in RAM, and who was served still is."""
        before, now = (one.limits.sure_serves_users or 0 for one in (self.plan, plan))
        return not plan.moved_bytes and now >= before

    def surely(self, plan: Plan) -> bool:
        """Whether a plan surely fits and serves somebody."""
        return plan.sure and self.does(plan, "fit")

    def serves_more(self, plan: Plan) -> bool:
        """Whether it is worth telling that a plan serves more."""
        return served(plan) * _length(plan) > served(self.plan) * _length(self.plan) * _GAIN

    def is_short(self, plan: Plan) -> bool:
        """Whether users of the load are left."""
        load = self.request.load
        return load is not None and (plan.limits.sure_serves_users or 0) < load.users

    def gain(self, before: Plan, after: Plan) -> int:
        """By how much less is missing; a later stage counts for more than any bytes."""
        then, now = short_of(before), short_of(after)
        if then is None or now is None:
            return 0
        order = [rule.stage for rule in self.engine.stages]
        later = order.index(now.stage) - order.index(then.stage) if {now.stage, then.stage} <= {*order} else 0
        return later * _STAGE + then.most_bytes - now.most_bytes if later >= 0 else 0


def _length(plan: Plan) -> int:
    """What plans without a load are compared by as well: an engine may shorten the context itself."""
    return 1 if plan.request.load or plan.kv_cache is None else plan.kv_cache.context_length


def _by_halves(at: Callable[[int], Tried | None], last: int) -> Tried | None:
    """The first place that does where none below one that does not does; the strongest is tried first."""
    best = at(last)
    below, above, middle = -1, last, 0  # the mildest often does
    while best is not None and above - below > 1:
        found = at(middle)
        if found is None:
            below = middle
        else:
            best, above = found, middle
        middle = (below + above) // 2
    return best


def _alike(one: Tried | None, other: Tried | None) -> bool:
    """Whether two plans fall short at one stage."""
    first, second = (short_of(tried.plan) if tried is not None else None for tried in (one, other))
    return first is not None and second is not None and first.stage == second.stage
