"""Where start-up would fail, if it does: the stages in the engine's own order, first failure wins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kvplanner.engine.base import Stage
from kvplanner.engine.vllm import messages
from kvplanner.engine.vllm.kv_sizing import NO_AUTO_FIT, NO_BLOCKS, KvSizing
from kvplanner.engine.vllm.ranks import Rank


class Failure(NamedTuple):
    """rank: index of the rank that fails; missing_bytes: how much it lacks; message: the engine's words."""

    stage: Stage
    rank: int
    missing_bytes: int
    message: str


def before_cache(ranks: Sequence[Rank]) -> Failure | None:
    """A failure before the KV cache is sized: the free-memory check, the load, the profile run."""
    for check in (_free_memory, _weights, _profile):
        worst = max((check(rank, i) for i, rank in enumerate(ranks)), key=lambda f: f.missing_bytes if f else 0)
        if worst is not None and worst.missing_bytes > 0:
            return worst
    return None


def _free_memory(rank: Rank, index: int) -> Failure | None:
    if not rank.settings.era.free_memory_check:
        return None
    free, requested = rank.free_at_start_bytes, rank.budget.value
    utilization = rank.settings.utilization
    text = messages.free_memory_check(rank.device.index, free, rank.cuda_total.value, utilization, requested)
    return Failure("free_memory_check", index, requested - free, text)


def _weights(rank: Rank, index: int) -> Failure | None:
    # Only what staging certainly needs counts as a failure; its likely peak is drawn and warned about.
    missing = rank.weights.value + rank.staging.low - rank.free_at_start_bytes
    text = messages.out_of_memory(rank.device.index, rank.cuda_total.value)
    return Failure("weights", index, missing, text)


def _profile(rank: Rank, index: int) -> Failure | None:
    peak = rank.resident_bytes + rank.activations.value
    text = messages.out_of_memory(rank.device.index, rank.cuda_total.value)
    return Failure("profile", index, peak - rank.cuda_total.value, text)


def at_sizing(ranks: Sequence[Rank], sizing: KvSizing, known: bool = True) -> Failure | None:
    """No room for one block, not enough for one request of the context length, or too few blocks for the states.

    known: the cache is modelled exactly; without that only having nothing left is certain.
    """
    of_stage = [i for i, rank in enumerate(ranks) if rank.stage == sizing.stage]
    tightest = min(of_stage, key=lambda i: ranks[i].available.value)
    available, per_block = ranks[tightest].available.value, sizing.bytes_per_block[sizing.stage]
    if not known:
        left = available > 0
        return None if left else Failure("kv_cache_sizing", tightest, max(-available, 1), NO_BLOCKS)
    if sizing.capture_error is not None:
        lacking = ranks[tightest].settings.max_num_seqs - sizing.num_blocks
        return Failure("kv_cache_too_small", tightest, max(lacking, 1) * per_block, sizing.capture_error)
    if sizing.error is None:
        return None
    if sizing.error in (NO_BLOCKS, NO_AUTO_FIT):
        missing = -available if available < 0 else per_block
        return Failure("kv_cache_sizing", tightest, max(missing, 1), sizing.error)
    return Failure("kv_cache_too_small", tightest, max(sizing.needed_bytes - sizing.usable_bytes, 1), sizing.error)


def after_sizing(ranks: Sequence[Rank], kv_bytes: Sequence[int], tensor_bytes: int | None = None) -> Failure | None:
    """A failure that the measurement does not see: the allocation, graph capture, serving.

    kv_bytes: KV cache allocated on each rank; tensor_bytes: each of its tensors, None where they differ.
    """
    worst: Failure | None = None
    for index, (rank, kv) in enumerate(zip(ranks, kv_bytes, strict=True)):
        failure = _after(rank, index, kv, tensor_bytes)
        if failure and (worst is None or failure.missing_bytes > worst.missing_bytes):
            worst = failure
    return worst


def _after(rank: Rank, index: int, kv: int, tensor_bytes: int | None) -> Failure | None:
    total = rank.cuda_total.value
    grown: tuple[tuple[Stage, int], ...] = (
        ("kv_cache_allocation", kv),
        ("graph_capture", rank.graphs.value + rank.after.value),
        ("runtime", rank.activations.value),
    )
    used = rank.resident_bytes
    for stage, added in grown:
        if used + added > total:
            wanted = tensor_bytes if stage == "kv_cache_allocation" else None
            text = messages.out_of_memory(rank.device.index, total, wanted)
            return Failure(stage, index, used + added - total, text)
        used += added
    return None
