"""The figures of a plan that its parts do not carry themselves: the KV cache, what the driver keeps, the headroom."""

from __future__ import annotations

from kvplanner.engine.plan import KvCache
from kvplanner.engine.vllm.kv import notes as kv_notes
from kvplanner.engine.vllm.startup.rank import Rank
from kvplanner.engine.vllm.startup.replica import Replica
from kvplanner.estimate import Estimate, Input, band_of_sum, banded
from kvplanner.record import later
from kvplanner.sized_text import SizedText, size_mark
from kvplanner.units import format_count


def kv_cache(replica: Replica) -> KvCache:
    """The KV cache of one replica; its band is that of the memory of the rank that decides on its blocks."""
    layout, sizing = replica.layout, replica.sizing
    tightest = replica.ranks[replica.deciding]
    available = tightest.available
    return KvCache(
        available=available._replace(notes=later(lambda: (*available.notes, *_notes(replica, tightest)))),
        bytes_per_unit=sizing.bytes_per_block[tightest.stage],
        unit_tokens=layout.block_size,
        units=sizing.num_blocks,
        tokens=sizing.tokens,
        tokens_low=min(replica.low.tokens, sizing.tokens),
        tokens_high=max(replica.high.tokens, sizing.tokens),
        max_concurrency=sizing.max_concurrency,
        context_length=sizing.max_model_len,
        bytes_per_token=layout.bytes_per_token,
        groups=layout.groups,
        error=sizing.error,
        suggested_context_length=sizing.estimated_max_model_len,
    )


def _notes(replica: Replica, rank: Rank) -> tuple[str, ...]:
    found = (_naive_note(replica, rank), kv_notes.pool(replica.layout, replica.sizing), *replica.layout.notes)
    return tuple(note for note in found if note)


def _naive_note(replica: Replica, rank: Rank) -> str:
    """What the common rule of thumb (memory − weights) ÷ bytes per token would promise."""
    layout, sizing = replica.layout, replica.sizing
    if not layout.bytes_per_token or not sizing.tokens or rank.given_kv is not None:
        return ""
    rest = rank.total.value - rank.weights.value
    tokens = int(rest / layout.bytes_per_token)
    excess = round(100 * (tokens / sizing.tokens - 1))
    if excess < 1:
        return ""
    return SizedText(
        f"The rule of thumb ({size_mark(rank.total.value)} − {size_mark(rank.weights.value)} of "
        f"weights) ÷ {layout.bytes_per_token:,.0f} bytes promises {format_count(tokens)} tokens, {excess} % too many: "
        "it leaves out the utilisation limit, activations, graphs and the runtime"
    )


def driver_reserved(rank: Rank) -> Estimate:
    """What the driver keeps to itself: NVML's total less what CUDA sees."""
    low = max(rank.total.low - rank.cuda_total.high, 0)
    high = max(rank.total.high - rank.cuda_total.low, low)
    if rank.total == rank.cuda_total:
        low = high = 0  # one estimate for both: whatever it is, nothing lies between
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
    doubtful = [rank.outside, rank.cuda_total, rank.fragmentation]
    doubtful += [] if rank.settings.era.graphs_in_budget else [rank.graphs]
    doubtful += [] if rank.given_kv is None else [rank.runtime, rank.weights, rank.workspace, rank.activations]
    above, below = band_of_sum(doubtful)
    inputs = (
        Input("total", rank.total.value, "B", _source(rank.total)),
        Input("budget", rank.budget.value, "B", f"{rank.settings.cache.utilization:g} × CUDA total"),
        Input("made after start", rank.after.value, "B", "block tables and workspaces outside the measurement"),
    )
    return banded(value, value - below, value + above, "rest", "{total} − everything above", *inputs)
