"""What of a placement a form can move by hand: layers on the GPUs, those whose experts stay away, each GPU's share.

Beside them, how many layers fit where their number was given: no number above it starts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from kvplanner.engine.llamacpp import figures
from kvplanner.engine.llamacpp.place import HOST
from kvplanner.engine.llamacpp.settings import Settings
from kvplanner.engine.llamacpp.sizes import Sizes
from kvplanner.engine.llamacpp.tensors import Tensors
from kvplanner.engine.plan import Handle, WorkingRange
from kvplanner.model.spec import ModelSpec, Moe

LAYERS: Final = "n_gpu_layers"
EXPERTS: Final = "n_cpu_moe"
SHARES: Final = "tensor_split"
_HUNDRED: Final = 100


def handles(spec: ModelSpec, settings: Settings, tensors: Tensors, sizes: Sizes) -> Iterator[Handle]:
    """The handles of a plan on GPUs. sizes: as placed."""
    layers = spec.num_layers
    if not sizes.placed.device_bytes:
        return
    yield Handle(LAYERS, (offloaded(sizes),), layers + 1)
    if any(isinstance(mlp, Moe) for layer in spec.layers for mlp in layer.mlps):
        yield Handle(EXPERTS, (experts_away(settings, tensors, sizes, layers),), layers)
    if len(sizes.placed.device_bytes) > 1:
        parts = _percent(settings, sizes) if sizes.shared else _by_gpu(sizes)
        yield Handle(SHARES, parts, sum(parts))


def experts_away(settings: Settings, tensors: Tensors, sizes: Sizes, layers: int) -> int:
    """Layers whose experts were told to stay away; where nobody said, those that --fit or an override keeps there."""
    asked = settings.place.cpu_experts
    if asked is None:
        return figures.experts_away(tensors, sizes)
    return layers if asked == 0 else min(asked, layers)


def offloaded(sizes: Sizes) -> int:
    """Layers on the GPUs, the output layer among them."""
    placement = sizes.placed.placement
    return sum(device != HOST for device in placement.layers) + (placement.output != HOST)


def _by_gpu(sizes: Sizes) -> tuple[int, ...]:
    """Layers of each GPU: as shares they give the same placement again."""
    placement = sizes.placed.placement
    homes = (*placement.layers, placement.output)
    return tuple(homes.count(gpu) for gpu in range(len(sizes.placed.device_bytes)))


def _percent(settings: Settings, sizes: Sizes) -> tuple[int, ...]:
    """Shares of every tensor, in hundredths."""
    count = len(sizes.placed.device_bytes)
    shares = (*settings.place.shares, *(0.0,) * count)[:count] if settings.place.shares else (1.0,) * count
    cuts = [round(_HUNDRED * sum(shares[: gpu + 1]) / sum(shares)) for gpu in range(count)]
    return tuple(high - low for low, high in zip((0, *cuts), cuts, strict=False))


def layer_range(most: int, spare_at: Callable[[int], tuple[int, int]]) -> WorkingRange | None:
    """The numbers of layers that start, None where all surely do.

    most: all of them; spare_at: bytes to spare with so many, and surely.
    """
    value = _largest(most, lambda count: spare_at(count)[0])
    sure = None if value is None else _largest(value, lambda count: spare_at(count)[1])
    if sure == most:
        return None
    low = None if value is None else 0.0
    return WorkingRange(
        LAYERS, low, None if value is None else float(value), None if sure is None else 0.0,
        None if sure is None else float(sure), "", "a buffer that does not fit on a GPU",
    )  # fmt: skip


def expert_range(layers: int, spare_at: Callable[[int], tuple[int, int]]) -> WorkingRange | None:
    """The numbers of layers whose experts stay on the host that start, None where any number surely does.

    spare_at: bytes to spare with so many of them on the host, and surely.
    """
    kept = _largest(layers, lambda count: spare_at(layers - count)[0])
    sure = None if kept is None else _largest(kept, lambda count: spare_at(layers - count)[1])
    if sure == layers:
        return None
    whole = float(layers)
    return WorkingRange(
        EXPERTS, None if kept is None else whole - kept, None if kept is None else whole,
        None if sure is None else whole - sure, None if sure is None else whole, "a buffer that does not fit on a GPU",
        "",
    )  # fmt: skip


def _largest(most: int, spare: Callable[[int], int]) -> int | None:
    """The largest number with nothing lacking, None where even none is too many."""
    high_room = spare(most)
    if high_room >= 0:
        return most
    low, high = 0, most
    room = spare(0)
    if room < 0:
        return None
    # Memory grows with each layer, so that a line between both ends meets the edge or comes near it.
    while high - low > 1:
        step = (high - low) * room // max(room - high_room, 1)
        middle = low + min(max(step, 1), high - low - 1)
        found = spare(middle)
        if found >= 0:
            low, room = middle, found
            if middle + 1 < high and (after := spare(middle + 1)) < 0:
                high, high_room = middle + 1, after
        else:
            high, high_room = middle, found
    return low
