"""How ggml places a graph's tensors: a greedy allocator that hands freed blocks out again.

Behaviour: ggml-alloc.c of ggml 0.25.3 (llama.cpp 0.5.0-dev, October 2026): the smallest free block that fits, the
block at the end last; freed neighbours merge; the reserved size is the highest address ever used.
"""

from __future__ import annotations

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
        size = self.rounded(size)
        sizes = self._sizes
        last = len(sizes) - 1
        at, best = last, _ENDLESS
        for index in range(last):
            free = sizes[index]
            if size <= free <= best:
                at, best = index, free
        offset = self._offsets[at]
        if sizes[at] == size:
            del self._offsets[at]
            del sizes[at]
        else:
            self._offsets[at] += size
            sizes[at] -= size
        if offset + size > self.high:
            self.high = offset + size
        return offset

    def give(self, offset: int, size: int) -> None:
        """Frees a tensor."""
        size = self.rounded(size)
        if not size:
            return
        offsets, sizes = self._offsets, self._sizes
        for index, start in enumerate(offsets):
            if start + sizes[index] == offset:
                sizes[index] += size
                after = index + 1
                if after < len(offsets) and offsets[after] == offset + size:
                    sizes[index] += sizes[after]
                    del offsets[after]
                    del sizes[after]
                return
            if offset + size == start:
                offsets[index] = offset
                sizes[index] += size
                return
            if start > offset:
                offsets.insert(index, offset)
                sizes.insert(index, size)
                return
        offsets.append(offset)
        sizes.append(size)
