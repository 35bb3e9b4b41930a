"""A replica of the model on its own devices: ranks, pools, and where start-up would fail."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from kvplanner.engine.request import PlanRequest
from kvplanner.engine.sglang.kv.layout import layout
from kvplanner.engine.sglang.kv.pools import Layout, Measured, Pools, Refusal, solve
from kvplanner.engine.sglang.settings import Settings
from kvplanner.engine.sglang.startup import checks
from kvplanner.engine.sglang.startup.checks import Check, Late
from kvplanner.engine.sglang.startup.rank import Rank, eager, plan_rank, rank_key
from kvplanner.gpu.spec import Device

Stages = Sequence[Sequence[Device]]
# Refusals that name the whole of the pools; the others find a pool too small for one request.
_SIZING = ("states", "weights", "tokens")


class Failure(NamedTuple):
    """Where start-up fails. refusal: the engine's own, None for want of memory."""

    stage: str
    rank: int
    missing_bytes: int
    least_bytes: int
    most_bytes: int
    refusal: Refusal | None = None

    @property
    def message(self) -> str:
        """What the engine would print."""
        if self.refusal is not None:
            return self.refusal.message
        return (
            "Capture cuda graph failed: CUDA out of memory." if self.stage == checks.CAPTURE else "CUDA out of memory."
        )


class Replica(NamedTuple):
    """A replica. devices: stage by stage, tensor ranks in order; ranks alike are one object.

    layouts: of each pipeline stage. pools: of each stage, None where there are none; low, high: tokens at the ends of
    the band. late: what each rank takes after sizing. doubt: what may be lacking within the bands.
    """

    settings: Settings
    devices: tuple[Device, ...]
    ranks: tuple[Rank, ...]
    layouts: tuple[Layout, ...]
    pools: tuple[Pools, ...]
    tokens_low: int
    tokens_high: int
    late: tuple[Late, ...]
    failure: Failure | None
    doubt: Check | None
    refused_low: Refusal | None
    needed_fraction: float

    @property
    def tightest(self) -> int:
        """The rank that fails, else the one with the least memory for the pools."""
        if self.failure is not None:
            return self.failure.rank
        return min(range(len(self.ranks)), key=lambda i: self.ranks[i].after.value)

    @property
    def allocated(self) -> bool:
        """Whether the pools are made."""
        return bool(self.pools)

    @property
    def first(self) -> Pools:
        """The pools of the first stage, which has the same tokens as all."""
        return self.pools[0]


def replica(request: PlanRequest, settings: Settings, devices: Stages) -> Replica:
    """A replica on `devices`: those of each pipeline stage, tensor ranks in order."""
    spec = request.model.spec
    draft = request.draft.spec if request.draft is not None else None
    layouts = tuple(layout(spec, settings, stage, draft) for stage in range(settings.parallel.pp))
    ranks = _ranks(request, settings, devices)
    least = min(rank.after.value for rank in ranks)
    needed = 1 - least / max(min(rank.before.value for rank in ranks), 1)
    whole = tuple(device for row in devices for device in row)
    made = Replica(settings, whole, ranks, layouts, (), 0, 0, (), None, None, None, needed)
    loading = checks.loading(ranks)
    failing = checks.worst(loading)
    if failing is not None:
        return made._replace(failure=_failure(failing))
    pools, refusal = _pools(settings, layouts, ranks, "value")
    low, refused_low = _pools(settings, layouts, ranks, "low")
    high, _ = _pools(settings, layouts, ranks, "high")
    if refusal is not None:
        stage = checks.SIZING if refusal.kind in _SIZING else checks.TOO_SMALL
        return made._replace(failure=_refused(ranks, settings, layouts, refusal, stage, hopeful=bool(high)))
    late = tuple(_late(request, settings, pools[rank.stage]) for rank in ranks)
    sizes = [_allocated(pools[rank.stage]) for rank in ranks]
    every = [c for i, rank in enumerate(ranks) for c in checks.after_sizing(rank, i, sizes[i], late[i])]
    failing = checks.worst(every)
    return made._replace(
        pools=pools,
        tokens_low=low[0].tokens if low else 0,
        tokens_high=max(high[0].tokens if high else 0, pools[0].tokens),
        late=late,
        failure=_failure(failing) if failing is not None else None,
        doubt=checks.doubtful([*loading, *every]),
        refused_low=refused_low,
    )


def _ranks(request: PlanRequest, settings: Settings, devices: Stages) -> tuple[Rank, ...]:
    """All ranks; each distinct (stage, GPU, free memory) is planned once."""
    planned: dict[tuple[int, str, int | None], Rank] = {}
    for stage, row in enumerate(devices):
        for device in row:
            key = rank_key(stage, device)
            if key not in planned:
                planned[key] = plan_rank(request, settings, stage, device)
    return tuple(planned[rank_key(stage, device)] for stage, row in enumerate(devices) for device in row)


def _pools(
    settings: Settings, layouts: Sequence[Layout], ranks: Sequence[Rank], end: str
) -> tuple[tuple[Pools, ...], Refusal | None]:
    """The pools of every stage, or why there are none. The engine takes the least free memory of all ranks.

    Stages differ in layers: all take the tokens of the one that holds fewest.
    """
    before, after = _measured(ranks, end)
    if before <= 0:
        return (), Refusal("weights", "", 1.0)
    given = [rank.given_kv for rank in ranks if rank.given_kv is not None]
    if given:
        # A given cache stands for the rest of the budget.
        after = math.ceil(before * (1 - settings.fraction)) + min(given) + settings.media_mib * (1 << 20)
    measured = Measured(before, after)
    found = [solve(settings, each, measured) for each in layouts]
    refusal = next((pools for pools in found if isinstance(pools, Refusal)), None)
    if refusal is not None:
        return (), refusal
    sized = [pools for pools in found if isinstance(pools, Pools)]
    tokens = min(pools.tokens for pools in sized)
    if len(sized) > 1 and any(pools.tokens > tokens for pools in sized):
        capped = settings._replace(cache=settings.cache._replace(max_total_tokens=tokens))
        again = [solve(capped, each, measured) for each in layouts]
        sized = [pools for pools in again if isinstance(pools, Pools)]
    return tuple(sized), None


def _measured(ranks: Sequence[Rank], end: str) -> tuple[int, int]:
    """The least free memory of all ranks before and after loading, at an end of the band."""
    alike = {id(rank): rank for rank in ranks}.values()
    return min(int(getattr(r.before, end)) for r in alike), min(int(getattr(r.after, end)) for r in alike)


def _allocated(pools: Pools) -> int:
    """What the pools take of a rank's free memory, the draft's included."""
    return pools.bytes + pools.draft_bytes


def _late(request: PlanRequest, settings: Settings, pools: Pools) -> Late:
    return Late(pools.table_bytes + pools.list_bytes, eager(request, request.model.spec, settings, pools.requests))


def _failure(check: Check) -> Failure:
    return Failure(check.stage, check.rank, check.missing, check.least, check.most)


def _refused(
    ranks: Sequence[Rank], settings: Settings, layouts: Sequence[Layout], refusal: Refusal, stage: str, *, hopeful: bool
) -> Failure:
    """A refusal with what the budget lacks until the smallest pools stand; 0 where no memory helps."""
    tightest = min(range(len(ranks)), key=lambda i: ranks[i].after.value)
    lacking = {end: _lacking(ranks, settings, layouts, end) for end in ("value", "low", "high")}
    missing = lacking["value"]
    least = min(lacking["high"], 0) if hopeful else lacking["high"]
    return Failure(stage, tightest, missing, min(least, missing), max(lacking["low"], missing), refusal)


def _lacking(ranks: Sequence[Rank], settings: Settings, layouts: Sequence[Layout], end: str) -> int:
    """What more has to be free after loading for pools to stand, 0 where even the whole memory would not do."""
    before, after = _measured(ranks, end)
    if before <= 0:
        return max(-before, 1)

    def refused(more: int) -> bool:
        return any(isinstance(solve(settings, each, Measured(before, after + more)), Refusal) for each in layouts)

    none, enough = 0, max(ranks[0].total.value, before) - min(after, 0)
    if not refused(0) or refused(enough):
        return 0
    while none + 1 < enough:
        middle = (none + enough) // 2
        none, enough = (middle, enough) if refused(middle) else (none, middle)
    return enough
