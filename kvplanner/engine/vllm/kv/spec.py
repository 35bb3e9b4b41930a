"""CacheSpec: what one layer keeps on one rank, in blocks (v1/kv_cache_interface.py of vLLM 0.33)."""

from __future__ import annotations

from typing import Final, Literal

from kvplanner.record import NamedTuple

CacheKind = Literal["full", "sliding", "chunked", "mla", "sliding_mla", "index", "cross", "state", "compressor"]
# Kinds that keep every token, so that layers of them can share block tables.
GROWING: Final = ("full", "mla", "index")


class CacheSpec(NamedTuple):
    """What one layer keeps on one rank.

    block_size: tokens of a block (of a state: tokens between kept states). row_bytes: one token (0 for a state).
    page_bytes: one block as stored, padding included; real_bytes: without it. window: tokens that a bounded cache
    sees. state_blocks: blocks of a state per request. tokens_per_row: tokens that one stored row stands for.
    extra_tokens: kept beyond the window for draft modules.
    """

    kind: CacheKind
    block_size: int
    row_bytes: int
    page_bytes: int
    real_bytes: int
    window: int = 0
    state_blocks: int = 0
    tokens_per_row: int = 1
    extra_tokens: int = 0

    def resized(self, block_size: int) -> CacheSpec:
        """The same cache in blocks of another size."""
        size = self.row_bytes * (block_size // self.tokens_per_row)
        return self._replace(block_size=block_size, page_bytes=size, real_bytes=size)

    def padded(self, page_bytes: int) -> CacheSpec:
        """The same cache in a page of `page_bytes`."""
        return self._replace(page_bytes=page_bytes)


class CountedSpec(NamedTuple):
    """A spec and how many layers of each pipeline stage have it."""

    spec: CacheSpec
    layers: tuple[int, ...]
