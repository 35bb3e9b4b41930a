"""What PyTorch's caching allocator makes of tensors' sizes (c10/cuda/CUDACachingAllocator.cpp, 2.4 to 2.10).

A size is rounded up to 512 bytes. Above 1 MiB it is cut from a segment of 20 MiB, from 10 MiB on from one of its own
rounded up to 2 MiB; the smallest free piece that is large enough goes first. What is left of a piece is cut off only
where it is larger than 1 MiB: else the tensor counts with it. Under max_split_size_mb pieces of that size and more are
never cut.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
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
    return allocate_layers([(tuple(sizes), 1)], split_below)


def allocate_layers(layers: Iterable[tuple[Sequence[int], int]], split_below: int | None = None) -> Allocation:
    """The allocation of layers' tensors, each layer's sizes with how many of such layers follow each other.

    What a layer takes follows from the free pieces that it finds: once a layer leaves the pieces that an earlier one
    of its kind left, what came between repeats, and is counted rather than gone through again.
    """
    free: list[int] = []
    allocated = reserved = small = 0
    for sizes, times in layers:
        rounded = [-(-size // _BLOCK) * _BLOCK for size in sizes]
        large = [size for size in rounded if size > _SMALL]
        small += max(times, 0) * (sum(rounded) - sum(large))
        left: dict[tuple[int, ...], tuple[int, int, int]] = {}  # by the free pieces: layers to come, and both sums
        while large and times > 0:
            known = left.get(pieces := tuple(free))
            if known is not None and (period := known[0] - times) <= times:
                repeats, times = divmod(times, period)
                allocated += repeats * (allocated - known[1])
                reserved += repeats * (reserved - known[2])
                left.clear()
                continue
            left[pieces] = times, allocated, reserved
            taken, cut = _take(large, free, split_below)
            allocated, reserved, times = allocated + taken, reserved + cut, times - 1
    return Allocation(allocated + small, reserved + round_up(small, _SMALL_SEGMENT))


def _take(sizes: Sequence[int], free: list[int], split_below: int | None) -> tuple[int, int]:
    """Bytes that tensors of more than 1 MiB count with, and those of new segments; `free` keeps what is left."""
    allocated = reserved = 0
    for size in sizes:
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
    return allocated, reserved
