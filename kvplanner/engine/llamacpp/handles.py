"""What of a placement a form can move by hand: layers on the GPUs, those whose experts stay away, each GPU's share.

Beside them, how many layers fit where their number was given: no number above it starts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from itertools import accumulate, pairwise
from typing import Final

from kvplanner.engine.llamacpp import figures
from kvplanner.engine.llamacpp.fit import Fitted
from kvplanner.engine.llamacpp.place import HOST
from kvplanner.engine.llamacpp.settings import Settings
from kvplanner.engine.llamacpp.sizes import Sizes
from kvplanner.engine.llamacpp.tensors import Tensors
from kvplanner.engine.option import OptionValue
from kvplanner.engine.plan import Handle, WorkingRange
from kvplanner.model.spec import ModelSpec, Moe

LAYERS: Final = "n_gpu_layers"
EXPERTS: Final = "n_cpu_moe"
SHARES: Final = "tensor_split"
OVERRIDES: Final = "override_tensor"
CONTEXT: Final = "ctx_size"
_OF_LAYER: Final = re.compile(r"blk\\\.(\d+)\\\.(.+)")
_HUNDRED: Final = 100


def handles(
    spec: ModelSpec, settings: Settings, tensors: Tensors, sizes: Sizes, fitted: Fitted | None
) -> Iterator[Handle]:
    """The handles of a plan on GPUs. settings, sizes: as placed; fitted: what --fit made of them, None without it."""
    layers = spec.num_layers
    if not sizes.placed.device_bytes:
        return
    stands = _stands(settings) if fitted is not None and fitted.layers else {}
    yield Handle(LAYERS, (offloaded(sizes),), layers + 1, _but(stands, LAYERS))
    if any(isinstance(mlp, Moe) for layer in spec.layers for mlp in layer.mlps):
        away = experts_away(settings, tensors, sizes, layers)
        stands_with = {**stands, SHARES: _shares_with(tensors, sizes, away)} if SHARES in stands else stands
        yield Handle(EXPERTS, (away,), layers, _but(stands_with, EXPERTS, OVERRIDES))
    if len(sizes.placed.device_bytes) > 1:
        parts = _percent(settings, sizes) if sizes.shared else _by_gpu(sizes)
        yield Handle(SHARES, parts, sum(parts), _but(stands, SHARES))


def _stands(settings: Settings) -> dict[str, OptionValue]:
    """The placement that --fit chose, and the context that it came with, as the options of a server that is told it.

    A placement of which anything is given, --fit leaves alone (common_params_fit_impl of llama.cpp's common/fit.cpp).
    """
    place = settings.place
    found: dict[str, OptionValue] = {LAYERS: str(place.gpu_layers), CONTEXT: settings.context.tokens}
    if len(place.shares) > 1:
        found[SHARES] = ",".join(f"{share:g}" for share in place.shares)
    if place.overrides:
        found[OVERRIDES] = joined(place.overrides)
    return found


def _but(stands: Mapping[str, OptionValue], *names: str) -> tuple[tuple[str, OptionValue], ...]:
    return tuple((name, value) for name, value in stands.items() if name not in names)


def joined(overrides: str) -> str:
    """Overrides of layers one by one, with those of one kind and buffer in one pattern for all their layers."""
    layers: dict[str, list[str]] = {}
    for rule in overrides.split(","):
        found = _OF_LAYER.fullmatch(rule)
        layers.setdefault(rule if found is None else found[2], []).extend(() if found is None else (found[1],))
    return ",".join(
        rule if not numbers else
        f"blk\\.{numbers[0] if len(numbers) == 1 else '(' + '|'.join(numbers) + ')'}\\.{rule}"
        for rule, numbers in layers.items()
    )  # fmt: skip


def _shares_with(tensors: Tensors, sizes: Sizes, away: int) -> str:
    """Layers for each GPU where the first ones' experts are away, as --n-cpu-moe counts: each GPU as full as it is.

    --fit keeps those of the last ones away.
    """
    placement = sizes.placed.placement
    order = [layer for layer, at in enumerate(placement.layers) if at != HOST]
    weights = [sum(t.device_bytes for t in tensors.layers[layer] if layer >= away or not t.expert) for layer in order]
    if placement.output != HOST:
        weights.append(sum(t.device_bytes for t in tensors.outputs))
    held, whole = list(accumulate(sizes.placed.device_bytes)), sum(sizes.placed.device_bytes)
    ends, sums = [0], list(accumulate(weights, initial=0))  # sums[n]: of the first n of them
    for share in held[:-1]:
        wanted = share * sums[-1] / max(whole, 1)
        ends.append(min(range(ends[-1], len(sums)), key=lambda end: abs(sums[end] - wanted)))
    ends.append(len(weights))
    return ",".join(str(high - low) for low, high in pairwise(ends))


def experts_away(settings: Settings, tensors: Tensors, sizes: Sizes, layers: int) -> int:
    """Layers whose experts were told to stay away, the first so many; where nobody said, as many as have them there.

    --fit and overrides keep experts of other layers on the host: so many first layers have as many of them. A model
    that is partly on the host has its first layers there.
    """
    asked = settings.place.cpu_experts
    if asked is not None:
        return layers if asked == 0 else min(asked, layers)
    away = figures.experts_away(tensors, sizes)
    if not away:
        return 0
    at = sizes.placed.placement.layers
    with_experts = [layer for layer, block in enumerate(tensors.layers) if any(tensor.expert for tensor in block)]
    away += sum(at[layer] == HOST for layer in with_experts)
    return with_experts[min(away, len(with_experts)) - 1] + 1


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


def layer_range(most: int, spare_at: Callable[[int], tuple[int, int]], beyond: str) -> WorkingRange | None:
    """The numbers of layers that start, None where all surely do.

    most: all of them; spare_at: bytes to spare with so many, and surely; beyond: what more of them meet.
    """
    value = _largest(most, lambda count: spare_at(count)[0])
    sure = None if value is None else _largest(value, lambda count: spare_at(count)[1])
    if sure == most:
        return None
    low = None if value is None else 0.0
    return WorkingRange(
        LAYERS, low, None if value is None else float(value), None if sure is None else 0.0,
        None if sure is None else float(sure), "", beyond,
    )  # fmt: skip


def expert_range(layers: int, spare_at: Callable[[int], tuple[int, int]], beyond: str) -> WorkingRange | None:
    """The numbers of layers whose experts stay on the host that start, None where any number surely does.

    spare_at: bytes to spare with so many of them on the host, and surely; beyond: what fewer of them meet.
    """
    kept = _largest(layers, lambda count: spare_at(layers - count)[0])
    sure = None if kept is None else _largest(kept, lambda count: spare_at(layers - count)[1])
    if sure == layers:
        return None
    whole = float(layers)
    return WorkingRange(
        EXPERTS, None if kept is None else whole - kept, None if kept is None else whole,
        None if sure is None else whole - sure, None if sure is None else whole, beyond, "",
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
