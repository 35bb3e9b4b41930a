"""Remedies: what to change so that a plan works, or serves more; every one of them planned, none promised unseen.

Single changes first, then the cheapest pairs; where none of them surely does, another model or machine together with
one or two changes beside it. Each remedy carries the plan of the changed request, so that applying it
gives that plan to the byte.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from typing import Final

from kvplanner.engine.command import role_option
from kvplanner.engine.lever import WEIGHT, Aim, Lever, Loss
from kvplanner.engine.plan import Plan
from kvplanner.engine.registry import engine
from kvplanner.engine.request import PlanRequest
from kvplanner.engine.verdict import Shortfall
from kvplanner.errors import PlannerError
from kvplanner.record import NamedTuple
from kvplanner.solve.candidate import Candidate, candidate_of, is_beyond
from kvplanner.solve.change import Change, merged, stepped
from kvplanner.solve.ranking import ranked, served

# How much more a remedy has to serve, to be worth telling.
_GAIN: Final = 1.02
_ENOUGH: Final = 3
# What a format costs beside its loss: somebody has to make such a repository first.
_UNPUBLISHED: Final = 4
_MOST_PAIRS: Final = 4
_MOST_BESIDE: Final = 2
# A second change beside a shorter context has to keep so much more of it.
_LONGER: Final = 1.25
# Plans that a search for pairs may make: those of one change that helps a little, each with the changes beside it.
_PAIR_PLANS: Final = 12
# The same for each other model or machine with one or two changes beside it.
_MORE_PLANS: Final = 12
_MOST_COMPLETED: Final = 3
_MOST_PARTS: Final = 3
# What no other change is set beside: it makes everything slow, or is another machine.
_NOT_BESIDE: Final[tuple[Loss, ...]] = ("slow", "hardware")
# Further machines that also do, but do not serve all users.
_MOST_OF_GROUP: Final = 2
# More than any device has.
_STAGE: Final = 1 << 50


class Remedy(NamedTuple):
    """A change, or several, with the plan that they give.

    names: of the levers. costs: in plain words, one for each lever. stage_before: where the plan failed, None where it
    did not.
    """

    names: tuple[str, ...]
    changes: tuple[Change, ...]
    request: PlanRequest
    plan: Plan
    costs: tuple[str, ...]
    losses: tuple[Loss, ...]
    aim: Aim
    stage_before: str | None

    @property
    def sure(self) -> bool:
        """Whether it works at the unfavourable end of every band too."""
        return self.plan.sure

    @property
    def weight(self) -> int:
        """How much it costs, for the order."""
        made = _UNPUBLISHED if "weight_format" in self.names else 0
        return sum(WEIGHT[loss] for loss in self.losses) + len(self.losses) - 1 + made


class _Begun(NamedTuple):
    """Changes that do not do, with their plan; useless: levers that gained nothing beside those before the last."""

    parts: tuple[Candidate, ...]
    plan: Plan
    useless: frozenset[str] = frozenset()


# More candidates than an engine's levers: other checkpoints, other machines. Given the request and its plan, in groups
# of which the first that does is meant.
More = Callable[[PlanRequest, Plan], Iterator[tuple[Candidate, ...]]]


def aim_of(plan: Plan) -> Aim:
    """What a plan needs: to fit, where it does not surely; else to serve more."""
    return "more" if plan.sure else "fit"


def _length(plan: Plan) -> int:
    """What plans without a load are compared by as well: an engine may shorten the context itself."""
    return 1 if plan.request.load or plan.kv_cache is None else plan.kv_cache.context_length


def remedies(request: PlanRequest, plan: Plan, more: More | None = None) -> tuple[Remedy, ...]:
    """All remedies of a plan, ranked."""
    return ranked(tuple(found(request, plan, more)))


def found(request: PlanRequest, plan: Plan, more: More | None = None) -> Iterator[Remedy]:
    """Remedies as they are found, one plan or few between two of them, so that a worker can stop in between."""
    aim = aim_of(plan)
    search = _Search(request, plan, aim)
    sure = 0
    losses: set[Loss] = set()  # of those that surely do
    for remedy in chain(search.singles(), search.others(more) if more else ()):
        sure += remedy.sure and remedy.weight <= WEIGHT["features"] and remedy.aim == aim
        losses |= {*remedy.losses} if remedy.sure else set()
        yield remedy
    yield from search.settled()
    if aim != "fit" or sure >= _ENOUGH:
        return
    for remedy in search.pairs():
        sure += remedy.sure and not {*remedy.losses} & {*_NOT_BESIDE}
        yield remedy
    if not sure:
        yield from search.completed(machines="hardware" not in losses)


class _Search:
    """One search: what was tried, and what helped a little."""

    def __init__(self, request: PlanRequest, plan: Plan, aim: Aim) -> None:
        self.request, self.plan, self.aim = request, plan, aim
        self.engine = engine(request.engine)
        option = role_option(self.engine, request.version, "context")
        self._context = option.name if option is not None else None
        self._failing = self._short_of(plan) is not None
        self._partly: list[tuple[Candidate, Plan]] = []
        self._left = _PAIR_PLANS
        self._enough: dict[str, Remedy] = {}  # by lever: those that surely do alone
        self._tried: list[list[tuple[Candidate, Plan]]] = []  # other models and machines that do not do alone
        self._doubtful: list[tuple[Candidate, Plan]] = []  # serve more, and may not start

    def planned(self, request: PlanRequest) -> Plan | None:
        """The plan of a changed request, None where the engine refuses it, nothing can be told or it serves nobody."""
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

    def singles(self) -> Iterator[Remedy]:
        """One lever at a time, each at its mildest step that does."""
        for lever in self.engine.levers(self.request, self.plan):
            for aim in lever.aims:
                if aim == self.aim or aim == "less":
                    remedy = self._pull(lever, aim)
                    if remedy is not None:
                        yield self._lengthened(remedy)

    def others(self, more: More) -> Iterator[Remedy]:
        """Other models and machines."""
        for group in more(self.request, self.plan):
            tried: list[tuple[Candidate, Plan]] = []
            done = 0
            for candidate in group:
                if self.aim == "more" and self._hopeless(candidate.request):
                    continue
                plan = self.planned(candidate.request)
                if plan is not None and plan.sure and self._does(plan, self.aim):
                    yield self._remedy((candidate,), plan, self.aim)
                    done += 1
                    if done == _MOST_OF_GROUP or not self._short(plan):
                        break
                elif plan is not None:
                    tried.append((candidate, plan))
                    self._doubt(candidate, plan)
            self._tried.append(tried)

    def _pull(self, lever: Lever, aim: Aim) -> Remedy | None:
        """The mildest step that surely does, else one that may; what helps without doing is kept for pairs."""
        if not lever.steps:
            return None
        maybe: Remedy | None = None
        first: tuple[Candidate, Plan] | None = None
        if lever.monotone and len(lever.steps) > 1:
            strongest = self._try(lever, -1, aim)
            if strongest is None or not self._does(strongest[1], aim):
                self._keep(strongest)
                return None
        for place in range(len(lever.steps)):
            tried = self._try(lever, place, aim)
            if tried is None:
                continue
            first = first or tried
            self._doubt(*tried)
            if self._does(tried[1], aim):
                remedy = self._remedy((tried[0],), tried[1], aim)
                if remedy.sure:
                    self._enough[lever.name] = remedy
                    return remedy
                maybe = maybe or remedy
        if maybe is None:
            self._keep(first)
        return maybe

    def _try(self, lever: Lever, place: int, aim: Aim) -> tuple[Candidate, Plan] | None:
        request, changes = stepped(self.request, lever.steps[place])
        plan = self.planned(request) if changes and not (aim == "more" and self._hopeless(request)) else None
        return None if plan is None else (candidate_of(lever, request, changes), plan)

    def _short(self, plan: Plan) -> bool:
        """Whether users of the load are left."""
        load = self.request.load
        return load is not None and (plan.limits.sure_serves_users or 0) < load.users

    def _does(self, plan: Plan, aim: Aim) -> bool:
        if not plan.fits:
            return False
        load = self.request.load
        if aim == "fit":
            better = plan.sure or not self.plan.fits
            return better and (load is None or bool(plan.limits.serves_users))
        if not plan.sure:
            return False
        if aim == "less":
            return (plan.limits.sure_serves_users or 0) >= (self.plan.limits.sure_serves_users or 0)
        return self._serves_more(plan)

    def _serves_more(self, plan: Plan) -> bool:
        return served(plan) * _length(plan) > served(self.plan) * _length(self.plan) * _GAIN

    def _remedy(self, parts: tuple[Candidate, ...], plan: Plan, aim: Aim) -> Remedy:
        return Remedy(
            names=tuple(part.name for part in parts),
            changes=merged([change for part in parts for change in part.changes]),
            request=parts[-1].request,
            plan=plan,
            costs=tuple(part.cost for part in parts),
            losses=tuple(part.loss for part in parts),
            aim=aim,
            stage_before=self.plan.stage,
        )

    # pairs -----------------------------------------------------------------------------------------------------

    def _keep(self, tried: tuple[Candidate, Plan] | None) -> None:
        """A change that does not do alone, if it helps: another stage is in the way now, or less is missing there."""
        if tried is None:
            return
        before, now = self._short_of(self.plan), self._short_of(tried[1])
        if before is not None and now is not None and (now.stage != before.stage or now.most_bytes < before.most_bytes):
            self._partly.append(tried)

    @staticmethod
    def _short_of(plan: Plan) -> Shortfall | None:
        return plan.verdict.failing or plan.verdict.doubt

    def pairs(self) -> Iterator[Remedy]:
        """A change that helps, and one more beside it; the cheapest first."""
        self._partly.sort(key=lambda tried: WEIGHT[tried[0].loss])
        self._left, pairs, seen = _PAIR_PLANS, 0, set[frozenset[str]]()
        for first, plan in self._partly:
            for lever in sorted(self.engine.levers(first.request, plan), key=lambda lever: WEIGHT[lever.loss]):
                names = frozenset((first.name, lever.name))
                if self._left <= 0 or pairs >= _MOST_PAIRS:
                    return
                if len(names) < 2 or names in seen or "fit" not in lever.aims or not self._worth(first, lever):
                    continue
                seen.add(names)
                remedy = self._beside(first, lever)
                if remedy is not None and self._keeps_more(remedy, lever):
                    yield self._lengthened(remedy)
                    pairs += 1

    def _beside(self, first: Candidate, lever: Lever, aim: Aim = "fit") -> Remedy | None:
        """A lever at its mildest step that surely does beside a first change."""
        steps = list(lever.steps)
        if lever.monotone and len(steps) > 1:
            steps.insert(0, steps.pop())
        strongest: Remedy | None = None
        for place, step in enumerate(steps):
            if self._left <= 0:
                break
            request, changes = stepped(first.request, step)
            self._left -= 1
            plan = self.planned(request) if changes else None
            does = plan is not None and plan.sure and self._does(plan, aim)
            if plan is not None and does:
                remedy = self._remedy((first, candidate_of(lever, request, changes)), plan, aim)
                if place or not lever.monotone or len(steps) == 1:
                    return remedy
                strongest = remedy
            elif lever.monotone and not place:
                return None
        return strongest

    # in doubt alone --------------------------------------------------------------------------------------------

    def _doubt(self, candidate: Candidate, plan: Plan) -> None:
        """Keep what serves more if it starts, which is not sure."""
        if self.aim == "more" and plan.fits and not plan.sure and self._serves_more(plan):
            self._doubtful.append((candidate, plan))

    def settled(self) -> Iterator[Remedy]:
        """What serves more and may not start, with the cheapest change beside it that makes sure that it does."""
        self._doubtful.sort(key=lambda tried: WEIGHT[tried[0].loss])
        self._left, enough = _PAIR_PLANS, set[str]()
        for first, plan in self._doubtful[: 2 * _MOST_PAIRS]:
            if first.name in enough:
                continue
            levers = [lever for lever in self.engine.levers(first.request, plan) if "fit" in lever.aims]
            cheap = [lever for lever in levers if WEIGHT[lever.loss] <= WEIGHT["speed"] and lever.name != first.name]
            for lever in sorted(cheap, key=lambda lever: WEIGHT[lever.loss])[:_MOST_BESIDE]:
                remedy = self._beside(first, lever, "more")
                if remedy is not None:
                    yield remedy
                    enough |= set() if self._short(remedy.plan) else {first.name}  # no larger machine is needed
                    break

    # more than two -----------------------------------------------------------------------------------------------

    def completed(self, *, machines: bool) -> Iterator[Remedy]:
        """Of each kind of other model and machine, and of what helps a little here, the mildest that surely does with
        one change beside it, else with two, else the last that may. machines: other ones too.
        """
        partly = [tried for tried in self._partly if machines and tried[0].loss not in _NOT_BESIDE]
        groups = [*self._tried, *([tried] for tried in partly[:2])]
        for group in groups:
            worth = [(c, p) for c, p in group if not self._early(p) and (machines or c.loss != "hardware")]
            begun = [_Begun((candidate,), plan) for candidate, plan in worth[:_MOST_COMPLETED]]
            hardware = any(candidate.loss == "hardware" for candidate, _ in worth)
            maybe: Remedy | None = None
            for alike in [[one] for one in begun] if hardware else [begun]:  # few GPUs count for more than few changes
                if maybe is None or not maybe.sure:
                    maybe = self._completed(alike) or maybe
            if maybe is not None:
                yield self._lengthened(maybe)

    def _completed(self, begun: list[_Begun]) -> Remedy | None:
        """The first of several that surely does, with as few changes as any of them; else the last that may."""
        maybe: Remedy | None = None
        while begun:
            further: list[_Begun] = []
            for one in begun:
                self._left = _MORE_PLANS
                remedy, best = self._complete(one)
                if remedy is not None and remedy.sure:
                    return remedy
                maybe = remedy or maybe
                further += [best] if best is not None and len(best.parts) < _MOST_PARTS else []
            begun = further
        return maybe

    def _early(self, plan: Plan) -> bool:
        """Whether a plan fails with its weights still: no change of length or requests mends that."""
        rule = next((rule for rule in self.engine.stages if rule.stage == plan.stage), None)
        return rule is not None and rule.early and rule.against != "budget" and plan.stage != "profile"

    def _complete(self, begun: _Begun) -> tuple[Remedy | None, _Begun | None]:
        """Changes with one more beside them that does, else that may; and with the one that helps most."""
        parts, plan = begun.parts, begun.plan
        best: tuple[int, _Begun] | None = None
        maybe = self._remedy(parts, plan, "fit") if self._does(plan, "fit") else None
        names = {part.name for part in parts} | begun.useless
        useless = set(begun.useless)
        levers = (lever for lever in self.engine.levers(parts[-1].request, plan) if "fit" in lever.aims)
        for lever in sorted(levers, key=lambda lever: WEIGHT[lever.loss]):
            if self._left <= 0 or not lever.steps or lever.loss in _NOT_BESIDE or lever.name in names:
                continue
            gained = 0
            for step in lever.steps if not lever.monotone else (*lever.steps[-1:], *lever.steps[:-1]):
                request, changes = stepped(parts[-1].request, step)
                self._left -= 1
                after = self.planned(request) if changes and self._left >= 0 else None
                if after is None:
                    continue
                more = (*parts, candidate_of(lever, request, changes))
                if after.sure and self._does(after, "fit"):
                    return self._mildest(parts, lever, self._remedy(more, after, "fit")), None
                if after.fits and maybe is None and self._does(after, "fit"):
                    maybe = self._remedy(more, after, "fit")
                gained = max(gained, self._gain(plan, after))
                if gained > (best[0] if best else 0):
                    best = gained, _Begun(more, after)
                if lever.monotone:
                    break
            useless |= set() if gained else {lever.name}
        return maybe, best[1]._replace(useless=frozenset(useless)) if best else None

    def _mildest(self, parts: tuple[Candidate, ...], lever: Lever, strongest: Remedy) -> Remedy:
        """Of a lever whose strongest step surely does beside others the mildest that does."""
        for step in lever.steps[:-1] if lever.monotone else ():
            if self._left <= 0:
                break
            self._left -= 1
            request, changes = stepped(parts[-1].request, step)
            plan = self.planned(request) if changes else None
            if plan is not None and plan.sure and self._does(plan, "fit"):
                return self._remedy((*parts, candidate_of(lever, request, changes)), plan, "fit")
        return strongest

    def _gain(self, before: Plan, after: Plan) -> int:
        """By how much less is missing; a later stage counts for more than any bytes."""
        then, now = self._short_of(before), self._short_of(after)
        if then is None or now is None:
            return 0
        order = [rule.stage for rule in self.engine.stages]
        later = order.index(now.stage) - order.index(then.stage) if {now.stage, then.stage} <= {*order} else 0
        return later * _STAGE + then.most_bytes - now.most_bytes if later >= 0 else 0

    def _lengthened(self, remedy: Remedy) -> Remedy:
        """A remedy with a shorter context, that context as long as its own plan surely allows."""
        option = role_option(self.engine, self.request.version, "context") if "context" in remedy.names else None
        cache = remedy.plan.kv_cache
        if option is None or cache is None or not (longest := remedy.plan.limits.sure_max_context_length):
            return remedy
        before = self.plan.options.get(option.name)
        most = min(longest, int(before.value)) if before is not None and isinstance(before.value, int) else longest
        if most <= cache.context_length:
            return remedy
        request, changes = stepped(remedy.request, {option.name: most})
        plan = self.planned(request)
        if plan is None or not plan.sure or not self._does(plan, remedy.aim):
            return remedy
        costs = tuple(cost.replace(f"{cache.context_length:,}", f"{most:,}") for cost in remedy.costs)
        return remedy._replace(changes=merged((*remedy.changes, *changes)), request=request, plan=plan, costs=costs)

    def _worth(self, first: Candidate, lever: Lever) -> bool:
        """Whether a second change may be for something: not where it, or the first, does alone without a loss that
        the other makes smaller; nor one that makes everything slow, where a single one does.
        """
        alone = [name for name in (first.name, lever.name) if name in self._enough]
        if alone:
            return alone == [lever.name] and lever.loss == "length"
        return not (self._enough and "slow" in (first.loss, lever.loss))

    def _keeps_more(self, remedy: Remedy, lever: Lever) -> bool:
        """Whether a pair with a shorter context leaves it longer by far than the shorter context alone."""
        single = self._enough.get(lever.name)
        if single is None or single.plan.kv_cache is None or remedy.plan.kv_cache is None:
            return True
        return remedy.plan.kv_cache.context_length >= single.plan.kv_cache.context_length * _LONGER
