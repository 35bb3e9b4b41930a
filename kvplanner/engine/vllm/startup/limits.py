"""The largest settings that still work, and how many of the load's users are served at once.

Each limit is given twice: by the values, and as it surely is, at the unfavourable end of every band.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Literal

from kvplanner.engine.plan import Limits, Step
from kvplanner.engine.request import PlanRequest
from kvplanner.engine.vllm.kv import sizing as kv_sizing
from kvplanner.engine.vllm.kv.sizing import KvSizing
from kvplanner.engine.vllm.settings import Settings
from kvplanner.engine.vllm.startup.replica import Replica
from kvplanner.record import Later, later

End = Literal["value", "low"]
_ENDS: Final[tuple[End, End]] = ("value", "low")
_ANY: Final = 1 << 40  # more requests than any cache holds
# Whether the plan works at another context length; with True: surely, at the unfavourable end of its bands.
WorksAt = Callable[[int, bool], bool]


def limits(request: PlanRequest, settings: Settings, replicas: Sequence[Replica], works_at: WorksAt) -> Limits:
    """The limits over all replicas."""
    load, slots = request.load, settings.scheduler.max_num_seqs * settings.parallel.dp
    if any(r.failure is not None for r in replicas):
        served = 0 if load else None
        longest = Later(partial(_longest, settings, replicas, works_at))
        sure_longest = later(lambda: _longest(settings, replicas, works_at, "low") if longest() else None)
        return Limits(later(longest), None, served, max_requests=slots, sure_max_context_length=sure_longest,
                      sure_max_concurrent_requests=0, sure_serves_users=served)  # fmt: skip
    if not all(r.layout.exact for r in replicas):
        return Limits(None, None, max_requests=slots)
    sure = all(r.sure for r in replicas)
    step = step_of(settings, replicas[0])
    if step is not None:
        return _stepwise(request, settings, replicas, works_at, step)
    found = Limits(
        max_context_length=later(partial(_longest, settings, replicas, works_at)),
        max_concurrent_requests=_at_once(replicas, settings, "value"),
        max_requests=slots,
        sure_max_context_length=later(partial(_longest, settings, replicas, works_at, "low")),
        sure_max_concurrent_requests=_at_once(replicas, settings, "low") if sure else 0,
    )
    if load is None:
        return found
    from kvplanner.engine.mix import units_each, users_of

    tokens = load.tokens_per_user
    if tokens > min(r.sizing.max_model_len for r in replicas):
        return found._replace(serves_users=0, sure_serves_users=0, limited_by="context")
    blocks_at = replicas[0].layout.blocks_at
    blocks = units_each(load, blocks_at)
    rooms, low_rooms = ([_usable(_sized(r, end), settings) for r in replicas] for end in _ENDS)
    most = [settings.scheduler.max_num_seqs] * len(replicas)
    served = users_of(load, blocks_at, rooms, most)
    by_memory = users_of(load, lambda tokens: max(blocks_at(tokens), 1), rooms, [_ANY] * len(replicas))
    limit = "max_requests" if served < by_memory and served < load.users else "kv_cache"
    # After an automatic context length, the one at the low end may be shorter than a user's tokens.
    long_enough = all(tokens <= r.low.max_model_len for r in replicas)
    surely = min(users_of(load, blocks_at, low_rooms, most), load.users) if sure and long_enough else 0
    return found._replace(
        serves_users=min(served, load.users),
        units_per_user=blocks,
        limited_by=limit if served < load.users else "",
        users_by_memory=by_memory,
        bytes_per_user=blocks * max(r.sizing.bytes_per_block[r.ranks[r.deciding].stage] for r in replicas),
        sure_serves_users=surely,
    )


def step_of(settings: Settings, replica: Replica) -> Step | None:
    """What a step takes of a model none of whose layers keeps anything, None for every other model.

    Its prompts are not cut: the scheduler starts a sequence in a step that still has room for all of it (0.33,
    v1/core/sched/scheduler.py; config/model.py is_chunked_prefill_supported).
    """
    if not replica.layout.exact or replica.layout.tables:
        return None
    scheduler = settings.scheduler
    return Step(scheduler.max_num_batched_tokens, scheduler.max_num_seqs, replica.layout.context_limit)


def _stepwise(
    request: PlanRequest, settings: Settings, replicas: Sequence[Replica], works_at: WorksAt, step: Step
) -> Limits:
    """The limits of a model without a cache: sequences of a step; further ones wait for the next."""
    load, engines = request.load, settings.parallel.dp
    sure = all(r.sure for r in replicas)
    at_once = step.holds(step.length) * engines
    found = Limits(
        max_context_length=later(partial(_longest, settings, replicas, works_at)),
        max_concurrent_requests=at_once,
        max_requests=step.sequences * engines,
        sure_max_context_length=later(partial(_longest, settings, replicas, works_at, "low")),
        sure_max_concurrent_requests=at_once if sure else 0,
    )
    if load is None:
        return found
    from kvplanner.engine.mix import users_of

    # An answer is a vector or a score: only the prompts are tokens.
    prompts = load._replace(
        output_tokens=0,
        prompt_tokens=load.longest_prompt,
        mix=tuple(part._replace(output_tokens=0) for part in load.mix),
    )
    too_long = load.longest_prompt > step.length
    held = (
        0 if too_long else users_of(prompts, lambda n: max(n, 1), [step.tokens] * engines, [step.sequences] * engines)
    )
    served = min(held, load.users)
    short = "context" if too_long else "step" if served < load.users else ""
    return found._replace(serves_users=served, sure_serves_users=served if sure else 0, limited_by=short)


def _sized(replica: Replica, end: End) -> KvSizing:
    return replica.sizing if end == "value" else replica.low


def _usable(sizing: KvSizing, settings: Settings) -> int:
    """Blocks that requests can hold: all but the null block, which V0 did not have."""
    return sizing.num_blocks - (settings.era.runner != "V0")


def _at_once(replicas: Sequence[Replica], settings: Settings, end: End) -> int:
    """Requests of full length that all replicas run at once."""
    most, held = settings.scheduler.max_num_seqs, 0
    for replica in replicas:
        sizing = _sized(replica, end)
        each = sizing.blocks_per_request
        held += min(max(_usable(sizing, settings), 0) // each, most) if each else most
    return held


def _longest(settings: Settings, replicas: Sequence[Replica], works_at: WorksAt, end: End = "value") -> int | None:
    """The longest context that works, None when no length would mend a failure."""
    stages = {r.failure.stage for r in replicas if r.failure is not None}
    if stages - {"kv_cache_too_small"} or any(_sized(r, end).capture_error for r in replicas):
        return None
    surely = end == "low"
    if surely and settings.scheduler.chunked_prefill and any(r.doubt or r.late_doubt for r in replicas):
        return None  # what may fail there does not depend on the length
    if not all(r.sized for r in replicas):
        return None if stages or not replicas[0].layout.exact else replicas[0].layout.context_limit
    found = min(kv_sizing.max_context(r.layout, _sized(r, end)) for r in replicas)
    if found <= 1 or (settings.scheduler.chunked_prefill and _as_now(replicas, stages, found, end)):
        return found or None
    if works_at(found, surely):
        return found
    if settings.scheduler.chunked_prefill and not surely:
        return None  # what fails next does not depend on the length
    # Without chunked prefill the step grows with the context: every length is a plan of its own.
    low, high = 0, found
    while low + 1 < high:
        middle = (low + high) // 2
        low, high = (middle, high) if works_at(middle, surely) else (low, middle)
    return low or None


def _as_now(replicas: Sequence[Replica], stages: set[str], found: int, end: End) -> bool:
    """Whether a length needs no plan of its own, since the one at hand works as it does.

    A shorter length changes nothing else where the engine steps through prompts whatever their length (V1 and later)
    and no state block is as long as a request.
    """
    surely = end == "low"
    if not stages and not (surely and any(found < r.sizing.max_model_len for r in replicas)):
        return True
    for replica in replicas:
        late = replica.late_failure if not surely else replica.late_doubt
        if late or found > replica.sizing.max_model_len or replica.layout.settings.era.runner == "V0":
            return False
        if any(table.spec.kind == "state" for table in replica.layout.tables):
            return False
    return True
