"""What people take for its opposite, said where a plan runs into it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kvplanner.engine.vllm.settings import Settings
from kvplanner.engine.vllm.startup.replica import Replica
from kvplanner.sized_text import SizedText, size_mark

# Below what any release takes by itself (0.9), and so high that little is left beside the budget.
_LOW: Final = 0.85
_HIGH: Final = 0.97
_CACHE_STAGES: Final = ("kv_cache_sizing", "kv_cache_too_small", "kv_cache_allocation")


def pitfalls(settings: Settings, replica: Replica) -> Iterator[str]:
    """One sentence for each that this plan's failure is an instance of."""
    failure = replica.failure
    if failure is None:
        return
    rank, share = replica.ranks[failure.rank], settings.cache.utilization
    given = rank.given_kv is not None
    if failure.stage in _CACHE_STAGES and share < _LOW and not given:
        yield (
            f"--gpu-memory-utilization {share:g} is what the engine may use in all, weights and cache together: a "
            "lower one makes nothing smaller, it takes room from the KV cache alone"
        )
    if failure.stage in ("graph_capture", "runtime") and share >= _HIGH and not given:
        yield (
            f"--gpu-memory-utilization {share:g} gives nearly the whole GPU to weights, profile and KV cache: what is "
            "made after them, graphs and the runtime among it, comes out of the rest. Lower it to start"
        )
    if failure.stage == "free_memory_check" and share >= _HIGH and not rank.other.value:
        yield SizedText(
            f"Not even an empty GPU has {share:g} of its memory free: {size_mark(rank.outside.value)} is the engine's "
            "own CUDA context and what it loads before it looks. Lower --gpu-memory-utilization"
        )
    if failure.stage == "free_memory_check" and rank.other.value:
        yield SizedText(
            "Utilisation is a share of the whole GPU, not of what is free: beside another server both shares must fit "
            f"into it together. {size_mark(rank.other.value)} is taken before the engine starts; where no other server "
            "is meant to run, a killed one may have left its workers (nvidia-smi lists them)"
        )
    if failure.stage == "runtime" and rank.fragmentation.value >= failure.missing_bytes:
        yield SizedText(
            f"{size_mark(rank.fragmentation.value)} is reserved by PyTorch and cannot be handed out: that is "
            "fragmentation, no lack of memory. PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True gives most of it back"
        )
    batch, length = settings.scheduler, settings.model.max_model_len
    whole = not batch.chunked_prefill and batch.max_num_batched_tokens >= length > 2048
    if failure.stage in ("profile", *_CACHE_STAGES) and whole:
        yield (
            f"Without chunked prefill a step holds a whole prompt of {length:,} tokens. A longer context may start "
            "where this one fails, since V0 turns chunked prefill on beyond 32,768 tokens: --enable-chunked-prefill "
            "does so here"
        )
