"""The figures of a plan that its parts do not carry themselves: cache, workspace, headroom."""

from __future__ import annotations

from kvplanner.engine.plan import CacheGroup, KvCache
from kvplanner.engine.sglang.kv.pools import Layout, Pools
from kvplanner.engine.sglang.settings import Settings
from kvplanner.engine.sglang.startup.checks import Late
from kvplanner.engine.sglang.startup.limits import token_bytes
from kvplanner.engine.sglang.startup.rank import Rank
from kvplanner.engine.sglang.startup.replica import Replica
from kvplanner.estimate import Estimate, Input, band_of_sum, banded, least_sure
from kvplanner.units import ceil_div


def kv_cache(made: Replica, settings: Settings) -> KvCache:
    """The pools of a replica, in tokens of the full pool (of the window pool where there is no other)."""
    pools, rank = made.first, made.ranks[made.tightest]
    each = token_bytes(made)
    return KvCache(
        available=_rest(rank, settings, pools),
        bytes_per_unit=each * settings.cache.page_size,
        unit_tokens=settings.cache.page_size,
        units=pools.tokens // settings.cache.page_size,
        tokens=pools.tokens,
        tokens_low=min(made.tokens_low, pools.tokens),
        tokens_high=made.tokens_high,
        max_concurrency=pools.tokens / settings.context_length,
        context_length=settings.context_length,
        bytes_per_token=float(each),
        groups=_groups(made.layouts[0], settings),
        unit="tokens" if settings.cache.page_size == 1 else "pages",
    )


def _rest(rank: Rank, settings: Settings, pools: Pools) -> Estimate:
    before, after = rank.before, rank.after
    value = pools.rest_bytes
    ends = (rank.free_at(end, settings.fraction) for end in ("low", "high"))
    low, high = (int(left - whole * (1 - settings.fraction)) - settings.media_mib * (1 << 20) for whole, left in ends)
    low, high = min(value, low), max(value, high)
    inputs = (
        Input("free after loading", after.value, "B", "the least of all ranks"),
        Input("free before loading", before.value, "B", "the least of all ranks"),
        Input("fraction", settings.fraction, "", "--mem-fraction-static"),
        Input("for media", settings.media_mib * (1 << 20), "B", "kept back for images and embeddings"),
    )
    formula = "{free after loading} − {free before loading} × (1 − {fraction})"
    formula += " − {for media}" if settings.media_mib else ""
    return Estimate(value, max(low, 0), high, "rest", formula, inputs)


def _groups(layout: Layout, settings: Settings) -> tuple[CacheGroup, ...]:
    page, cells = settings.cache.page_size, layout.cells
    pages = ceil_div(settings.context_length, page)
    out: list[CacheGroup] = []
    if layout.full_layers:
        each = cells.full * page // layout.full_layers
        out.append(CacheGroup(layout.kind, layout.full_layers, page, each, pages))
    if layout.window_layers:
        each = cells.window * page // layout.window_layers
        out.append(CacheGroup("sliding", layout.window_layers, page, each, 0))
    if layout.state is not None:
        slot = layout.state.allocated_bytes // max(layout.state_layers, 1)
        out.append(CacheGroup("state", layout.state_layers, page, slot, 0))
    return tuple(out)


def workspace(rank: Rank, late: Late | None, pools: Pools | None) -> Estimate:
    """Request table, free lists and the attention back ends' workspaces."""
    kept = rank.workspace
    if late is None or pools is None:
        return kept
    inputs = (
        Input("request table", pools.table_bytes, "B", "(requests + 1) × (context length + extra) × 4 bytes"),
        Input("free lists", pools.list_bytes, "B", "8 bytes for each token or page, and for each request"),
        *kept.inputs,
    )
    exact_part = late.exact_bytes
    formula = " + ".join(("{request table}", "{free lists}", kept.formula))
    return banded(exact_part + kept.value, exact_part + kept.low, exact_part + kept.high, kept.basis, formula, *inputs)


def pool_segment(rank: Rank, pools: Pools, settings: Settings) -> Estimate:
    """What the pools take: whole pages, states, the draft's own pool."""
    parts = {"keys and values": pools.kv_bytes, "recurrent states": pools.state_bytes, "draft": pools.draft_bytes}
    source = f"{pools.tokens:,} tokens in pages of {settings.cache.page_size}"
    inputs = tuple(Input(name, size, "B", source) for name, size in parts.items() if size)
    value = pools.bytes + pools.draft_bytes
    rest = _rest(rank, settings, pools)
    low, high = max(value - (rest.value - rest.low), 0), value + rest.high - rest.value
    return Estimate(value, low, high, rest.basis, " + ".join(f"{{{i.name}}}" for i in inputs), inputs)


def driver_reserved(rank: Rank) -> Estimate:
    """What the driver keeps to itself: NVML's total less what CUDA sees."""
    value = rank.reserved_bytes
    low = high = value
    if rank.total != rank.cuda_total:
        low = min(max(rank.total.low - rank.cuda_total.high, 0), value)
        high = max(rank.total.high - rank.cuda_total.low, value)
    inputs = (
        Input("NVML total", rank.total.value, "B", rank.device.gpu.name),
        Input("CUDA total", rank.cuda_total.value, "B", rank.device.gpu.name),
    )
    return Estimate(value, low, high, least_sure((rank.total, rank.cuda_total)), "{NVML total} − {CUDA total}", inputs)


def headroom(rank: Rank, late: Late | None, value: int) -> Estimate:
    """What is left of the slack and of unfilled pages."""
    doubtful = [rank.outside, rank.workspace, rank.graphs, rank.late, *([late.eager] if late else [])]
    above, below = band_of_sum(doubtful)
    total = Input("total", rank.total.value, "B", rank.device.gpu.name)
    return banded(value, value - below, value + above, "rest", "{total} − everything before", total)
