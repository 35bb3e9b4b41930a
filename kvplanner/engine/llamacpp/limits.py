"""The longest context that still fits, and how many of a load's users are served."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kvplanner.engine.llamacpp.figures import OnGpu
from kvplanner.engine.llamacpp.settings import Settings
from kvplanner.engine.llamacpp.sizes import Sizes
from kvplanner.engine.plan import Limits
from kvplanner.engine.request import Load
from kvplanner.model.model import Model
from kvplanner.units import round_up

_STEP = 256


def limits(
    model: Model, settings: Settings, sizes: Sizes, gpus: Sequence[OnGpu], load: Load | None,
    fits_at: Callable[[int], bool],
) -> Limits:  # fmt: skip
    """fits_at: whether the plan works with a context of so many tokens in all."""
    slots = settings.context.slots
    per_slot = sizes.cells.per_slot
    longest = _longest(model, settings, sizes, gpus, fits_at)
    at_once = 1 if settings.context.unified else slots
    if load is None:
        return Limits(longest, at_once, max_requests=slots)
    tokens = load.tokens_per_user
    if tokens > per_slot:
        return Limits(longest, at_once, 0, limited_by="context", max_requests=slots)
    by_memory = sizes.cells.full // tokens if settings.context.unified else slots
    served = min(by_memory, slots)
    limit = "max_requests" if slots <= by_memory else "kv_cache"
    worst = max(sizes.per_cell[: len(gpus)], default=0)
    return Limits(
        max_context_length=longest,
        max_concurrent_requests=at_once,
        serves_users=min(served, load.users),
        units_per_user=tokens,
        limited_by=limit if served < load.users else "",
        users_by_memory=by_memory,
        max_requests=slots,
        bytes_per_user=tokens * worst,
    )


def _longest(
    model: Model, settings: Settings, sizes: Sizes, gpus: Sequence[OnGpu], fits_at: Callable[[int], bool]
) -> int | None:
    """The longest context of a slot: what each GPU has to spare over what a cell costs there, tried and corrected."""
    streams = 1 if settings.context.unified else settings.context.slots
    trained = model.spec.context_length or 0
    spare: list[int] = []
    for index, gpu in enumerate(gpus):
        costs = sizes.per_cell[index] + _compute_per_cell(sizes)
        room = gpu.total - gpu.base - gpu.weights.value - gpu.kv.value - gpu.compute.value - gpu.late.value
        room -= gpu.workspace.value if gpu.workspace else 0
        if costs:
            spare.append(room // (costs * sizes.cells.streams))
    if not spare:
        return trained or None
    tokens = sizes.cells.per_slot + min(spare)
    tokens = max(min(tokens - tokens % _STEP, round_up(trained, _STEP) or tokens), 0)
    for _ in range(4):
        if tokens <= 0:
            return None
        if tokens == sizes.cells.per_slot or fits_at(tokens * streams):
            return tokens
        tokens -= max(_STEP, tokens // 64 // _STEP * _STEP)
    return None


def _compute_per_cell(sizes: Sizes) -> int:
    """Bytes by which a compute buffer grows with each cell: masks, and scores without flash attention."""
    shape = sizes.shape
    width = 2 if shape.flash and not shape.wide_mask else 6 if shape.flash else 4
    return width * shape.tokens * (4 if sizes.compute.pipelined else 1) // shape.streams
