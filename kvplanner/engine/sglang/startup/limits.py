"""How many requests and users a plan serves, and how long a request may be."""

from __future__ import annotations

from collections.abc import Sequence

from kvplanner.engine.plan import Limits
from kvplanner.engine.request import PlanRequest
from kvplanner.engine.sglang.kv.pools import Layout, cap_applies
from kvplanner.engine.sglang.settings import Settings
from kvplanner.engine.sglang.startup.replica import Replica
from kvplanner.units import ceil_div


def longest_request(made: Replica, settings: Settings) -> int:
    """Tokens of the longest request that is served: the pool's, up to the context length."""
    return min(made.first.tokens, settings.context_length) if made.pools else 0


def request_tokens(settings: Settings, tokens: int) -> int:
    """Tokens that a request holds, in whole pages."""
    page = settings.cache.page_size
    return ceil_div(tokens, page) * page


def limits(request: PlanRequest, settings: Settings, replicas: Sequence[Replica]) -> Limits:
    """The limits over all replicas and their attention groups."""
    load, groups = request.load, settings.parallel.attention_dp
    if any(made.failure is not None for made in replicas):
        return Limits(None, None, 0 if load else None)
    slots = sum(made.first.requests for made in replicas) * groups
    longest = min(longest_request(made, settings) for made in replicas)
    at_once = _served(replicas, settings, request_tokens(settings, settings.context_length)) * groups
    if load is None:
        return Limits(longest, at_once, max_requests=slots)
    tokens = load.tokens_per_user
    if tokens > longest:
        return Limits(longest, at_once, 0, limited_by="context", max_requests=slots)
    held = request_tokens(settings, tokens)
    by_memory = sum(made.first.tokens // max(held, 1) for made in replicas) * groups
    served = _served(replicas, settings, held) * groups
    limit = "max_requests" if served < by_memory else "kv_cache"
    pages = held // settings.cache.page_size
    return Limits(
        max_context_length=longest,
        max_concurrent_requests=at_once,
        serves_users=min(served, load.users),
        units_per_user=pages,
        limited_by=limit if served < load.users else "",
        users_by_memory=by_memory,
        max_requests=slots,
        bytes_per_user=held * max(token_bytes(made) for made in replicas),
    )


def _served(replicas: Sequence[Replica], settings: Settings, held: int) -> int:
    return sum(min(made.first.tokens // max(held, 1), made.first.requests) for made in replicas)


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
