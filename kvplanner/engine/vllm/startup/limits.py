"""The largest settings that still work, and how many of the load's users are served at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kvplanner.engine.plan import Limits
from kvplanner.engine.request import PlanRequest
from kvplanner.engine.vllm.kv import sizing as kv_sizing
from kvplanner.engine.vllm.settings import Settings
from kvplanner.engine.vllm.startup.replica import Replica


def limits(
    request: PlanRequest, settings: Settings, replicas: Sequence[Replica], fits_at: Callable[[int], bool]
) -> Limits:
    """The limits over all replicas. fits_at(length): whether the plan works at another context length."""
    load, slots = request.load, settings.scheduler.max_num_seqs * settings.parallel.dp
    if any(r.failure is not None for r in replicas):
        served = 0 if load else None
        return Limits(_longest(settings, replicas, fits_at), None, served, max_requests=slots)
    if not all(r.layout.exact for r in replicas):
        return Limits(None, None, max_requests=slots)
    at_once = sum(_requests(r, settings, r.sizing.blocks_per_request) for r in replicas)
    longest = _longest(settings, replicas, fits_at)
    if load is None:
        return Limits(longest, at_once, max_requests=slots)
    tokens = load.tokens_per_user
    if tokens > min(r.sizing.max_model_len for r in replicas):
        return Limits(longest, at_once, 0, limited_by="context", max_requests=slots)
    blocks = replicas[0].layout.blocks_at(tokens)
    served = sum(_requests(r, settings, blocks) for r in replicas)
    by_memory = sum(_usable(r, settings) // max(blocks, 1) for r in replicas)
    limit = "max_requests" if served < by_memory and served < load.users else "kv_cache"
    return Limits(
        max_context_length=longest,
        max_concurrent_requests=at_once,
        serves_users=min(served, load.users),
        units_per_user=blocks,
        limited_by=limit if served < load.users else "",
        users_by_memory=by_memory,
        max_requests=slots,
        bytes_per_user=blocks * max(r.sizing.bytes_per_block[r.ranks[r.deciding].stage] for r in replicas),
    )


def _usable(replica: Replica, settings: Settings) -> int:
    """Blocks that requests can hold: all but the null block, which V0 did not have."""
    return replica.sizing.num_blocks - (settings.era.runner != "V0")


def _requests(replica: Replica, settings: Settings, blocks: int) -> int:
    """Requests of `blocks` blocks each that one replica runs at once."""
    if blocks == 0:
        return settings.scheduler.max_num_seqs
    return min(max(_usable(replica, settings), 0) // blocks, settings.scheduler.max_num_seqs)


def _longest(settings: Settings, replicas: Sequence[Replica], fits_at: Callable[[int], bool]) -> int | None:
    """The longest context that works, None when no length would mend a failure."""
    stages = {r.failure.stage for r in replicas if r.failure is not None}
    if stages - {"kv_cache_too_small"} or any(r.sizing.capture_error for r in replicas):
        return None
    if not all(r.sized for r in replicas):
        return None if stages or not replicas[0].layout.exact else replicas[0].layout.context_limit
    found = min(kv_sizing.max_context(r.layout, r.sizing) for r in replicas)
    if found <= 1 or (settings.scheduler.chunked_prefill and not stages) or fits_at(found):
        return found or None
    if settings.scheduler.chunked_prefill:
        return None  # what fails next does not depend on the length
    # Without chunked prefill the step grows with the context: every length is a plan of its own.
    low, high = 0, found
    while low + 1 < high:
        middle = (low + high) // 2
        low, high = (middle, high) if fits_at(middle) else (low, middle)
    return low or None
