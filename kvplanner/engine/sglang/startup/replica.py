"""A replica of the model on its own devices: ranks, pools, and where start-up would fail."""

from __future__ import annotations

import math
from collections.abc import Sequence

from kvplanner.engine.request import PlanRequest
from kvplanner.engine.sglang.kv.layout import layout
from kvplanner.engine.sglang.kv.pools import Layout, Measured, Pools, Refusal, Sizing, Stop, furnished, sizing, solve
from kvplanner.engine.sglang.settings import Settings
from kvplanner.engine.sglang.startup import checks
from kvplanner.engine.sglang.startup.checks import Check, Late
from kvplanner.engine.sglang.startup.rank import OnDevice, Rank, eager, on_device, plan_rank, rank_key
from kvplanner.gpu.spec import Device
from kvplanner.record import NamedTuple

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
    def sure(self) -> bool:
        """Whether start-up comes to its end within every band."""
        return self.failure is None and self.doubt is None and self.refused_low is None

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
    pools, refusal = pools_of(settings, layouts, ranks, "value")
    low, refused_low = pools_of(settings, layouts, ranks, "low")
    high, _ = pools_of(settings, layouts, ranks, "high")
    if refusal is not None:
        stage = checks.SIZING if refusal.kind in _SIZING else checks.TOO_SMALL
        return made._replace(failure=_refused(ranks, settings, layouts, refusal, stage, hopeful=bool(high)))
    by_stage = [late_of(request, settings, each) for each in pools]
    late = tuple(by_stage[rank.stage] for rank in ranks)
    every = after_sizing(ranks, pools, by_stage, settings.fraction)
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
    here: dict[tuple[int, str, int | None], OnDevice] = {}  # whatever the stage
    planned: dict[tuple[int, str, int | None], Rank] = {}
    out: list[Rank] = []
    for stage, row in enumerate(devices):
        for device in row:
            key = rank_key(stage, device)
            if key not in planned:
                place = rank_key(0, device)
                if place not in here:
                    here[place] = on_device(request, settings, device)
                planned[key] = plan_rank(request, settings, stage, device, here[place])
            out.append(planned[key])
    return tuple(out)


def pools_of(
    settings: Settings, layouts: Sequence[Layout], ranks: Sequence[Rank], end: str
) -> tuple[tuple[Pools, ...], Refusal | None]:
    """The pools of every stage, or why there are none."""
    try:
        found = sizings_of(settings, layouts, ranks, end)
        return tuple(furnished(settings, *each) for each in zip(layouts, found, strict=True)), None
    except Stop as stop:
        return (), stop.refusal


def sizings_of(settings: Settings, layouts: Sequence[Layout], ranks: Sequence[Rank], end: str) -> tuple[Sizing, ...]:
    """What the pools of every stage are cut to. The engine takes the least free memory of all ranks.

    Stages differ in layers: all take the tokens of the one that holds fewest. Raises Stop where there are none.
    """
    before, after = _measured(ranks, end, settings.fraction)
    given = [rank.given_kv for rank in ranks if rank.given_kv is not None]
    if given:
        # A given cache stands for the rest of the budget.
        after = math.ceil(before * (1 - settings.fraction)) + min(given) + settings.media_mib * (1 << 20)
    measured = Measured(before, after)
    found = tuple(sizing(settings, each, measured) for each in layouts)
    tokens = min(each.sized.tokens for each in found)
    if any(each.sized.tokens > tokens for each in found):
        settings = settings._replace(cache=settings.cache._replace(max_total_tokens=tokens))
        return tuple(sizing(settings, each, measured) for each in layouts)
    return found


def _measured(ranks: Sequence[Rank], end: str, fraction: float) -> tuple[int, int]:
    """The least free memory of all ranks before and after loading, at an end of the band."""
    alike = [rank.free_at(end, fraction) for rank in {id(rank): rank for rank in ranks}.values()]
    return min(before for before, _ in alike), min(after for _, after in alike)


def after_sizing(ranks: Sequence[Rank], pools: Sequence[Pools], late: Sequence[Late], fraction: float) -> list[Check]:
    """What the ranks lack once the pools of their stages are made; ranks alike are checked once."""
    out: list[Check] = []
    checked: set[int] = set()
    for index, rank in enumerate(ranks):
        if id(rank) not in checked:
            checked.add(id(rank))
            out += checks.after_sizing(rank, index, pools[rank.stage].allocated, late[rank.stage], fraction)
    return out


def late_of(request: PlanRequest, settings: Settings, pools: Pools) -> Late:
    """What the ranks of a stage take after their pools are sized."""
    return Late(pools.table_bytes + pools.list_bytes, eager(request, request.model.spec, settings, pools.requests))


def _failure(check: Check) -> Failure:
    return Failure(check.stage, check.rank, check.missing, check.least, check.most)


def _refused(
    ranks: Sequence[Rank], settings: Settings, layouts: Sequence[Layout], refusal: Refusal, stage: str, *, hopeful: bool
) -> Failure:
    """A refusal with what the budget lacks until the smallest pools stand; 0 where no memory helps."""
    tightest = min(range(len(ranks)), key=lambda i: ranks[i].after.value)
    lacking = _lacking(ranks, settings, layouts)
    missing = lacking["value"]
    least = min(lacking["high"], 0) if hopeful else lacking["high"]
    return Failure(stage, tightest, missing, min(least, missing), max(lacking["low"], missing), refusal)


def _lacking(ranks: Sequence[Rank], settings: Settings, layouts: Sequence[Layout]) -> dict[str, int]:
    """What more has to be free after loading for pools to stand, at each end of the band.

    0 where pools stand, and where even the whole memory would not do.
    """
    free = {end: _measured(ranks, end, settings.fraction) for end in ("value", "low", "high")}
    before = free["value"][0]  # at every end
    if before <= 0:
        return dict.fromkeys(free, max(-before, 1))
    whole = max(ranks[0].total.value, before)
    most = {end: whole + max(after, 0) for end, (_, after) in free.items()}

    def refused(after: int) -> bool:
        return any(isinstance(solve(settings, each, Measured(before, after)), Refusal) for each in layouts)

    none, enough = min(after for _, after in free.values()), max(most.values())
    if refused(enough):
        return dict.fromkeys(free, 0)
    while none + 1 < enough:
        middle = (none + enough) // 2
        none, enough = (middle, enough) if refused(middle) else (none, middle)
    return {end: enough - after if after < enough <= most[end] else 0 for end, (_, after) in free.items()}
