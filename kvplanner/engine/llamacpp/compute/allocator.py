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

    def take(self, size: int) -> int:
        """The address of a new tensor of `size` bytes: the smallest block that fits, of the last ones if several do.

        The block at the end of the list is tried last; it is the endless one unless an empty one stands behind it.
        """
        size = -(-size // self.alignment) * self.alignment
        sizes, offsets = self._sizes, self._offsets
        at, best, last = -1, _ENDLESS, len(sizes) - 1
        for index, free in enumerate(sizes):
            if size <= free <= best and (index < last or at < 0):
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
        """Frees a tensor. One without bytes leaves an empty block where no other ends or begins, as ggml's does.

        An empty block may lie within another, and keeps blocks on both of its sides from being merged; the list is in
        order of addresses only as far as ggml keeps it so.
        """
        size = -(-size // self.alignment) * self.alignment
        offsets, sizes = self._offsets, self._sizes
        end = offset + size
        for index, start in enumerate(offsets):
            if start + sizes[index] == offset:
                sizes[index] += size
                after = index + 1
                if after < len(offsets) and offsets[after] == start + sizes[index]:
                    sizes[index] += sizes[after]
                    del offsets[after]
                    del sizes[after]
                return
            if start == end:
                offsets[index] = offset
                sizes[index] += size
                if index and offsets[index - 1] + sizes[index - 1] == offset:
                    sizes[index - 1] += sizes[index]
                    del offsets[index]
                    del sizes[index]
                return
        at = 0
        for start in offsets:
            if start >= offset:
                break
            at += 1
        offsets.insert(at, offset)
        sizes.insert(at, size)

    def cut(self, offset: int, size: int, kept: int) -> None:
        """Frees what a tensor of `size` bytes has beyond one of `kept`, which takes its place."""
        kept = -(-kept // self.alignment) * self.alignment
        extra = -(-size // self.alignment) * self.alignment - kept
        if extra:
            self.give(offset + kept, extra)
