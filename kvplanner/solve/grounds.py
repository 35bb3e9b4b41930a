"""What has to change before anything else helps: a context that holds no request, a budget that may not be free.

An engine answers a request that is longer than its context with an error, whatever memory there is; and where its check
of free memory may fail, no other change makes sure that it does not.
"""

from __future__ import annotations

from typing import Final

from kvplanner.engine.command import role_option
from kvplanner.engine.plan import Plan
from kvplanner.engine.registry import engine
from kvplanner.engine.request import PlanRequest
from kvplanner.errors import PlannerError
from kvplanner.solve.candidate import Candidate, candidate_of
from kvplanner.solve.change import stepped
from kvplanner.solve.tries import Tried
from kvplanner.units import round_up

_LONGER: Final = "longer_context"
_SHARE: Final = "budget_share"
_WHOLE: Final = 1024
_COST: Final = "nothing for shorter requests: each may take so much of the cache"


def longer(request: PlanRequest, plan: Plan) -> Tried | None:
    """The request with the shortest context that holds its load; None where the one at hand does or none may be set."""
    chosen, load = engine(request.engine), request.load
    option = role_option(chosen, request.version, "context")
    own = request.model.spec.context_length
    resolved = plan.options.get(option.name) if option is not None else None
    if load is None or option is None or resolved is None or not isinstance(resolved.value, int):
        return None
    # Of an engine whose slots share its context out, a request has a part of it.
    each = min(plan.kv_cache.context_length, resolved.value) if plan.kv_cache is not None else resolved.value
    needed = load.tokens_per_user
    if plan.step is not None or each <= 0 or needed <= each or (own is not None and needed > own):
        return None
    parts = -(-resolved.value // each)
    for length in (needed, round_up(needed, _WHOLE)):
        changed, changes = stepped(request, {option.name: length * parts})
        try:
            made = chosen.plan(changed)
        except PlannerError:
            continue
        if made.limits.limited_by != "context":
            return Tried(Candidate(_LONGER, changed, changes, _COST, "nothing"), made)
    return None


def freed(request: PlanRequest, plan: Plan, *, fails: bool = False) -> Tried | None:
    """The request with a budget that is surely free, where a plan may fail for that first, whatever it lacks later.

    fails: where it does fail for that, and a smaller budget alone is not enough.
    """
    chosen, verdict = engine(request.engine), plan.verdict
    failing, doubt = verdict.failing, verdict.doubt
    if fails:
        doubt = failing
    elif failing is not None and doubt is not None and failing.stage == doubt.stage:
        return None
    if doubt is None or not any(rule.against == "free" and rule.stage == doubt.stage for rule in chosen.stages):
        return None
    doubtful = plan if fails else plan._replace(verdict=verdict._replace(failing=None))
    for lever in chosen.levers(request, doubtful):
        for step in lever.steps if lever.name == _SHARE else ():
            changed, changes = stepped(request, step)
            try:
                made = chosen.plan(changed)
            except PlannerError:
                continue
            short = made.verdict.failing, made.verdict.doubt
            if all(one is None or one.stage != doubt.stage for one in short):
                return Tried(candidate_of(lever, changed, changes), made)
    return None
