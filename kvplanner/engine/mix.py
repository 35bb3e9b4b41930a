"""How many users of a load find room together, of one kind of requests or of several with shares."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import floor

from kvplanner.engine.request import Load, Part
from kvplanner.units import ceil_div

# What a request of so many tokens takes of a cache: blocks, pages, cells.
Units = Callable[[int], int]


def counts(users: int, mix: Sequence[Part]) -> tuple[int, ...]:
    """How many of so many users are of each kind: whole numbers that sum to them, nearest to the shares."""
    exact = [users * part.share for part in mix]
    made = [floor(part) for part in exact]
    for at in sorted(range(len(mix)), key=lambda at: made[at] - exact[at])[: users - sum(made)]:
        made[at] += 1
    return tuple(made)


def users_of(load: Load, units: Units, rooms: Sequence[int], slots: Sequence[int]) -> int:
    """Users that replicas with so many units of room, and so many requests at once, serve together.

    Users of several kinds are dealt evenly over the replicas, and of the room of the least.
    """
    if load.mix:
        return _most(load.mix, [units(part.tokens) for part in load.mix], min(rooms), len(rooms), min(slots))
    each = units(load.tokens_per_user)
    return sum(min(max(room, 0) // each, slot) if each else slot for room, slot in zip(rooms, slots, strict=True))


def units_each(load: Load, units: Units) -> int:
    """What a user of the load takes, rounded up; the mean where they are of several kinds."""
    if not load.mix:
        return units(load.tokens_per_user)
    users = max(load.users, 1)
    dealt = zip(counts(users, load.mix), load.mix, strict=True)
    return ceil_div(sum(number * units(part.tokens) for number, part in dealt), users)


def _most(mix: Sequence[Part], units: Sequence[int], room: int, replicas: int, slots: int) -> int:
    """The most users that hold: found by halves, then upwards, since one user more may turn a long kind to a short."""

    def holds(users: int) -> bool:
        return ceil_div(users, replicas) <= slots and _fullest(mix, units, replicas, users) <= room

    mean = sum(part.share * each for part, each in zip(mix, units, strict=True))
    most = slots * replicas
    if mean > 0:
        most = min(most, floor((replicas * max(room, 0) + sum(units)) / mean) + 1)
    low, high = 0, most + 1
    while low + 1 < high:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    above = min(most, low + (replicas + 1) * len(mix))
    return next((users for users in range(above, low, -1) if holds(users)), low)


def _fullest(mix: Sequence[Part], units: Sequence[int], replicas: int, users: int) -> int:
    """Units that the fullest of several replicas holds: of every kind its part, the longest first."""
    left, held = ceil_div(users, replicas), 0
    for each, number in sorted(zip(units, counts(users, mix), strict=True), reverse=True):
        here = min(ceil_div(number, replicas), left)
        held, left = held + here * each, left - here
    return held
