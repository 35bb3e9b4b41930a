"""How many requests and users a plan serves, and how long a request may be."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from kvplanner.engine.mix import units_each, users_of
from kvplanner.engine.plan import Limits
from kvplanner.engine.request import PlanRequest
from kvplanner.engine.sglang.kv.pools import Layout, cap_applies
from kvplanner.engine.sglang.settings import Settings
from kvplanner.engine.sglang.startup.replica import Replica
from kvplanner.engine.sglang.startup.standing import AtLength, first
from kvplanner.record import later
from kvplanner.units import ceil_div


def request_tokens(settings: Settings, tokens: int) -> int:
    """Tokens that a request holds, in whole pages."""
    page = settings.cache.page_size
    return ceil_div(tokens, page) * page


def limits(request: PlanRequest, settings: Settings, replicas: Sequence[Replica]) -> Limits:
    """The limits over all replicas and their attention groups."""
    load, groups = request.load, settings.parallel.attention_dp
    longest, surely_longest = (later(partial(_longest, request, replicas, surely=surely)) for surely in (False, True))
    if any(made.failure is not None for made in replicas):
        served = 0 if load else None
        return Limits(longest, None, served, sure_max_context_length=surely_longest,
                      sure_max_concurrent_requests=0, sure_serves_users=served)  # fmt: skip
    sure = all(made.sure for made in replicas)
    full = request_tokens(settings, settings.context_length)
    found = Limits(
        max_context_length=longest,
        max_concurrent_requests=_served(replicas, full) * groups,
        max_requests=sum(made.first.requests for made in replicas) * groups,
        sure_max_context_length=surely_longest,
        sure_max_concurrent_requests=_surely_served(replicas, full) * groups if sure else 0,
    )
    if load is None:
        return found
    tokens = load.tokens_per_user
    if tokens > min(min(made.first.tokens, settings.context_length) for made in replicas):
        return found._replace(serves_users=0, sure_serves_users=0, limited_by="context")
    whole_pages = partial(request_tokens, settings)
    held = units_each(load, whole_pages)
    slots = [made.first.requests for made in replicas] * groups
    rooms = [made.first.tokens for made in replicas] * groups
    served = users_of(load, whole_pages, rooms, slots)
    by_memory = users_of(load, whole_pages, rooms, [sum(rooms)] * len(rooms))
    limit = "max_requests" if served < by_memory else "kv_cache"
    long_enough = sure and all(tokens <= made.tokens_low for made in replicas)
    surely = users_of(load, whole_pages, [made.tokens_low for made in replicas] * groups, slots) if long_enough else 0
    return found._replace(
        serves_users=min(served, load.users),
        units_per_user=ceil_div(held, settings.cache.page_size),
        limited_by=limit if served < load.users else "",
        users_by_memory=by_memory,
        bytes_per_user=held * max(token_bytes(made) for made in replicas),
        sure_serves_users=min(surely, load.users),
    )


def _served(replicas: Sequence[Replica], held: int) -> int:
    return sum(min(made.first.tokens // max(held, 1), made.first.requests) for made in replicas)


def _surely_served(replicas: Sequence[Replica], held: int) -> int:
    return sum(min(made.tokens_low // max(held, 1), made.first.requests) for made in replicas)


def _longest(request: PlanRequest, replicas: Sequence[Replica], *, surely: bool) -> int | None:
    """The longest context with which start-up comes to its end and whose requests the pools hold; None for none."""
    made = min(replicas, key=lambda each: each.tokens_low if surely else each.first.tokens if each.pools else 0)
    at_most = max(request.model.spec.context_length or 0, made.settings.context_length)
    if any(rank.after.value <= 0 for each in replicas for rank in each.ranks):
        return None
    own = AtLength(request, made)
    others = [AtLength(request, each) for each in _distinct(replicas) if each.ranks is not made.ranks]

    def works(length: int) -> bool:
        pools = own.pools(length, "value")
        held = own.pools(length, "low") if surely else pools
        if not held or held[0].tokens < length or not own.has_room(pools, surely=surely):
            return False
        return all(each.has_room(each.pools(length, "value"), surely=surely) for each in others)

    tokens = made.tokens_low if surely else made.first.tokens if made.pools else at_most
    near = min(tokens, at_most) + 1
    beyond = first(lambda length: not works(length), 0, at_most, near)
    return at_most if beyond is None else beyond - 1 or None


def _distinct(replicas: Sequence[Replica]) -> list[Replica]:
    return list({tuple(id(rank) for rank in made.ranks): made for made in replicas}.values())


def token_bytes(made: Replica) -> int:
    """What a token of the pool is charged on the rank whose layers take most, its share of the window pool included."""
    return max(round(_charged(layout, made.settings)) for layout in made.layouts)


def _charged(layout: Layout, settings: Settings) -> float:
    ratio, cells = settings.cache.window_ratio, layout.cells
    if layout.compression is not None:
        return layout.compression.full_token + ratio * layout.compression.window_token
    if layout.all_windows:
        return cells.charged_window + cells.draft_full
    return cells.charged_full + (0 if cap_applies(settings) else ratio * cells.charged_window)
