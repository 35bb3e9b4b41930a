"""The longest context that still fits, and how many of a load's users are served."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from kvplanner.engine.llamacpp.figures import OnGpu
from kvplanner.engine.llamacpp.settings import Settings
from kvplanner.engine.llamacpp.sizes import Sizes, cells_for
from kvplanner.engine.mix import units_each, users_of
from kvplanner.engine.plan import Limits
from kvplanner.engine.request import Load
from kvplanner.model.spec import ModelSpec
from kvplanner.record import later
from kvplanner.units import round_up

_STEP: Final = 256
_TRIES: Final = 12
_DOUBT: Final = 3  # by how much of itself, as a part of this, a first guess of the bytes of a token may be wrong

# What is to spare with a context of so many tokens in all: by the values, and at the unfavourable end of every band.
Spare = tuple[int, int]


def limits(
    settings: Settings, sizes: Sizes, gpus: Sequence[OnGpu], load: Load | None,
    longest: Callable[[], tuple[int | None, int | None]], *, fits: bool, sure: bool,
) -> Limits:  # fmt: skip
    """longest: gives that of a slot, by the values and surely. fits, sure: whether the plan at hand does.

    The lengths that are told are those of --ctx-size, which counts all slots.
    """
    slots = settings.context.slots
    streams = 1 if settings.context.unified else slots
    per_slot = sizes.cells.per_slot
    at_once = 1 if settings.context.unified else slots
    found = Limits(
        max_context_length=later(lambda: _of_slots(longest()[0], streams)),
        max_concurrent_requests=at_once,
        max_requests=slots,
        sure_max_context_length=later(lambda: _of_slots(longest()[1], streams)),
        sure_max_concurrent_requests=at_once if sure else 0,
    )
    if load is None:
        return found
    tokens = load.tokens_per_user
    if tokens > per_slot or not fits:
        limited = "context" if tokens > per_slot else ""
        return found._replace(serves_users=0, sure_serves_users=0, limited_by=limited)
    by_memory = users_of(load, int, [sizes.cells.full], [sizes.cells.full]) if settings.context.unified else slots
    served = min(by_memory, slots, load.users)
    each = units_each(load, int)
    limit = "max_requests" if slots <= by_memory else "kv_cache"
    return found._replace(
        serves_users=served,
        units_per_user=each,
        limited_by=limit if served < load.users else "",
        users_by_memory=by_memory,
        bytes_per_user=each * max(sizes.per_cell[: len(gpus)], default=0),
        sure_serves_users=served if sure else 0,
    )


def at_most(settings: Settings, spec: ModelSpec, load: Load | None) -> float:
    """What a plan serves of a load (else requests × their length) where the memory is no limit: no plan serves more.

    The context counts as it is before --fit shortens it: the model's own for every slot.
    """
    asked, slots = settings.context, settings.context.slots
    whole = asked.reducible and not asked.unified
    cells = cells_for(settings, spec, asked.tokens * max(slots, 1) if whole else asked.tokens)
    if load is None:
        return float(min(cells.full * cells.streams, slots * cells.per_slot))
    if settings.context.unified and load.tokens_per_user <= cells.per_slot:
        return max(users_of(load, int, [cells.full], [slots]), 1)
    return slots


def _of_slots(length: int | None, slots: int) -> int | None:
    return None if length is None else length * slots


def longest(
    settings: Settings, sizes: Sizes, trained: int, now: Spare, spare_at: Callable[[int], Spare]
) -> tuple[int | None, int | None]:
    """The longest context of a slot, in whole steps: by the values, and surely; None for none.

    now: what is to spare with the context at hand. Memory grows evenly with the context but for what the allocator
    packs, so that a line through two lengths meets the edge; both sides of it are tried.
    """
    streams = 1 if settings.context.unified else settings.context.slots
    most = round_up(trained, _STEP) if trained else sizes.cells.per_slot * 64
    known = {sizes.cells.per_slot: now}

    def spare(tokens: int) -> Spare:
        if tokens not in known:
            known[tokens] = spare_at(tokens * streams)
        return known[tokens]

    each = max((sizes.per_cell[i] for i in range(len(sizes.per_cell) - 1)), default=0)
    slope = max((each + _compute_per_cell(sizes)) * sizes.cells.streams, 1)
    value = _edge(most, lambda tokens: spare(tokens)[0], sizes.cells.per_slot, slope)
    if value is None:
        return None, None
    return value, _edge(value, lambda tokens: spare(tokens)[1], value, slope)


def _edge(most: int, spare: Callable[[int], int], start: int, slope: int) -> int | None:
    """The longest of whole steps up to `most` with nothing lacking, from a start and about the bytes of a token.

    A length whose room is less than a step costs is the edge; what a step costs is measured on the way.
    """
    room = spare(start)
    far = room - slope * (most - start)
    if start != most and far > -(room + slope * (most - start)) // _DOUBT and spare(most) >= 0:
        return most
    if start == most and room >= 0:
        return most
    below, above = 0, most  # nothing is lacking below, something at `above`
    tokens, measured = start, slope
    for _ in range(_TRIES):
        if room >= 0:
            below = max(below, tokens)
        else:
            above = min(above, tokens)
        if above - below <= _STEP or (measured != slope and 0 <= room < measured * _STEP):
            break
        aimed = (tokens + room // (measured * _STEP) * _STEP) // _STEP * _STEP
        if aimed == tokens:
            aimed += _STEP
        if not below < aimed < above:
            aimed = (below + above) // 2 // _STEP * _STEP
            if not below < aimed < above:
                break
        other = spare(aimed)
        if (other - room) * (aimed - tokens) < 0:
            measured = max(abs((other - room) // (aimed - tokens)), 1)
        tokens, room = aimed, other
    return below or None


def _compute_per_cell(sizes: Sizes) -> int:
    """Bytes by which a compute buffer grows with each cell: masks, and scores without flash attention."""
    shape = sizes.shape
    width = 2 if shape.flash and not shape.wide_mask else 6 if shape.flash else 4
    return width * shape.tokens * (4 if sizes.compute.pipelined else 1) // shape.streams
