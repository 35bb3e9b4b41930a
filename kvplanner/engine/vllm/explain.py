"""The sentences and derived figures of a plan: its summary, its KV cache figure, warnings, headroom."""

from __future__ import annotations

from collections.abc import Sequence

from kvplanner.engine.base import KvCache, Limits, PlanRequest
from kvplanner.engine.vllm import kv_notes, kv_sizing
from kvplanner.engine.vllm.kv_layout import CacheLayout
from kvplanner.engine.vllm.kv_sizing import KvSizing
from kvplanner.engine.vllm.ranks import Rank
from kvplanner.engine.vllm.settings import Settings
from kvplanner.estimate import Estimate, Input, band_of_sum
from kvplanner.units import format_bytes, format_count, round_to_band

COLD_COMPILE = (
    "A warm compile cache is assumed: the first start on a machine compiles, books it as activations, and leaves "
    "about 1 GiB less for the KV cache"
)


def kv_cache(layout: CacheLayout, sizing: KvSizing, ranks: Sequence[Rank], settings: Settings) -> KvCache:
    """The KV cache of one replica; its band is that of the tightest rank's memory."""
    tightest = min(ranks, key=lambda r: r.available.value)
    low, high = (_at_bound(layout, ranks, settings.pp, bound) for bound in ("low", "high"))
    available = tightest.available.with_notes(*_notes(layout, sizing, tightest))
    return KvCache(
        available=available,
        bytes_per_block=sizing.bytes_per_block[tightest.stage],
        block_size=layout.block_size,
        num_blocks=sizing.num_blocks,
        tokens=sizing.tokens,
        tokens_low=min(low.tokens, sizing.tokens),
        tokens_high=max(high.tokens, sizing.tokens),
        max_concurrency=sizing.max_concurrency,
        context_length=sizing.max_model_len,
        bytes_per_token=layout.bytes_per_token,
        groups=layout.groups,
        error=sizing.error,
        estimated_max_model_len=sizing.estimated_max_model_len,
    )


def _at_bound(layout: CacheLayout, ranks: Sequence[Rank], pp: int, bound: str) -> KvSizing:
    memory = tuple(min(int(getattr(r.available, bound)) for r in ranks if r.stage == stage) for stage in range(pp))
    return kv_sizing.size(layout, memory)


def _notes(layout: CacheLayout, sizing: KvSizing, rank: Rank) -> tuple[str, ...]:
    found = (_naive_note(layout, sizing, rank), kv_notes.pool(layout, sizing), *layout.notes)
    return tuple(note for note in found if note)


def _naive_note(layout: CacheLayout, sizing: KvSizing, rank: Rank) -> str:
    """What the common rule of thumb (memory − weights) ÷ bytes per token would promise."""
    if not layout.bytes_per_token or not sizing.tokens:
        return ""
    rest = rank.total.value - rank.weights.value
    tokens = int(rest / layout.bytes_per_token)
    excess = round(100 * (tokens / sizing.tokens - 1))
    if excess < 1:
        return ""
    return (
        f"The rule of thumb ({format_bytes(rank.total.value, 'GB')} − {format_bytes(rank.weights.value, 'GB')} of "
        f"weights) ÷ {layout.bytes_per_token:,.0f} bytes promises {format_count(tokens)} tokens, {excess} % too many: "
        "it leaves out the utilisation limit, activations, graphs and the runtime"
    )


def driver_reserved(rank: Rank) -> Estimate:
    """What the driver keeps to itself: NVML's total less what CUDA sees."""
    low = max(rank.total.low - rank.cuda_total.high, 0)
    high = max(rank.total.high - rank.cuda_total.low, low)
    value = rank.reserved_bytes
    return Estimate(
        value,
        min(low, value),
        max(high, value),
        rank.cuda_total.basis if rank.total.basis == "exact" else rank.total.basis,
        "{NVML total} − {CUDA total}",
        (
            Input("NVML total", rank.total.value, "B", _source(rank.total)),
            Input("CUDA total", rank.cuda_total.value, "B", _source(rank.cuda_total)),
        ),
    )


def _source(estimate: Estimate) -> str:
    return estimate.inputs[0].source if estimate.inputs else estimate.basis


def headroom(rank: Rank, value: int) -> Estimate:
    """What the engine leaves: outside its budget, and what whole blocks do not use."""
    # What is in the budget moves the KV cache, not the headroom; only the rest does.
    doubtful = [rank.outside, rank.cuda_total]
    doubtful += [] if rank.settings.era.graphs_in_budget else [rank.graphs]
    doubtful += [] if rank.given_kv is None else [rank.runtime, rank.weights, rank.workspace, rank.activations]
    above, below = band_of_sum(doubtful)
    inputs = (
        Input("total", rank.total.value, "B", _source(rank.total)),
        Input("budget", rank.budget.value, "B", f"{rank.settings.utilization:g} × CUDA total"),
        Input("made after start", rank.after.value, "B", "block tables and workspaces outside the measurement"),
    )
    return Estimate(value, value - below, value + above, "rest", "{total} − everything above", inputs)


def narrow(ranks: Sequence[Rank], kv_bytes: Sequence[int]) -> str:
    """A warning when a plan that fits at its values may not at the upper ends of its ranges, "" otherwise."""
    worst, words = 0, ""
    for rank, kv in zip(ranks, kv_bytes, strict=True):
        outside = rank.outside.high - rank.outside.value
        check = rank.budget.value - rank.free_at_start_bytes + outside
        used = rank.resident_bytes + kv + rank.graphs.value + rank.after.value + rank.activations.value
        _, above = band_of_sum((rank.outside, rank.graphs, rank.after))
        serve = used + above - rank.cuda_total.value
        if rank.settings.era.free_memory_check and check > worst:
            worst, words = check, f"the free memory check may miss {format_bytes(check)} on GPU {rank.device.index}"
        if serve > worst:
            worst, words = serve, f"serving may lack {format_bytes(serve)} on GPU {rank.device.index}"
    return f"A narrow fit: at the upper end of its range {words}; a lower utilisation leaves room" if words else ""


def summary(request: PlanRequest, cache: KvCache, limits: Limits) -> str:
    """One sentence with the number that matters."""
    tokens = round_to_band(cache.tokens, cache.tokens_low, cache.tokens_high)
    about = "" if cache.tokens_low == cache.tokens_high else "≈ "
    room = f"KV cache for {about}{format_count(tokens)} tokens"
    if cache.num_blocks <= 1 and cache.tokens == 0:
        return "Fits: this model keeps no KV cache"
    if request.load is None or limits.serves_users is None:
        full = f"{cache.max_concurrency:,.1f} requests of {format_count(cache.context_length)} tokens"
        return f"Fits: {room}, {full} at once"
    served, users = limits.serves_users, request.load.users
    joint = "and serves" if served >= users else "but serves only"
    return f"Fits, {joint} {format_count(served)} of {format_count(users)} users: {room}"


def unknown_cache(layout: CacheLayout, kv_bytes: Sequence[int]) -> str:
    """The sentence for a cache whose blocks are not known: what is left for it, and why no tokens are told."""
    return (
        f"Cannot tell how many tokens: {format_bytes(min(kv_bytes))} is left for the KV cache. {layout.not_modelled[0]}"
    )


def warnings(request: PlanRequest, settings: Settings, ranks: Sequence[Rank], limits: Limits) -> tuple[str, ...]:
    """What the reader should know beside the numbers."""
    out: list[str] = []
    load = request.load
    if load is not None and load.tokens_per_user > settings.max_model_len:
        out.append(
            f"A request of {format_count(load.tokens_per_user)} tokens is longer than the context length "
            f"{format_count(settings.max_model_len)}: no user of this load is served"
        )
    if settings.graph_mode != "NONE":
        out.append(COLD_COMPILE)
    for rank in ranks:
        if rank.device.gpu.cuda_total is not None and rank.device.gpu.cuda_total.basis == "assumed":
            out.append(f"What CUDA sees of {rank.device.gpu.name} is assumed: attach the GPU or give its size")
            break
    out.extend(f"{kind} is given, not estimated" for kind in sorted(request.measured))
    return tuple(out)
