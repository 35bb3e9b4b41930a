"""One replica: its ranks, its KV cache and where its start-up fails, if it does."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from kvplanner.engine.request import PlanRequest
from kvplanner.engine.vllm.gpu import Gpu, gpu_of
from kvplanner.engine.vllm.kv import layout as kv_layout
from kvplanner.engine.vllm.kv import sizing as kv_sizing
from kvplanner.engine.vllm.kv.layout import CacheLayout
from kvplanner.engine.vllm.kv.sizing import KvSizing
from kvplanner.engine.vllm.settings import Settings
from kvplanner.engine.vllm.startup import checks as verdict
from kvplanner.engine.vllm.startup.checks import Check, Failure
from kvplanner.engine.vllm.startup.rank import Rank, plan_rank, rank_key
from kvplanner.engine.vllm.weights import rank as weights
from kvplanner.gpu.spec import Device
from kvplanner.record import NamedTuple, late, later


@late("sizing", "low", "high")
class Replica(NamedTuple):
    """A replica of the model on its own devices.

    devices: stage by stage, tensor ranks in order. ranks: what each of them holds; ranks alike are one object, with
    the first of their devices. layout: for the context length after auto-fit. low, high: the cache
    at the ends of the tightest rank's band. kv_bytes: allocated on each rank, all 0 when the plan fails before.
    """

    devices: tuple[Device, ...]
    ranks: tuple[Rank, ...]
    layout: CacheLayout
    sizing: KvSizing
    low: KvSizing
    high: KvSizing
    failure: Failure | None
    kv_bytes: tuple[int, ...]

    @property
    def sized(self) -> bool:
        """Whether start-up gets as far as to size the cache, and the cache is modelled."""
        before = self.failure is not None and self.failure.stage not in _SIZED
        return self.layout.exact and bool(self.layout.tables) and not before

    @property
    def tightest(self) -> int:
        """The rank that fails, else the one that decides how many blocks there are."""
        return self.failure.rank if self.failure is not None else self.deciding

    @property
    def deciding(self) -> int:
        """The rank with the least memory for the cache, of the pipeline stage that decides on the blocks."""
        stages = {self.sizing.stage} if self.layout.exact and self.layout.tables else set(range(len(self.ranks)))
        ranks = [i for i, rank in enumerate(self.ranks) if rank.stage in stages]
        return min(ranks, key=lambda i: self.ranks[i].available.value)

    @property
    def doubt(self) -> Check | None:
        """The first stage before the cache that a plan may fail at within its ranges."""
        return verdict.doubt(verdict.checks_before_cache(self.ranks))

    @property
    def cache_doubt(self) -> str:
        """What the engine says of the cache at the low end of its range, "" when it takes it or is not modelled."""
        return (self.low.error or self.low.capture_error or "") if self.layout.exact else ""

    @property
    def late_doubt(self) -> Check | None:
        """The first stage after the cache is sized that a plan may fail at within its ranges."""
        return verdict.doubt(verdict.checks_after_sizing(self.ranks, self.kv_bytes))

    @property
    def late_failure(self) -> bool:
        """Whether something is lacking after the cache is allocated, whether or not start-up gets that far."""
        return verdict.after_sizing(self.ranks, self.kv_bytes) is not None

    @property
    def sure(self) -> bool:
        """Whether it works at the unfavourable end of every band."""
        return self.failure is None and self.doubt is None and not self.cache_doubt and self.late_doubt is None

    @property
    def hopeful(self) -> bool:
        """Whether a plan that fails would not at the best ends of its ranges."""
        if self.failure is None:
            return False
        if verdict.surely_lacks(verdict.checks_before_cache(self.ranks)):
            return False
        kv_bytes = tuple(_kv_bytes(rank, self.layout, self.sizing) for rank in self.ranks)
        if verdict.surely_lacks(verdict.checks_after_sizing(self.ranks, kv_bytes)):
            return False
        if not self.layout.exact:
            return all(rank.available.high > 0 for rank in self.ranks)
        return self.high.error is None and self.high.capture_error is None


_SIZED = ("kv_cache_too_small", "kv_cache_allocation", "graph_capture", "runtime")


def layout_of(request: PlanRequest, settings: Settings, gpu: Gpu) -> CacheLayout:
    """The cache layout of a request under settings."""
    spec = request.model.spec
    partition = weights.partition(spec.num_layers, settings.parallel.pp, settings.parallel.pp_partition)
    # Its share of the memory is nothing to a cache's layout, which so serves every share.
    any_share = settings._replace(cache=settings.cache._replace(utilization=1.0))
    found = kv_layout.plan_cache(spec, any_share, gpu, partition, request.draft.spec if request.draft else None)
    return found._replace(settings=settings)


def solve(request: PlanRequest, settings: Settings, devices: Sequence[Sequence[Device]]) -> Replica:
    """A replica on `devices`: those of each pipeline stage, tensor ranks in order."""
    gpu = gpu_of(request.machine.devices[0].gpu)  # the engine settles on the first
    layout = layout_of(request, settings, gpu)
    ranks = _ranks(request, settings, layout, devices)
    whole = tuple(device for row in devices for device in row)
    failure = verdict.before_cache(ranks)
    if failure is not None and not settings.model.auto_fit:
        value, least, most = (later(partial(_sized, layout, ranks, end)) for end in ("value", "low", "high"))
        return Replica(whole, ranks, layout, value, least, most, failure, (0,) * len(ranks))
    sizing, low, high = (_sized(layout, ranks, end) for end in ("value", "low", "high"))
    if settings.model.auto_fit and sizing.max_model_len != settings.model.max_model_len:
        layout = layout_of(request, _at_length(settings, sizing.max_model_len), gpu)
    known = layout.exact
    failure = failure or verdict.at_sizing(ranks, sizing, known)
    reached = failure is None or failure.stage in _SIZED
    kv_bytes = tuple(_kv_bytes(rank, layout, sizing) if reached else 0 for rank in ranks)
    failure = failure or verdict.after_sizing(ranks, kv_bytes, _tensor_bytes(layout, sizing))
    return Replica(whole, ranks, layout, sizing, low, high, failure, kv_bytes)


def _at_length(settings: Settings, length: int) -> Settings:
    """The settings after auto-fit."""
    return settings._replace(model=settings.model._replace(auto_fit=False, max_model_len=length))


def _tensor_bytes(layout: CacheLayout, sizing: KvSizing) -> int | None:
    """Bytes of each of the cache's tensors, one for each layer of a block; None where they differ or are not known."""
    pages = {table.spec.page_bytes for table in layout.tables}
    if not layout.exact or len(pages) != 1 or any(table.mixed for table in layout.tables):
        return None
    return sizing.num_blocks * pages.pop()


def _kv_bytes(rank: Rank, layout: CacheLayout, sizing: KvSizing) -> int:
    """The KV cache that a rank allocates: whole blocks, or all that is left where its blocks are not known."""
    if not layout.exact:
        return max(rank.available.value, 0)
    return sizing.num_blocks * sizing.bytes_per_block[rank.stage] if layout.tables else 0


def _ranks(
    request: PlanRequest, settings: Settings, layout: CacheLayout, devices: Sequence[Sequence[Device]]
) -> tuple[Rank, ...]:
    """All ranks of the replica; each distinct (stage, GPU, free memory) is planned once."""
    planned: dict[tuple[int, str, int | None], Rank] = {}
    for stage, row in enumerate(devices):
        for device in row:
            key = rank_key(stage, device)
            if key not in planned:
                planned[key] = plan_rank(request, settings, stage, device, layout)
    return tuple(planned[rank_key(stage, device)] for stage, row in enumerate(devices) for device in row)


def _sized(layout: CacheLayout, ranks: Sequence[Rank], end: str) -> KvSizing:
    """The cache at an end of the band, of the available memory of each stage: the least of its ranks."""
    free: dict[int, int] = {}
    for rank in ranks:
        found = int(getattr(rank.available, end))
        free[rank.stage] = min(free.get(rank.stage, found), found)
    return kv_sizing.size(layout, tuple(free[stage] for stage in range(len(free))))
