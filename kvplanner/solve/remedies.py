"""Remedies: what to change so that a plan works, or serves more; every one of them planned, none promised unseen.

Single changes first, then the cheapest pairs; where none of them surely does, another model or machine together with
one or two changes beside it. Each remedy carries the plan of the changed request, so that applying it
gives that plan to the byte.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Final

from kvplanner.engine.lever import WEIGHT, Aim, Lever, Loss
from kvplanner.engine.plan import Plan
from kvplanner.engine.request import PlanRequest
from kvplanner.solve.candidate import Candidate
from kvplanner.solve.change import merged
from kvplanner.solve.completing import NOT_BESIDE, Begun, Completing, Remedy
from kvplanner.solve.grounds import freed, longer
from kvplanner.solve.ranking import ranked
from kvplanner.solve.tries import Tried, short_of

__all__ = ["More", "Remedy", "aim_of", "found", "remedies"]

_ENOUGH: Final = 3
_MOST_PAIRS: Final = 4
_MOST_BESIDE: Final = 2
# Whoever has to change more plans anew.
_MOST_CHANGES: Final = 4
# A second change beside a shorter context has to keep so much more of it.
_LONGER: Final = 1.25
# Plans that a search for pairs may make: those of one change that helps a little, each with the changes beside it.
_PAIR_PLANS: Final = 12
# Further machines that also do, but do not serve all users.
_MOST_OF_GROUP: Final = 2

# More candidates than an engine's levers: other checkpoints, other machines. Given the request and its plan, in groups
# of which the first that does is meant.
More = Callable[[PlanRequest, Plan], Iterator[tuple[Candidate, ...]]]


def aim_of(plan: Plan) -> Aim:
    """What a plan needs: to fit, where it does not surely; else to serve more."""
    return "more" if plan.sure else "fit"


def remedies(request: PlanRequest, plan: Plan, more: More | None = None) -> tuple[Remedy, ...]:
    """All remedies of a plan, ranked."""
    return ranked(tuple(found(request, plan, more)))


def found(request: PlanRequest, plan: Plan, more: More | None = None) -> Iterator[Remedy]:
    """Remedies as they are found, one plan or few between two of them, so that a worker can stop in between.

    What has to change before anything else helps is part of each.
    """
    aim, parts = aim_of(plan), tuple[Candidate, ...]()
    now = Tried(Candidate("", request, (), "", "nothing"), plan)
    for ground in (longer, freed):
        held = ground(now.candidate.request, now.plan)
        if held is not None:
            now, parts = held, (*parts, held.candidate)
    if parts and now.plan.sure and (request.load is None or now.plan.limits.serves_users):
        yield Completing(request, plan, aim).remedy(parts, now.plan, aim)
        if request.load is None or (now.plan.limits.sure_serves_users or 0) >= request.load.users:
            return
    some = False
    for remedy in _found(now.candidate.request, now.plan, more):
        some |= remedy.sure and not {*remedy.losses} & {*NOT_BESIDE}
        yield _with_parts(remedy, parts, aim, plan.stage) if parts else remedy
    held = None if some or aim != "fit" else freed(now.candidate.request, now.plan, fails=True)
    if held is not None:
        for remedy in _found(held.candidate.request, held.plan, more):
            whole = _with_parts(remedy, (*parts, held.candidate), aim, plan.stage)
            if len(whole.names) <= _MOST_CHANGES:
                yield whole


def _with_parts(remedy: Remedy, parts: Sequence[Candidate], aim: Aim, stage: str | None) -> Remedy:
    """A remedy with what it rests on; what it changes itself again counts once."""
    below = [part for part in parts if part.name not in remedy.names]
    return remedy._replace(
        names=(*(part.name for part in below), *remedy.names),
        changes=merged([*(change for part in parts for change in part.changes), *remedy.changes]),
        costs=(*(part.cost for part in below), *remedy.costs),
        losses=(*(part.loss for part in below), *remedy.losses), aim=aim, stage_before=stage,
    )  # fmt: skip


def _found(request: PlanRequest, plan: Plan, more: More | None) -> Iterator[Remedy]:
    """Remedies with the context as it is."""
    aim = aim_of(plan)
    search = _Search(request, plan, aim)
    sure, free = 0, False  # free: one that costs nothing serves the whole load
    losses: set[Loss] = set()  # of those that surely do
    for remedy in chain(search.singles(), search.others(more) if more else ()):
        sure += remedy.sure and remedy.weight <= WEIGHT["features"] and remedy.aim == aim
        losses |= {*remedy.losses} if remedy.sure else set()
        free |= remedy.sure and remedy.weight == 0 and not search.is_short(remedy.plan)
        yield remedy
    yield from search.settled()
    if aim != "fit" or sure >= _ENOUGH or free:
        return
    for remedy in search.pairs():
        sure += remedy.sure and not {*remedy.losses} & {*NOT_BESIDE}
        yield remedy
    if not sure:
        yield from search.completed(machines="hardware" not in losses)


class _Search(Completing):
    """One search: what was tried, and what helped a little."""

    def __init__(self, request: PlanRequest, plan: Plan, aim: Aim) -> None:
        super().__init__(request, plan, aim)
        self._enough: dict[str, Remedy] = {}  # by lever: those that surely do alone
        self._doubtful: list[Tried] = []  # serve more, and may not start

    def singles(self) -> Iterator[Remedy]:
        """One lever at a time, each at its mildest step that does."""
        for lever in self.engine.levers(self.request, self.plan):
            for aim in lever.aims:
                if aim == self.aim or aim in ("less", "faster"):
                    remedy = self._pull(lever, aim)
                    if remedy is not None:
                        yield self.lengthened(remedy)

    def others(self, more: More) -> Iterator[Remedy]:
        """Other models and machines."""
        for group in more(self.request, self.plan):
            tried: list[Begun] = []
            done, before = 0, self.plan
            for candidate in group:
                if self.aim == "more" and self._hopeless(candidate.request):
                    continue
                begun = self._begun(candidate)
                if begun is None:
                    continue
                plan = begun.plan
                if plan.sure and self.does(plan, self.aim):
                    yield self.remedy(begun.parts, plan, self.aim)
                    done += 1
                    # Where it is not memory that is short, more of it serves nobody else.
                    if done == _MOST_OF_GROUP or not self.is_short(plan) or plan.limits.limited_by != "kv_cache":
                        break
                else:
                    tried.append(begun)
                    self._doubt(Tried(candidate, plan))
                    if self._in_vain(candidate, before, plan):
                        break
                before = plan
            self.tried.append(tried)

    def _begun(self, candidate: Candidate) -> Begun | None:
        """A model or machine with its plan; of several GPUs with a budget that is surely free there."""
        plan = self.planned(candidate.request)
        if plan is None:
            return None
        held = freed(candidate.request, plan) if self.aim == "fit" and candidate.loss == "hardware" else None
        return Begun((candidate,), plan) if held is None else Begun((candidate, held.candidate), held.plan)

    def _in_vain(self, candidate: Candidate, before: Plan, plan: Plan) -> bool:
        """Whether still more GPUs do not help either: no more is missing where one GPU has to have it, or nothing is
        missing and prompts are longer than the context.
        """
        if candidate.loss != "hardware":
            return False
        if plan.sure:
            return plan.limits.limited_by == "context" and self._context in self.request.options
        return short_of(before) is not None and len(before.devices) > 1 and self.gain(before, plan) <= 0

    def _pull(self, lever: Lever, aim: Aim) -> Remedy | None:
        """The mildest step that surely does, else one that may; what helps without doing is kept for pairs."""
        seen: list[Tried] = []
        worth = aim == "more"
        here = self.request, self.plan, lever
        found = self.mildest(*here, lambda plan: plan.sure and self.does(plan, aim), seen, worth=worth)
        cheaper = any(other.weight <= WEIGHT[lever.loss] for other in self._enough.values())
        if found is None and not cheaper and any(self.does(tried.plan, aim) for tried in seen):
            found = self.mildest(*here, lambda plan: self.does(plan, aim), worth=worth)
        for tried in seen:
            self._doubt(tried)
        if found is not None and found.plan.sure:
            self._enough[lever.name] = self.remedy((found.candidate,), found.plan, aim)
            return self._enough[lever.name]
        self.keep(seen[0] if seen else None)
        return None if found is None else self.remedy((found.candidate,), found.plan, aim)

    # pairs -----------------------------------------------------------------------------------------------------

    def pairs(self) -> Iterator[Remedy]:
        """A change that helps, and one more beside it; the cheapest first."""
        # What may fit already needs least beside it.
        self.partly.sort(key=lambda tried: (not tried.plan.fits, WEIGHT[tried.candidate.loss]))
        self._left, pairs, seen = _PAIR_PLANS, 0, set[frozenset[str]]()
        for first, plan in self.partly:
            for lever in sorted(self.engine.levers(first.request, plan), key=lambda lever: WEIGHT[lever.loss]):
                names = frozenset((first.name, lever.name))
                if self.spent or pairs >= _MOST_PAIRS:
                    return
                if len(names) < 2 or names in seen or "fit" not in lever.aims or not self._worth(first, lever):
                    continue
                seen.add(names)
                remedy = self._beside(first, plan, lever)
                if remedy is not None and self._keeps_more(remedy, lever):
                    yield self.lengthened(remedy)
                    pairs += 1
                    if first.loss == "slow":
                        break  # what else stands beside it makes nothing faster

    def _beside(self, first: Candidate, before: Plan, lever: Lever, aim: Aim = "fit") -> Remedy | None:
        """A lever at its mildest step that surely does beside a first change, whose plan is before."""
        found = self.mildest(first.request, before, lever, lambda plan: plan.sure and self.does(plan, aim))
        return None if found is None else self.remedy((first, found.candidate), found.plan, aim)

    # in doubt alone --------------------------------------------------------------------------------------------

    def _doubt(self, tried: Tried) -> None:
        """Keep what serves more if it starts, which is not sure."""
        if self.aim == "more" and tried.plan.fits and not tried.plan.sure and self.serves_more(tried.plan):
            self._doubtful.append(tried)

    def settled(self) -> Iterator[Remedy]:
        """What serves more and may not start, with the cheapest change beside it that makes sure that it does."""
        self._doubtful.sort(key=lambda tried: WEIGHT[tried.candidate.loss])
        self._left, enough = _PAIR_PLANS, set[str]()
        for first, plan in self._doubtful[: 2 * _MOST_PAIRS]:
            if first.name in enough:
                continue
            levers = [lever for lever in self.engine.levers(first.request, plan) if "fit" in lever.aims]
            cheap = [lever for lever in levers if WEIGHT[lever.loss] <= WEIGHT["speed"] and lever.name != first.name]
            for lever in sorted(cheap, key=lambda lever: WEIGHT[lever.loss])[:_MOST_BESIDE]:
                remedy = self._beside(first, plan, lever, "more")
                if remedy is not None:
                    yield remedy
                    enough |= set() if self.is_short(remedy.plan) else {first.name}  # no larger machine is needed
                    break

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
