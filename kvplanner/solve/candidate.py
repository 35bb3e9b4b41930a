"""A changed request that a search is to plan: of a lever's step, or of another model or machine."""

from __future__ import annotations

from kvplanner.engine.lever import Lever, Loss
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
