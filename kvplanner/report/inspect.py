"""What a model is, as data for a terminal or a window: parameters, bytes, layers in words, caches, oddities."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from kvplanner.estimate import Estimate
from kvplanner.model.kv import state_bytes, token_cache
from kvplanner.model.model import Model
from kvplanner.model.spec import ModelSpec, Moe, Tower
from kvplanner.model.tensors import Inventory, TensorGroup
from kvplanner.record import NamedTuple
from kvplanner.report.inspect_words import layer_lines, layer_summary, oddities

_LARGEST = 8


class TensorRow(NamedTuple):
    """Tensors of one kind in one format. tensors: how many; elements: before packing; bytes: as stored."""

    kind: str
    format: str
    tensors: int
    elements: int
    bytes: int


class LargeTensor(NamedTuple):
    """One of the largest tensors: its path, shape, format, how many equal ones there are, and bytes of one."""

    path: str
    shape: tuple[int, ...]
    format: str
    tensors: int
    bytes: int


class LayerRow(NamedTuple):
    """Layers that are alike: how many, which ("0–2", "every 4th"), and what they are in words."""

    layers: int
    which: str
    words: str


class CacheRow(NamedTuple):
    """What layers keep for each token of context. bound: tokens after which it grows no more, None for the context."""

    kind: str
    layers: int
    bytes_per_token: float
    bound: int | None


class StateRow(NamedTuple):
    """What recurrent layers keep for each sequence."""

    kind: str
    layers: int
    bytes_per_sequence: int


class Inspection(NamedTuple):
    """Everything that `inspect` tells. Sizes are bytes of the whole model, nothing split over ranks.

    parameters: main model, a tied head once; active: of them, those that work on one token; mtp_parameters: of
    prediction blocks that an engine loads only on request. bytes_per_token: over all layers while the context is
    shorter than any window; growing_bytes_per_token: of the layers that grow with the whole context.
    """

    id: str
    architecture: str
    task: str
    source: str
    parameters: int | None
    active: int | None
    mtp_parameters: int
    stored: Estimate | None
    weight_format: str
    dtype: str
    kv_cache_dtype: str | None
    hidden_size: int
    vocab_size: int
    context_length: int | None
    default_context_length: int | None
    summary: str
    layers: tuple[LayerRow, ...]
    tensors: tuple[TensorRow, ...]
    largest: tuple[LargeTensor, ...]
    caches: tuple[CacheRow, ...]
    states: tuple[StateRow, ...]
    bytes_per_token: float
    growing_bytes_per_token: float
    state_bytes_per_sequence: int
    towers: tuple[Tower, ...]
    odd: tuple[str, ...]
    assumed_fields: tuple[str, ...]
    problems: tuple[str, ...]


def inspect(model: Model) -> Inspection:
    """Tell what a model is. Works without an inventory: what comes from tensors is then empty or None."""
    spec, inventory = model.spec, model.inventory
    caches, states = _caches(spec), _states(spec)
    return Inspection(
        id=model.id,
        architecture=spec.architecture,
        task=spec.task,
        source=model.source_detail or model.source_kind,
        parameters=model.parameters,
        active=active_parameters(spec, inventory) if inventory else None,
        mtp_parameters=_mtp_parameters(inventory) if inventory else 0,
        stored=model.stored,
        weight_format=model.weight_format,
        dtype=spec.dtype,
        kv_cache_dtype=spec.kv_cache_dtype,
        hidden_size=spec.hidden_size,
        vocab_size=spec.vocab_size,
        context_length=spec.context_length,
        default_context_length=spec.default_context_length,
        summary=layer_summary(spec),
        layers=tuple(LayerRow(*line) for line in layer_lines(spec)),
        tensors=_tensors(inventory.groups()) if inventory else (),
        largest=_largest(inventory.groups()) if inventory else (),
        caches=caches,
        states=states,
        bytes_per_token=sum(row.bytes_per_token for row in caches),
        growing_bytes_per_token=sum(row.bytes_per_token for row in caches if row.bound is None and row.kind != "image"),
        state_bytes_per_sequence=sum(row.bytes_per_sequence for row in states),
        towers=spec.towers,
        odd=oddities(spec, inventory),
        assumed_fields=spec.assumed_fields,
        problems=model.problems,
    )


def active_parameters(spec: ModelSpec, inventory: Inventory) -> int:
    """Parameters that one token meets: all but the experts that it is not sent to."""
    share = _active_share(spec)
    total = 0.0
    for group, layers in inventory.groups():
        if group.place != "mtp":
            part = share.get(group.count, 1.0) if group.kind == "experts" else 1.0
            total += group.elements * layers * part
    return round(total)


def _active_share(spec: ModelSpec) -> dict[int, float]:
    """The share of each bank of experts that works on a token, by the number of its experts."""
    moes = [mlp for layer in spec.layers for mlp in layer.mlps if isinstance(mlp, Moe)]
    return {moe.experts: moe.top_k / moe.experts for moe in moes}


def _mtp_parameters(inventory: Inventory) -> int:
    return inventory.parameters(mtp=True) - inventory.parameters()


def _tensors(groups: Iterable[tuple[TensorGroup, int]]) -> tuple[TensorRow, ...]:
    """Sums by kind and format, the largest first."""
    counts: Counter[tuple[str, str]] = Counter()
    elements: Counter[tuple[str, str]] = Counter()
    sizes: Counter[tuple[str, str]] = Counter()
    for group, layers in groups:
        key = (group.kind, group.format.name)
        counts[key] += group.count * layers
        elements[key] += group.elements * layers
        sizes[key] += group.stored_bytes * layers
    return tuple(TensorRow(*key, counts[key], elements[key], size) for key, size in sizes.most_common())


def _largest(groups: Iterable[tuple[TensorGroup, int]]) -> tuple[LargeTensor, ...]:
    """The largest single tensors, with how many equal ones there are."""
    rows = [
        LargeTensor(
            f"mtp.{g.path}" if g.place == "mtp" else g.path,
            g.shape,
            g.format.name,
            g.count * layers,
            g.stored_bytes // g.count,
        )
        for g, layers in groups
        if g.count and layers
    ]
    rows.sort(key=lambda row: (-row.bytes, row.path))
    return tuple(rows[:_LARGEST])


def _caches(spec: ModelSpec) -> tuple[CacheRow, ...]:
    """Bytes per token by kind of cache, over all layers that keep one."""
    layers: Counter[tuple[str, int | None]] = Counter()
    sizes: dict[tuple[str, int | None], float] = {}
    for kind, count in zip(spec.layers, spec.counts(), strict=True):
        for mixer in kind.mixers:
            for cache in token_cache(mixer, spec.dtype):
                key = (cache.kind, cache.bound)
                layers[key] += count
                sizes[key] = sizes.get(key, 0.0) + cache.bytes * count
    return tuple(CacheRow(kind, layers[kind, bound], size, bound) for (kind, bound), size in sizes.items())


def _states(spec: ModelSpec) -> tuple[StateRow, ...]:
    """Bytes per sequence by kind of recurrent layer."""
    rows: dict[str, tuple[int, int]] = {}
    for kind, count in zip(spec.layers, spec.counts(), strict=True):
        for mixer in kind.mixers:
            size = state_bytes(mixer, spec.dtype)
            if size:
                name = str(getattr(mixer, "kind", ""))
                before = rows.get(name, (0, 0))
                rows[name] = (before[0] + count, before[1] + size * count)
    return tuple(StateRow(name, count, size) for name, (count, size) in rows.items())
