"""Cache layers in groups that share block tables, and the blocks that one request holds in each.

Rules: v1/core/kv_cache_planning.py and v1/kv_cache_interface.py of vLLM 0.33: layers of all pipeline stages are
grouped together, then each stage keeps its own part of every group.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kvplanner.engine.vllm import rules
from kvplanner.engine.vllm.kv.compressed import dealt, packed
from kvplanner.engine.vllm.kv.spec import GROWING, CacheSpec, CountedSpec
from kvplanner.engine.vllm.settings import Settings
from kvplanner.record import NamedTuple
from kvplanner.units import ceil_div

# A bucket of layers this many times the smallest is split rather than the smallest padded.
_SPLIT_FROM: Final = 1.5


class Group(NamedTuple):
    """Layers that share one block table. spec: what decides the blocks; layers, page_bytes: of each stage.

    slots: layers that a block has room for; mixed: layers of different page sizes side by side.
    """

    spec: CacheSpec
    layers: tuple[int, ...]
    page_bytes: tuple[int, ...]
    slots: int
    mixed: bool = False

    @property
    def total_layers(self) -> int:
        """Cache layers over all stages."""
        return sum(self.layers)


def grouped(counted: Sequence[CountedSpec], settings: Settings) -> tuple[Group, ...]:
    """The groups in the engine's order; none for a model without a cache."""
    specs = list(counted)
    if any(c.spec.kind == "compressor" for c in specs):
        return tuple(_side_by_side(group) for group in packed(specs))
    if not settings.cache.hybrid_manager:
        specs = _promoted(specs)
    if len(specs) <= 1 or _one_type(specs):
        return (_side_by_side(specs),) if specs else ()
    unified = _unified(specs)
    if unified is None:
        return (_side_by_side(_promoted(specs)),)
    return _split(_merged(unified))


def _promoted(specs: list[CountedSpec]) -> list[CountedSpec]:
    """Windows and chunks treated as full attention, where there is full attention beside them."""
    growing = [c.spec for c in specs if c.spec.kind in GROWING]
    if not growing or len(specs) <= 1:
        return specs
    block = growing[0].block_size
    names = {"sliding": "full", "chunked": "full", "sliding_mla": "mla"}
    out = []
    for spec, layers in specs:
        name = names.get(spec.kind)
        if name is not None:
            size = block * spec.row_bytes
            spec = CacheSpec("mla" if name == "mla" else "full", block, spec.row_bytes, size, size)
        out.append(CountedSpec(spec, layers))
    return _merged(out)


def _merged(specs: list[CountedSpec]) -> list[CountedSpec]:
    found: dict[CacheSpec, tuple[int, ...]] = {}
    for spec, layers in specs:
        known = found.get(spec)
        found[spec] = layers if known is None else tuple(a + b for a, b in zip(known, layers, strict=True))
    return [CountedSpec(s, n) for s, n in found.items()]


def _one_type(specs: list[CountedSpec]) -> bool:
    """Whether all layers need the same number of token slots, whatever their page sizes."""
    first = specs[0].spec
    if any(c.spec.block_size != first.block_size for c in specs):
        return False
    if all(c.spec.kind in GROWING for c in specs):
        return True
    return all(
        (c.spec.kind, c.spec.window, c.spec.state_blocks) == (first.kind, first.window, first.state_blocks)
        for c in specs
    )


def _side_by_side(specs: list[CountedSpec]) -> Group:
    stages = range(len(specs[0].layers))
    layers = tuple(sum(c.layers[s] for c in specs) for s in stages)
    pages = tuple(sum(c.layers[s] * c.spec.page_bytes for c in specs) for s in stages)
    lead = max(specs, key=lambda c: c.spec.page_bytes).spec
    return Group(lead, layers, pages, sum(layers), mixed=len(specs) > 1)


def _unified(specs: list[CountedSpec]) -> list[CountedSpec] | None:
    """All pages brought to the largest: longer blocks where it divides, padding else; None where neither is allowed."""
    largest = max(c.spec.page_bytes for c in specs)
    out = []
    for spec, layers in specs:
        if spec.page_bytes == largest:
            unified = spec
        elif spec.kind == "state":
            unified = spec.padded(largest)
        elif largest % spec.page_bytes == 0:
            unified = spec.resized(spec.block_size * (largest // spec.page_bytes))
        elif spec.kind in ("full", "sliding", "chunked", "cross"):
            unified = spec.padded(largest)
        else:
            return None
        out.append(CountedSpec(unified, layers))
    return out


def _split(specs: list[CountedSpec]) -> tuple[Group, ...]:
    totals = [sum(c.layers) for c in specs]
    size = max(totals) if max(totals) < _SPLIT_FROM * min(totals) else min(totals)
    groups = []
    for (spec, layers), total in zip(specs, totals, strict=True):
        number = ceil_div(total, size)
        for index in range(number):
            here = dealt(layers, index, number)
            groups.append(Group(spec, here, tuple(n * spec.page_bytes for n in here), size))
    return tuple(groups)


def kept_tokens(spec: CacheSpec, settings: Settings, length: int) -> int:
    """Tokens for which a bounded cache holds blocks at a request of `length` tokens."""
    flying = (
        settings.max_in_flight_tokens
        if rules.IN_FLIGHT.at(settings.version)
        else settings.scheduler.max_num_batched_tokens
    )
    if spec.kind == "chunked":
        return min(spec.window + flying, length)
    return min(spec.window - 1 + spec.extra_tokens + flying, length)


def blocks_of(group: Group, settings: Settings, length: int) -> int:
    """Blocks that a request of `length` tokens holds in this group (the engine's admission rule)."""
    spec = group.spec
    if spec.kind == "state":
        return spec.state_blocks
    if spec.kind == "cross":
        return ceil_div(settings.scheduler.max_num_batched_tokens, spec.block_size)
    if spec.kind == "chunked":
        return ceil_div(kept_tokens(spec, settings, length), spec.block_size)
    if spec.kind in ("sliding", "sliding_mla", "compressor"):
        return ceil_div(kept_tokens(spec, settings, length), spec.block_size) + 1
    return ceil_div(ceil_div(length, settings.parallel.dcp), spec.block_size)
