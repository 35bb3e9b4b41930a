"""A changed request that a search is to plan: of a lever's step, or of another model or machine."""

from __future__ import annotations

from kvplanner.engine.lever import Lever, Loss
from kvplanner.engine.plan import Plan
from kvplanner.engine.request import PlanRequest
from kvplanner.record import NamedTuple
from kvplanner.solve.change import Change


class Candidate(NamedTuple):
    """A changed request that is worth a plan: of a lever's step, or of another model or machine."""

    name: str
    request: PlanRequest
    changes: tuple[Change, ...]
    cost: str
    loss: Loss


def candidate_of(lever: Lever, request: PlanRequest, changes: tuple[Change, ...]) -> Candidate:
    """The candidate of a lever's step."""
    value = changes[0].value if changes else None
    shown = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else f"{value:g}" if isinstance(
        value, float) else str(value)  # fmt: skip
    return Candidate(lever.name, request, changes, lever.cost.replace("{value}", shown), lever.loss)


def is_beyond(request: PlanRequest, base: PlanRequest, plan: Plan, context: str | None) -> bool:
    """Whether no plan of a changed request serves its load: the prompts alone are longer than its context.

    plan: of the base, the request before the change. context: the name of the option of the context length.
    """
    now = plan.options.get(context or "")
    if base.load is None or plan.step is not None or now is None or now.origin == "derived":
        return False
    if not isinstance(now.value, int) or base.load.prompt_tokens <= now.value:
        return False
    name = context or ""
    asked = request.options.get(name)
    if asked != base.options.get(name):
        return isinstance(asked, int) and asked <= now.value
    own, other = base.model.spec.context_length, request.model.spec.context_length
    if request.machine is not base.machine and now.origin == "default" and now.value != own:
        return False  # an engine may choose it by the machine
    return request.model is base.model or (own is not None and other is not None and other <= own)
