"""Memory of a device over the stages of start-up, in the order of v1/engine/core.py (0.33)."""

from __future__ import annotations

from kvplanner.engine.plan import Stage, StageMemory
from kvplanner.engine.vllm.startup.rank import Rank

# Each stage with the failures that happen in it.
_FAILS_IN: dict[str, tuple[Stage, ...]] = {
    "start": ("free_memory_check",),
    "load": ("weights",),
    "profile": ("profile",),
    "size": ("kv_cache_sizing", "kv_cache_too_small"),
    "allocate": ("kv_cache_allocation",),
    "graphs": ("graph_capture",),
    "serve": ("runtime",),
}


def timeline(rank: Rank, kv_bytes: int, failing: Stage | None) -> tuple[StageMemory, ...]:
    """The stages up to and including the failing one; sizes are device memory in use, driver's part included."""
    base = rank.reserved_bytes + rank.other.value + rank.outside.value
    loaded = base + rank.weights.value
    resident = rank.reserved_bytes + rank.resident_bytes
    allocated = resident + kv_bytes
    captured = allocated + rank.graphs.value + rank.after.value
    steps = (
        ("start", "context and communicators", base, base, ""),
        ("load", "load weights", loaded, loaded + rank.staging.value, "staging on top"),
        ("profile", "profile run", resident, resident + rank.activations.value, "its peak sizes the KV cache"),
        ("size", "size the KV cache", resident, resident, ""),
        ("allocate", "allocate the KV cache", allocated, allocated, ""),
        ("graphs", "capture CUDA graphs", captured, captured, "and buffers made after the measurement"),
        ("serve", "serve", captured, captured + rank.activations.value, "at a full batch"),
    )
    out: list[StageMemory] = []
    for stage, label, end, peak, note in steps:
        fails = failing is not None and failing in _FAILS_IN[stage]
        if peak > rank.total.value and not fails:
            note += ", which may not fit"
        out.append(StageMemory(stage, label, end, peak, fails, note))
        if fails:
            break
    return tuple(out)
