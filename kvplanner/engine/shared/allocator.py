"""What PyTorch's caching allocator makes of tensors' sizes (c10/cuda/CUDACachingAllocator.cpp, 2.4 to 2.10).

A size is rounded up to 512 bytes. Above 1 MiB it is cut from a segment of 20 MiB, from 10 MiB on from one of its own
rounded up to 2 MiB; the smallest free piece that is large enough goes first. What is left of a piece is cut off only
where it is larger than 1 MiB: else the tensor counts with it. Under max_split_size_mb pieces of that size and more are
never cut.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable
from typing import Final

from kvplanner.record import NamedTuple
from kvplanner.units import MIB, round_up

_BLOCK: Final = 512
_SMALL: Final = MIB
_SMALL_SEGMENT: Final = 2 * MIB
_MIDDLE: Final = 10 * MIB
_MIDDLE_SEGMENT: Final = 20 * MIB
_LARGE_STEP: Final = 2 * MIB


class Allocation(NamedTuple):
    """Bytes that tensors count as allocated, and that the allocator holds of the GPU for them."""

    allocated: int
    reserved: int


def allocate(sizes: Iterable[int], split_below: int | None = None) -> Allocation:
    """The allocation of tensors that come in this order and stay; split_below: max_split_size in bytes, if set."""
    free: list[int] = []
    allocated = reserved = small = 0
    for asked in sizes:
        size = round_up(asked, _BLOCK)
        if size <= _SMALL:
            small += size
            continue
        whole = split_below is not None and size >= split_below
        at = len(free) if whole else bisect_left(free, size)  # no piece that is kept is as large as the limit
        if at < len(free):
            piece = free.pop(at)
        else:
            piece = _MIDDLE_SEGMENT if size < _MIDDLE else round_up(size, _LARGE_STEP)
            reserved += piece
        rest = piece - size
        if rest > _SMALL and not whole:
            insort(free, rest)
            piece = size
        allocated += piece
    return Allocation(allocated + small, reserved + round_up(small, _SMALL_SEGMENT))
