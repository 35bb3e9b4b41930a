"""How ggml places a graph's tensors: a greedy allocator that hands freed blocks out again.

Behaviour: ggml-alloc.c of ggml 0.25.3 (llama.cpp 0.5.0-dev, October 2026): the smallest free block that fits, the
block at the end last; freed neighbours merge; the reserved size is the highest address ever used.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

_ENDLESS: Final = 1 << 62


class Pool:
    """The addresses of one buffer. `high`: bytes that must be reserved."""

    def __init__(self, alignment: int) -> None:
        self.alignment = alignment
        self.high = 0
        self._offsets = [0]
        self._sizes = [_ENDLESS]

    def rounded(self, size: int) -> int:
        """A size as the pool hands it out."""
        return -(-size // self.alignment) * self.alignment

    def take(self, size: int) -> int:
        """The address of a new tensor of `size` bytes."""
        size = -(-size // self.alignment) * self.alignment
        sizes, offsets = self._sizes, self._offsets
        at, best = -1, _ENDLESS
        for index, free in enumerate(sizes):  # the last block is the largest
            if size <= free <= best:
                at, best = index, free
        offset = offsets[at]
        if best == size:
            del offsets[at]
            del sizes[at]
        else:
            offsets[at] = offset + size
            sizes[at] = best - size
        if offset + size > self.high:
            self.high = offset + size
        return offset

    def give(self, offset: int, size: int) -> None:
        """Frees a tensor."""
        size = -(-size // self.alignment) * self.alignment
        if not size:
            return
        offsets, sizes = self._offsets, self._sizes
        after = bisect_left(offsets, offset)
        touches = after < len(offsets) and offsets[after] == offset + size
        if after and offsets[after - 1] + sizes[after - 1] == offset:
            sizes[after - 1] += size
            if touches:
                sizes[after - 1] += sizes[after]
                del offsets[after]
                del sizes[after]
        elif touches:
            offsets[after] = offset
            sizes[after] += size
        else:
            offsets.insert(after, offset)
            sizes.insert(after, size)
