"""What loading adds to the weights on a rank: rotary tables, and what the allocator rounds tensors up to.

"Model loading took" prints the weights with both; a plan keeps them under workspace. The rounding follows from the
sizes of the tensors that the engine makes, in its order: the embedding, each layer, the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Final

from kvplanner.engine.shared.allocator import Allocation, allocate_layers
from kvplanner.engine.shared.identity import by_identity
from kvplanner.engine.vllm import rules
from kvplanner.engine.vllm.gpu import Gpu
from kvplanner.engine.vllm.settings import Settings
from kvplanner.engine.vllm.weights import rank as weights
from kvplanner.engine.vllm.weights import rotary
from kvplanner.engine.vllm.weights.rank import RankTensors, bodies, moving
from kvplanner.estimate import Estimate, Input, banded, exact, least_sure
from kvplanner.model.model import Model
from kvplanner.sized_text import SizedText, size_mark
from kvplanner.units import MIB

# Buffers of a layer beside its parameters, each in a block of 512 bytes or more.
_BUFFERS_PER_LAYER: Final = 3072


def loaded(model: Model, settings: Settings, gpu: Gpu, stage: int) -> Estimate:
    """What "Model loading took" prints: the weights, rotary tables, and what the allocator rounds up."""
    own = weights.rank_weights(model, settings, gpu, stage)
    extra = tables(model, settings, gpu, stage)
    return banded(
        own.value + extra.value, own.low + extra.low, own.high + extra.high,
        least_sure((own, extra)), "{weights} + {tables}",
        Input("weights", own.value, "B"), Input("tables", extra.value, "B", extra.formula),
    )  # fmt: skip


def tables(model: Model, settings: Settings, gpu: Gpu, stage: int) -> Estimate:
    """Rotary tables, held on every rank whatever the parallelism, and the allocator's rounding."""
    found = rotary.tables(model.spec, settings)
    table = rotary.table_bytes(model.spec, settings)
    rounded = rounding(model, settings, gpu, stage)
    element = rotary.element_bytes(model.spec)
    each = " + ".join(f"{positions:,} positions × {size} × {element}" for positions, size in found) or "0"
    return banded(
        table + rounded.value, table // 2 + rounded.low, table + table // 4 + rounded.high, "analytic",
        "{tables} + {rounding}", Input("tables", table, "B", each),
        Input("rounding", rounded.value, "B", rounded.notes[0] if rounded.notes else ""),
    )  # fmt: skip


@by_identity(64, moving)
def rounding(model: Model, settings: Settings, gpu: Gpu, stage: int) -> Estimate:
    """Bytes that PyTorch counts for the tensors of a rank beyond their own sizes."""
    layers = model.spec.num_layers // settings.parallel.pp
    buffers = layers * _BUFFERS_PER_LAYER
    if settings.model.cpu_offload_bytes:
        return exact(buffers, "{buffers}", Input("buffers", buffers, "B")).with_notes("small tensors in 512 bytes")
    made, tensors = allocation(model, settings, gpu, stage)
    value = made.allocated - tensors + buffers
    found = banded(value, value // 4, 2 * value, "analytic", "{rounding}", Input("rounding", value, "B"))
    return found.with_notes(_how_cut(limited=bool(rules.LOAD_SPLIT.at(settings.version))))


@by_identity(64, moving)
def allocation(model: Model, settings: Settings, gpu: Gpu, stage: int) -> tuple[Allocation, int]:
    """What PyTorch's allocator makes of a rank's tensors in the engine's order, and the sum of their own sizes."""
    found = tuple(sizes_of(model, settings, gpu, stage))
    own = sum(times * sum(sizes) for sizes, times in found)
    return allocate_layers(found, rules.LOAD_SPLIT.at(settings.version)), own


@cache
def _how_cut(*, limited: bool) -> SizedText:
    cut = "no piece is cut smaller" if limited else "what is left of a piece is kept up to 1 MiB"
    return SizedText(f"tensors of {size_mark(10 * MIB)} and more stand in whole {size_mark(2 * MIB)}; {cut}")


def sizes_of(model: Model, settings: Settings, gpu: Gpu, stage: int) -> Iterator[tuple[tuple[int, ...], int]]:
    """Bytes of every tensor of a rank, pieces that the engine joins as one: layer by layer, with how many are alike."""
    parts = weights.rank_tensors(model, settings, gpu, stage)
    lengths = [(len(body), layers) for body, layers in bodies(model, settings, stage)]
    inside = sum(length for length, _ in lengths)
    outside = parts[inside:]
    first = [part for part in outside if part.group.kind == "embedding"]
    yield _tensors(first), 1
    start = 0
    for length, layers in lengths:
        yield _tensors(parts[start : start + length]), layers
        start += length
    rest = [part for part in outside if part.group.kind != "embedding"]
    for copies in dict.fromkeys(part.local.copies for part in rest):
        alike = [part for part in rest if part.local.copies == copies]
        yield _tensors(alike, apart=True), copies


def _tensors(parts: Sequence[RankTensors], *, apart: bool = False) -> tuple[int, ...]:
    """Sizes of one layer's tensors; apart: of one copy of each group, as an encoder has a copy in each block.

    The experts of a layer stand in one tensor, quantised values and their scales apart.
    """
    found: dict[tuple[str, int, str], int] = {}
    alone: list[int] = []
    for part in parts:
        copies = part.local.copies
        if copies < 1:
            continue
        group = part.group
        whole = part.bytes // part.layers
        values = part.values
        if apart:
            whole, values = whole // copies, values // copies
        if not apart and copies > 1 and group.kind != "experts" and not group.fused:
            alone += [whole // copies] * copies
            continue
        name = f"{group.path.rpartition('.')[0]}.{group.fused}" if group.fused else group.path
        key = name, len(group.shape)
        found[(*key, "values")] = found.get((*key, "values"), 0) + values
        if whole > values:
            found[(*key, "scales")] = found.get((*key, "scales"), 0) + whole - values
    return (*found.values(), *alone)
