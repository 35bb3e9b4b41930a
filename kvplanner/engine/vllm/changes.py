"""What changed of vLLM's rules between two releases, for people: only those that a plan's numbers follow from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kvplanner.engine.vllm import rules
from kvplanner.engine.vllm.releases import ByRelease, release_of, spelled

# By the rule's name in `rules`; what is left out says how something is called, or is of one kernel alone.
_TITLES: Final = {
    "V1_ENGINE": "the V1 engine",
    "V2_MODELS": "models that run on the V2 runner",
    "UTILIZATION": "default share of the memory",
    "FREE_CHECK": "free memory is checked before loading",
    "OTHERS_CHARGED": "runners that charge what other programs hold to the budget",
    "GRAPHS_ESTIMATED": "an estimate of CUDA graphs is taken off the budget",
    "V2_ESTIMATES_GRAPHS": "the V2 runner takes an estimate of CUDA graphs off too",
    "CONSUMED": "the budget counts all that was consumed, reserved memory included",
    "SNAPSHOT_AFTER_NCCL": "the first snapshot is taken after communicators are made",
    "GPU_CLASSES": "tokens of a step and sequences by class of GPU",
    "ASYNC_SCHEDULING": "asynchronous scheduling by default",
    "WHOLE_ITEMS": "a step holds whole images",
    "IN_FLIGHT": "bounded caches keep the tokens that are in flight",
    "LARGEST_GRAPH": "the largest captured batch",
    "GRAPH_STEP": "step between captured batches",
    "GRAPHS_FOR_DRAFTS": "batches for drafts are captured",
    "TOKENS_CAPTURED": "the tokens of a step are captured as a batch",
    "SEQUENCES_CAPTURED": "the number of sequences is captured as a batch",
    "FULL_GRAPHS": "whole steps are captured",
    "HYBRID_PREFIXES": "prefix caching of hybrid models",
    "HYBRID_MANAGER": "layers with a window or a state keep only what they need",
    "CHUNKED_GROUPS": "layers that attend in chunks keep only their chunk",
    "PRINTED": "tokens of the cache are counted by",
    "BLOCKS_PER_REQUEST": "concurrency is counted in blocks of a request",
    "WHOLE_MODEL_NEED": "each pipeline stage is asked for the whole model's cache",
    "NULL_BLOCK": "a block is kept aside as the null block",
    "STATE_CHECK": "more sequences than state blocks are",
    "LATENT_ALIGNMENT": "tokens that blocks of a latent cache are rounded to",
    "INDEXER_ROWS": "contexts that the sparse indexer gathers",
    "INDEXER_LOGITS": "the sparse indexer's logits are part of the peak",
    "ROUND_UP_ITEMS": "images of the profile run are rounded up",
    "LOAD_SPLIT": "bytes of the largest piece that loading cuts",
    "REPACKING_GAPS": "repacking leaves gaps",
}  # fmt: skip


def between(first: str | None, second: str | None) -> tuple[str, ...]:
    """The rules that differ between two releases, in the order in which they changed, each with its source."""
    one, other = (release_of(version).version for version in (first, second))
    if one == other:
        return ()
    return tuple(text for _, text in sorted(_found(min(one, other), max(one, other)), key=lambda found: found[0]))


def _found(older: tuple[int, int], newer: tuple[int, int]) -> Iterator[tuple[tuple[int, int], str]]:
    for name, title in _TITLES.items():
        rule = getattr(rules, name)
        assert isinstance(rule, ByRelease)
        before, after = rule.at(older), rule.at(newer)
        if before != after:
            row = next(row for row in reversed(rule.rows) if row.since <= newer)
            change = f": {_shown(before)} → {_shown(after)}" if _plain(before) and _plain(after) else ""
            yield row.since, f"since {spelled(row.since)} {title}{change} ({row.source})"


def _plain(value: object) -> bool:
    return value is None or isinstance(value, bool | int | float | str)


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "any" if value is None else str(value)
