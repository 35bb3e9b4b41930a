"""Why one plan's cache has more or fewer tokens than another's: its budget, what else is in it, a token's share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kvplanner.engine.plan import DevicePlan, KvCache, Plan
from kvplanner.engine.segment import SEGMENT_KINDS
from kvplanner.record import NamedTuple
from kvplanner.solve.compare import Side

BUDGET: Final = "budget"
REST: Final = "rest"
_LEAST: Final = 1 << 20  # rounding to units of the cache


class TokensApart(NamedTuple):
    """How a plan's tokens come to differ from the first plan's, on each plan's device that decides.

    place: of the plan. tokens, cache_bytes: more (or, below 0, fewer). causes: what the cache has more or less by, the
    largest first: the budget, each kind of segment that is in a budget (what it takes is less for the cache), and the
    rest, such as a size that was given; they add up to cache_bytes. per_token: bytes of that cache for each token, what
    windows and states take in it included, of the first plan and here.
    """

    place: int
    tokens: int
    cache_bytes: int
    causes: tuple[tuple[str, int], ...]
    per_token: tuple[int | None, int | None]


def tokens_apart(sides: Sequence[Side]) -> tuple[TokensApart, ...]:
    """Of every plan with a cache of another size than the first's; none where the first has no cache."""
    base = sides[0].plan
    found = (_apart(base, side.plan, place) for place, side in enumerate(sides) if place and base and side.plan)
    return tuple(apart for apart in found if apart is not None)


def _apart(base: Plan, plan: Plan, place: int) -> TokensApart | None:
    first, cache = base.kv_cache, plan.kv_cache
    if first is None or cache is None or first.tokens == cache.tokens:
        return None
    before, now = _account(base.devices[base.tightest]), _account(plan.devices[plan.tightest])
    more = now["kv_cache"] - before["kv_cache"]
    causes: dict[str, int] = {}
    if BUDGET in before and BUDGET in now:
        causes = {BUDGET: now[BUDGET] - before[BUDGET]}
        causes |= {kind: before.get(kind, 0) - now.get(kind, 0) for kind in SEGMENT_KINDS if kind != "kv_cache"}
        left = more - sum(causes.values())
        causes |= {REST: left} if abs(left) >= _LEAST else {}
    ranked = sorted(((name, size) for name, size in causes.items() if size), key=lambda cause: -abs(cause[1]))
    return TokensApart(place, cache.tokens - first.tokens, more, tuple(ranked),
                       (_share(before["kv_cache"], first), _share(now["kv_cache"], cache)))  # fmt: skip


def _share(size: int, cache: KvCache) -> int | None:
    return round(size / cache.tokens) if cache.tokens else None


def _account(device: DevicePlan) -> dict[str, int]:
    """Bytes of the cache, of the budget where there is one, and of what else is in it."""
    cache = device.segment("kv_cache")
    account: dict[str, int] = {segment.kind: segment.bytes for segment in device.segments if segment.in_budget}
    account["kv_cache"] = cache.bytes if cache is not None else 0
    return account if device.budget is None else {**account, BUDGET: device.budget.value}
