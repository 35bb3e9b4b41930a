"""In what order remedies are told, and which of them are the same to who reads them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvplanner.engine.plan import Plan
    from kvplanner.solve.remedies import Remedy


def served(plan: Plan) -> float:
    """What a plan serves, for comparing: users of its load that fit, else requests of the full length at once."""
    limits, cache = plan.limits, plan.kv_cache
    if not plan.fits or limits.limited_by == "context":
        return 0
    most = limits.max_requests
    held: float | None = limits.users_by_memory if plan.request.load else None
    if held is None and not plan.request.load and cache is not None:
        held = cache.max_concurrency * plan.replicas
    if held is None:
        return limits.max_concurrent_requests or 0
    return held if most is None else min(held, most)


def ranked(remedies_: tuple[Remedy, ...]) -> tuple[Remedy, ...]:
    """Sure ones first, then those that carry the load (not many times slower), then by cost, of equal ones by gain."""

    def order(remedy: Remedy) -> tuple[float, ...]:
        load, limits = remedy.request.load, remedy.plan.limits
        short = load is not None and ((limits.sure_serves_users or 0) < load.users or "slow" in remedy.losses)
        if remedy.aim == "fit":
            return not remedy.sure, short, remedy.weight, -served(remedy.plan)
        return not remedy.sure, remedy.aim == "less", short, remedy.weight, -served(remedy.plan)

    sure = min((remedy.weight for remedy in remedies_ if remedy.sure and remedy.aim == "fit"), default=None)
    worth = (r for r in remedies_ if r.sure or r.aim != "fit" or sure is None or r.weight <= sure)  # else in vain
    return _distinct(sorted(worth, key=order))


def _distinct(remedies_: Sequence[Remedy]) -> tuple[Remedy, ...]:
    """Each set of changes once, in whatever order they were found; of those that differ by the figure of one change
    and come to the same the first.
    """
    kept: list[Remedy] = []
    for remedy in remedies_:
        if not any(_alike(remedy, better) for better in kept):
            kept.append(remedy)
    return tuple(kept)


def _alike(one: Remedy, other: Remedy) -> bool:
    apart = {*one.changes} ^ {*other.changes}
    if not apart or one.aim != other.aim:
        return not apart
    same_option = len(apart) == 2 and len({change.option for change in apart}) == 1
    # Other machines, checkpoints and formats are other ways, whatever comes of them.
    numbers = all(isinstance(c.value, int | float) and not isinstance(c.value, bool) for c in apart)
    return same_option and numbers and _comes_to(one) == _comes_to(other)


def _comes_to(remedy: Remedy) -> tuple[object, ...]:
    """What tells one plan from another to who reads it."""
    cache, limits = remedy.plan.kv_cache, remedy.plan.limits
    held = (cache.tokens, cache.context_length, cache.max_concurrency) if cache else None
    return remedy.sure, held, limits.serves_users, limits.sure_serves_users, limits.max_requests
