"""Caches of compressed attention (DeepSeek-V4) and how groups of unlike pages are packed into one block.

Row sizes and alignments: models' cache specs of vLLM 0.33; packing: v1/core/kv_cache_planning.py. Not confirmed by the
engine's own results, so layouts with these caches are marked as not exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kvplanner.engine.vllm.kv.spec import GROWING, CacheKind, CacheSpec, CountedSpec
from kvplanner.model.spec import Compressed
from kvplanner.units import ceil_div, round_up

BLOCK: Final = 256
_WINDOW_BLOCK: Final = 64
_ROW: Final = 584  # 448 8-bit values, 64 16-bit rope values, 8 bytes of scales
_INDEX_ROW: Final = 132
_ALIGNMENT: Final = 576
_STATE_BYTES: Final = 4


def compressed_specs(mixer: Compressed) -> tuple[CacheSpec, ...]:
    """The caches of one layer: the compressed rows, their selector, the window, and what waits for compression."""
    window = _paged("sliding_mla", _WINDOW_BLOCK, _ROW, mixer.window)
    if mixer.ratio <= 1:
        return (window,)
    overlap = 2 if mixer.ratio == 4 else 1
    waiting = _waiting(mixer.head_size, mixer.ratio, overlap)
    main = _paged("mla", BLOCK, _ROW, tokens_per_row=mixer.ratio)
    if mixer.indexer is None:
        return (main, window, waiting)
    selector = _paged("index", BLOCK, _INDEX_ROW, tokens_per_row=mixer.ratio)
    return (main, selector, window, waiting, _waiting(mixer.indexer.head_size, mixer.ratio, overlap))


def _waiting(head_size: int, ratio: int, overlap: int) -> CacheSpec:
    """Keys and values of the token group that is still being compressed, in 4-byte floats."""
    return _paged("compressor", 4 if ratio == 4 else 8, 2 * overlap * head_size * _STATE_BYTES, overlap * ratio)


def _paged(kind: CacheKind, block: int, row: int, window: int = 0, tokens_per_row: int = 1) -> CacheSpec:
    real = row * (block // tokens_per_row)
    return CacheSpec(kind, block, row, round_up(real, _ALIGNMENT), real, window, tokens_per_row=tokens_per_row)


def packed(specs: Sequence[CountedSpec]) -> list[list[CountedSpec]]:
    """Groups of specs that share a block table, each with its own part of the layers.

    Layers that need the same token slots form a bucket; a bucket whose page sizes repeat evenly is split so that all
    such buckets cover about as many repeats.
    """
    buckets: dict[tuple[object, ...], list[CountedSpec]] = {}
    for one in specs:
        growing = one.spec.kind in GROWING
        key: tuple[object, ...] = (
            ("growing", one.spec.block_size) if growing else (one.spec.kind, one.spec.block_size, one.spec.window)
        )
        buckets.setdefault(key, []).append(one)
    repeats = {key: _repeats(bucket) for key, bucket in buckets.items()}
    floor = max((r for key, r in repeats.items() if r and len(_pages(buckets[key])) > 1), default=0)
    each = _least_padding([r for r in repeats.values() if r], floor) if floor else 0
    groups: list[list[CountedSpec]] = []
    for key, bucket in buckets.items():
        number = ceil_div(repeats[key], each) if repeats[key] and each else 1
        groups += [[CountedSpec(c.spec, dealt(c.layers, i, number)) for c in bucket] for i in range(number)]
    return groups


def _pages(bucket: list[CountedSpec]) -> dict[int, int]:
    pages: dict[int, int] = {}
    for spec, layers in bucket:
        pages[spec.page_bytes] = pages.get(spec.page_bytes, 0) + sum(layers)
    return pages


def _repeats(bucket: list[CountedSpec]) -> int:
    """Layers of each page size where all sizes have equally many, else 0."""
    counts = set(_pages(bucket).values())
    return counts.pop() if len(counts) == 1 else 0


def _least_padding(values: list[int], low: int) -> int:
    """The group size from `low` up that pads `values` least when each is rounded up to it; the larger of equals."""
    sizes = range(max(low, 1), max(values) + 1)
    return min(sizes, key=lambda d: (sum(-v % d for v in values), -d), default=low)


def dealt(layers: tuple[int, ...], index: int, number: int) -> tuple[int, ...]:
    """Layers of each stage that fall to group `index` when they are dealt in turn to `number` groups."""
    out, start = [], 0
    for count in layers:
        end = start + count
        out.append(ceil_div(end - index, number) - ceil_div(start - index, number))
        start = end
    return tuple(out)
