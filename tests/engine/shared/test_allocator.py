"""What the caching allocator makes of sizes, by its own rules, and the load lines of engines that follow from them."""

from __future__ import annotations

import random

import pytest

from kvplanner.engine.shared.allocator import Allocation, allocate, allocate_layers
from kvplanner.units import MIB

LIMIT = 20 * MIB


def mib(*sizes: float) -> tuple[int, ...]:
    return tuple(round(size * MIB) for size in sizes)


@pytest.mark.parametrize(
    ("sizes", "limit", "expected"),
    [
        (mib(31.5), None, mib(32, 32)),  # half a MiB is not cut off
        (mib(24.5), None, mib(24.5, 26)),  # more than one is
        (mib(24.5), LIMIT, mib(26, 26)),  # unless pieces of that size are never cut
        (mib(9, 9), None, mib(18, 20)),  # two in a segment of 20
        (mib(9.75, 9.75), None, mib(20, 20)),  # the last takes what is left of it
        (mib(0.5, 0.25), None, mib(0.75, 2)),
        ((1,), None, (512, 2 * MIB)),
        (mib(12, 1.5), None, mib(13.5, 32)),
        ((), None, (0, 0)),
    ],
)
def test_sizes_are_rounded_as_pieces_are_cut(
    sizes: tuple[int, ...], limit: int | None, expected: tuple[int, int]
) -> None:
    assert allocate(sizes, limit) == Allocation(*expected)


def test_what_is_left_of_a_piece_is_handed_out_again() -> None:
    """24.5 MiB leave 1.5 of their segment of 26, which a later tensor of 1.25 takes whole."""
    found = allocate(mib(24.5, 1.25))
    assert found.reserved == 26 * MIB
    assert found.allocated == 26 * MIB


def test_reserved_memory_is_never_less_than_what_is_allocated() -> None:
    sizes = mib(3.3, 17, 1.1, 250.2, 9.9, 0.1, 40.7, 5)
    for limit in (None, LIMIT):
        found = allocate(sizes, limit)
        assert sum(sizes) <= found.allocated <= found.reserved


@pytest.mark.parametrize("seed", range(40))
def test_layers_that_repeat_come_to_what_going_through_all_of_them_does(seed: int) -> None:
    """Sizes of every kind, in layers whose free pieces repeat at once, after some layers, or never."""
    dice = random.Random(seed)
    scale = dice.choice([1, 4, 12, 40])
    layers = [
        (tuple(dice.randrange(1, scale * MIB) for _ in range(dice.randrange(1, 9))), dice.choice([0, 1, 2, 30, 90]))
        for _ in range(dice.randrange(1, 5))
    ]
    flat = [size for sizes, times in layers for _ in range(times) for size in sizes]
    for limit in (None, LIMIT):
        assert allocate_layers(layers, limit) == allocate(flat, limit)
