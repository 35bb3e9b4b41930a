"""Remedies of several changes: what helps a little, or another model or machine, with one or two changes beside it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kvplanner.engine.command import role_option
from kvplanner.engine.lever import WEIGHT, Aim, Loss
from kvplanner.engine.plan import Plan
from kvplanner.engine.request import PlanRequest
from kvplanner.record import NamedTuple
from kvplanner.solve.candidate import Candidate
from kvplanner.solve.change import Change, merged, stepped
from kvplanner.solve.host import moved_to_host
from kvplanner.solve.tries import Tried, Tries, short_of

# Plans for each other model or machine with one or two changes beside it.
_MORE_PLANS: Final = 12
_MOST_COMPLETED: Final = 3
_MOST_PARTS: Final = 3
_MOST_PARTLY: Final = 2
# What makes up for less than this part of what is missing helps nothing.
_LITTLE: Final = 64
# What no other change is set beside: it makes everything slow, or is another machine.
NOT_BESIDE: Final[tuple[Loss, ...]] = ("slow", "hardware")
# What a format costs beside its loss: somebody has to make such a repository first.
_UNPUBLISHED: Final = 4


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


class Begun(NamedTuple):
    """Changes that do not do, with their plan; useless: levers that gained nothing beside those before the last."""

    parts: tuple[Candidate, ...]
    plan: Plan
    useless: frozenset[str] = frozenset()

    @property
    def is_bought(self) -> bool:
        """Whether it takes GPUs that are not there."""
        return self.parts[0].loss == "hardware"


class Completing(Tries):
    """A search that puts changes together, of what it has tried so far."""

    def __init__(self, request: PlanRequest, plan: Plan, aim: Aim) -> None:
        super().__init__(request, plan, aim)
        self.partly: list[Tried] = []  # changes that help without doing
        self.tried: list[list[Begun]] = []  # other models and machines that do not do alone

    def remedy(self, parts: tuple[Candidate, ...], plan: Plan, aim: Aim) -> Remedy:
        """What candidates, each tried on top of the one before, come to.

        Where the engine makes room by moving weights to the host, that is a cost of the last of them.
        """
        last = parts[-1]
        moved = "" if any(part.loss == "slow" for part in parts) else moved_to_host(self.plan, plan)
        if moved:
            cost = f"{last.cost}; {moved}" if last.loss != "nothing" else moved
            loss: Loss = "hardware" if last.loss == "hardware" else "slow"
            parts = (*parts[:-1], last._replace(cost=cost, loss=loss))
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

    def keep(self, tried: Tried | None) -> None:
        """A change that does not do alone, if it helps: another stage is in the way now, or less is missing there."""
        if tried is None:
            return
        before, now = short_of(self.plan), short_of(tried.plan)
        if before is None or now is None:
            return
        if now.stage != before.stage or now.most_bytes < before.most_bytes - before.most_bytes // _LITTLE:
            self.partly.append(tried)

    def completed(self, *, machines: bool) -> Iterator[Remedy]:
        """Of each kind of other model and machine, and of what helps a little here, the mildest that surely does with
        one change beside it, else with two, else the last that may. Further GPUs only where nothing else surely does,
        then what helps nothing alone. machines: other ones, and two further changes here, too.
        """
        here = [Begun((candidate,), plan) for candidate, plan in self.partly if machines]
        here = [begun for begun in here if begun.parts[0].loss not in NOT_BESIDE][:_MOST_PARTLY]
        groups = [*self.tried, *([begun] for begun in here)]
        worth = [[begun for begun in group if not self._early(begun.plan)] for group in groups]
        bought = [group for group in worth if any(begun.is_bought for begun in group)]
        rounds = [
            ([group for group in worth if group not in bought], True), (bought if machines else [], True),
            (worth if machines else [], False),
        ]  # fmt: skip
        for chosen, helps in rounds:
            sure = False
            for group in chosen:
                found = self._of_group([b for b in group if (self.gain(self.plan, b.plan) > 0) == helps])
                sure |= found is not None and found.sure
                if found is not None:
                    yield self.lengthened(found)
            if sure:
                return

    def _of_group(self, group: list[Begun]) -> Remedy | None:
        """The best that is made of one kind; few GPUs count for more than few changes."""
        begun = group[:_MOST_COMPLETED]
        maybe: Remedy | None = None
        for alike in [[one] for one in begun] if any(one.is_bought for one in group) else [begun]:
            if maybe is None or not maybe.sure:
                maybe = self._completed(alike) or maybe
        return maybe

    def _completed(self, begun: list[Begun]) -> Remedy | None:
        """The first of several that surely does, with as few changes as any of them; else the last that may."""
        maybe: Remedy | None = None
        while begun:
            further: list[Begun] = []
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

    def _complete(self, begun: Begun) -> tuple[Remedy | None, Begun | None]:
        """Changes with one more beside them that does, else that may; and with the one that helps most."""
        parts, plan = begun.parts, begun.plan
        best: tuple[int, Begun] | None = None
        maybe = self.remedy(parts, plan, "fit") if self.does(plan, "fit") else None
        names = {part.name for part in parts} | begun.useless
        useless = set(begun.useless)
        levers = (lever for lever in self.engine.levers(parts[-1].request, plan) if "fit" in lever.aims)
        for lever in sorted(levers, key=lambda lever: WEIGHT[lever.loss]):
            if self.spent:
                break
            if lever.loss in NOT_BESIDE or lever.name in names:
                continue
            seen: list[Tried] = []
            found = self.mildest(parts[-1].request, plan, lever, self.surely, seen)
            if found is not None:
                return self.remedy((*parts, found.candidate), found.plan, "fit"), None
            gained = 0
            for tried in seen:
                if tried.plan.fits and maybe is None and self.does(tried.plan, "fit"):
                    maybe = self.remedy((*parts, tried.candidate), tried.plan, "fit")
                gained = max(gained, self.gain(plan, tried.plan))
                if gained > (best[0] if best else 0):
                    best = gained, Begun((*parts, tried.candidate), tried.plan)
            useless |= set() if gained else {lever.name}
        return maybe, best[1]._replace(useless=frozenset(useless)) if best else None

    def lengthened(self, remedy: Remedy) -> Remedy:
        """A remedy with a shorter context, that context as long as its own plan surely allows."""
        option = role_option(self.engine, self.request.version, "context") if "context" in remedy.names else None
        now = remedy.request.options.get(option.name) if option is not None else None
        cache = remedy.plan.kv_cache
        if option is None or not isinstance(now, int) or cache is None:
            return remedy
        if not (longest := remedy.plan.limits.sure_max_context_length):  # last: it takes long to find
            return remedy
        before = self.plan.options.get(option.name)
        most = min(longest, int(before.value)) if before is not None and isinstance(before.value, int) else longest
        if most <= max(now, cache.context_length):  # of one request, in whole blocks, or of all slots together
            return remedy
        request, changes = stepped(remedy.request, {option.name: most})
        plan = self.planned(request, counted=False)
        if plan is None or not plan.sure or not self.does(plan, remedy.aim):
            return remedy
        costs = tuple(cost.replace(f"{now:,}", f"{most:,}") for cost in remedy.costs)
        return remedy._replace(changes=merged((*remedy.changes, *changes)), request=request, plan=plan, costs=costs)
