"""The layers of a model as the graph needs them: where each lies, and only as many as decide the buffer's size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from kvplanner.engine.llamacpp.compute.buffers import DEEPENED, lay_out, least_cells
from kvplanner.engine.llamacpp.compute.chained import Chain
from kvplanner.engine.llamacpp.compute.laid import CELLS, WINDOW, Laid
from kvplanner.engine.llamacpp.compute.layers import Shape
from kvplanner.engine.llamacpp.place import HOST, Placed
from kvplanner.engine.llamacpp.tensors import Tensor, Tensors
from kvplanner.engine.shared.identity import make_room, remembered
from kvplanner.model.spec import Attention, LayerSpec, Mla, ModelSpec, State
from kvplanner.record import NamedTuple

# How often a layer of one kind may follow one of another before further ones add nothing to the peak.
_REPEATS: Final = 2
# Architectures that leave positions out in every so many layers.
_UNTURNED: Final = {"smollm3": 4, "llama4": 4}
# Those that leave them out everywhere, or add them to the embedding.
_PLACELESS: Final = frozenset(
    {"jamba", "nemotron_h", "nemotron_h_moe", "kimi-linear", "bloom", "gpt2", "jais", "mpt", "refact",
     "starcoder"}
)  # fmt: skip
# Those whose norms have no weights, so that nothing binds them to their layers' devices.
_UNBOUND: Final = frozenset({"olmo"})
# Layers on either side of a change of devices that are kept where work may move across it.
_EDGE: Final = 4
# Layers before a pattern begins, and the longest pattern, that are looked for.
_HEAD: Final = 4
_PERIOD: Final = 8
# More kinds of layers than this without a pattern, as a search for architectures leaves them (Nemotron-Super): each
# counts.
_IRREGULAR: Final = 3

Weights = Mapping[str, tuple[int, int]]


class Reserved(NamedTuple):
    """Compute buffers: of each GPU, and of the host. pipelined: with four copies of every split's inputs."""

    gpus: tuple[int, ...]
    host: int
    pipelined: bool


class How(NamedTuple):
    """What else decides the compute buffers: GPUs in use, whether all layers are offloaded, and where caches lie.

    can_pipeline False: the build or the backend never does, or a first try failed. overridden: tensor overrides are in
    force, with which nothing is pipelined. layer_split: -sm layer. measured: as llama.cpp measures without allocating,
    which forgets which device a layer's norm is bound to. displaced: the host does some of every layer.
    own_graph, fused_sums, reordered: as of Build.
    """

    gpus: int
    all_offloaded: bool
    cache_offload: bool = True
    op_offload: bool = True
    layer_split: bool = True
    overridden: bool = False
    can_pipeline: bool = True
    measured: bool = False
    displaced: bool = False
    own_graph: bool = False
    fused_sums: bool = True
    reordered: bool = True


def pipelined(how: How) -> bool:
    """Whether the GPUs work as a pipeline, each split's inputs being kept four times."""
    return (
        how.gpus > 1
        and how.all_offloaded
        and how.layer_split
        and how.cache_offload
        and not how.overridden
        and how.can_pipeline
    )


class _Built(NamedTuple):
    """All that a graph is built of but its shape: layers and their weights by identity, the rest of the chain, GPUs,
    copies of what goes from one to the next, and whether GPUs take over from the host.
    """

    specs: tuple[int, ...]
    weights: tuple[int, ...]
    rest: Chain
    gpus: int
    copies: int
    offload: bool


# What was reserved last, and the graphs that it was of, with the chains whose parts are named by identity.
_RESERVED: dict[tuple[_Built, Shape], tuple[Chain, tuple[int, ...]]] = remembered({})
_LAID: dict[tuple[_Built, Shape], tuple[Chain, Laid]] = remembered({})
_REMEMBERED: Final = 512
_MOST_LAID: Final = 8  # the longest take a megabyte each


def reserved(spec: ModelSpec, chain: Chain, shape: Shape, how: How) -> Reserved:
    """The compute buffers of a model as it is placed. Placements that differ in what no peak depends on share one."""
    built = _Built(
        tuple(map(id, chain.specs)), tuple(map(id, chain.weights)), chain._replace(specs=(), weights=()),
        how.gpus, 4 if pipelined(how) else 1, how.op_offload,
    )  # fmt: skip
    found = _RESERVED.get((built, shape))
    if found is None:
        make_room(_RESERVED, _REMEMBERED)
        found = _RESERVED[built, shape] = chain, _laid(spec, chain, shape, built).reserve(shape.full, shape.window)
    return Reserved(found[1][:-1], found[1][-1], built.copies > 1)


def _laid(spec: ModelSpec, chain: Chain, shape: Shape, built: _Built) -> Laid:
    """The graph of a chain, one for all numbers of cells."""
    if shape.full >= least_cells(spec.layers, shape):
        shape = shape._replace(full=CELLS, window=WINDOW)
    found = _LAID.get((built, shape))
    if found is None:
        make_room(_LAID, _MOST_LAID)
        laid = lay_out(spec.layers, shape, chain, built.gpus, copies=built.copies, offload=built.offload)
        found = _LAID[built, shape] = chain, laid
    return found[1]


def chain_of(spec: ModelSpec, tensors: Tensors, placed: Placed, how: How) -> Chain:
    """The layers that decide the compute buffers, as they are placed."""
    host = how.gpus
    at = tuple(host if device == HOST else device for device in placed.placement.layers)
    caches = at if how.cache_offload else (host,) * len(at)
    on_host, strays = placed.host_names, placed.strays
    count = len(at)
    weights = [_weights(block, at[i], host, on_host.get(i), strays.get(i)) for i, block in enumerate(tensors.layers)]
    specs = [spec.layers[index] for index in spec.layer_of]
    shared = _shared(specs, caches)
    output = next((t for t in tensors.outputs if t.name == "output.weight"), tensors.tied)
    projection = next((t for t in tensors.first if "model_proj" in t.name), None)
    outside = on_host.get(-1, frozenset())
    output_at = host if placed.output == HOST else placed.output
    first_at = host if at[0] == host or (projection and projection.name in outside) else at[0]
    early = _looks_up_early(spec)
    from_host = bool(on_host) and any(host in (home for _, home in sizes.values()) for sizes in weights)
    fixed = (
        how.all_offloaded
        and how.cache_offload
        and not early
        and not from_host
        and not strays
        and output_at != host
        and host not in at
        and spec.model_type not in _UNBOUND
    )
    unturned = _without_positions(spec, count)
    # Caches and inputs of other layers are copied for each layer that reads them: then every layer counts.
    keep: Sequence[int] = range(count)
    # So it does where each has a tensor from the start on, as with sparse attention.
    # Beside look-ups that draw operations to and fro, no repetition is like the one before it either.
    if all(reads is None for reads in shared) and not _selects(spec) and not early and not how.displaced:
        keep = _kept(weights, specs, at, caches, host, unturned, 1 if fixed else _REPEATS)
        if host in at:
            keep = [*keep, *_beside(at, host)]
        keep = sorted({*range(min(DEEPENED.get(spec.model_type, 0), count)), *keep})
    return Chain(
        specs=tuple(specs[i] for i in keep),
        devices=tuple(at[i] for i in keep),
        caches=tuple(caches[i] for i in keep),
        weights=tuple(weights[i] for i in keep),
        shared=tuple(shared[i] for i in keep),
        output=(output.device_bytes if output else 0, output_at),
        output_norm=host if placed.placement.output == HOST else placed.placement.output,
        embedding=placed.embedding if placed.embedding != HOST else host,
        bound=how.all_offloaded and not how.measured,
        fixed=fixed,
        cache_offload=how.cache_offload,
        placed=any(t.name == "position_embd.weight" for t in tensors.inputs),
        per_layer=projection.rows // count if projection else 0,
        per_layer_layers=count,
        projection=(projection.device_bytes if projection else 0, first_at),
        looked_up=strays.get(-1, {}).get("per_layer_token_embd.weight", host),
        unturned=tuple(unturned[i] for i in keep) if unturned else (),
        streams=tuple(
            (t.device_bytes, host if t.name in outside else output_at)
            for name in ("altup_proj.weight", "altup_unembd_proj.weight")
            for t in tensors.outputs
            if t.name == name
        ),
        turns=next((t.device_bytes for t in tensors.tables if t.name == "rope_freqs.weight"), 0),
    )


def _looks_up_early(spec: ModelSpec) -> bool:
    """Whether a state is looked up before its layer's norm: that draws the layer before's operations to its device."""
    return any(isinstance(m, State) and m.kind != "gated_delta" for layer in spec.layers for m in layer.mixers)


def _without_positions(spec: ModelSpec, count: int) -> tuple[bool, ...]:
    """For each of so many layers whether it leaves positions out, () where none does."""
    if spec.model_type in _PLACELESS:
        return (True,) * count
    step = _UNTURNED.get(spec.model_type)
    return tuple(index % step == step - 1 for index in range(count)) if step else ()


def _selects(spec: ModelSpec) -> bool:
    """Whether some attention looks at cells that a side cache selects."""
    return any(isinstance(m, Mla | Attention) and m.indexer is not None for layer in spec.layers for m in layer.mixers)


def _beside(at: Sequence[int], only: int | None) -> list[int]:
    """The layers on both sides of each change of devices: what they leave undone may move to the next device.

    only: the changes to and from this device; None for all.
    """
    changes = [i for i in range(1, len(at)) if at[i] != at[i - 1] and (only is None or only in at[i - 1 : i + 1])]
    return [index for change in changes for index in range(max(change - _EDGE, 0), min(change + _EDGE, len(at)))]


def _shared(specs: Sequence[LayerSpec], caches: Sequence[int]) -> list[int | None]:
    """For layers without a cache of their own: where the last one of their kind lies, else None."""
    last: dict[bool, int] = {}
    found: list[int | None] = []
    for layer, at in zip(specs, caches, strict=True):
        reads: int | None = None
        for mixer in layer.mixers:
            if isinstance(mixer, Attention):
                windowed = mixer.window is not None
                if mixer.owns_cache:
                    last[windowed] = at
                else:
                    reads = last.get(windowed, at)
        found.append(reads)
    return found


_EMPTY: Final[frozenset[str]] = frozenset()
_shared_weights: dict[tuple[object, ...], tuple[tuple[Tensor, ...], Weights]] = remembered({})


def _weights(
    block: tuple[Tensor, ...], device: int, host: int, on_host: frozenset[str] | None, strays: Mapping[str, int] | None
) -> Weights:
    """Name → (bytes, backend); one mapping for all layers of one kind and place, so that they compare by identity."""
    key = (id(block), device, host, on_host or _EMPTY, tuple(strays.items()) if strays else ())
    known = _shared_weights.get(key)
    if known is not None and known[0] is block:
        return known[1]
    if len(_shared_weights) > 4096:
        _shared_weights.clear()
    names = on_host or _EMPTY
    away = strays or {}
    made: Weights = {
        tensor.name: (tensor.device_bytes, host if tensor.name in names else away.get(tensor.name, device))
        for tensor in block
    }
    _shared_weights[key] = (block, made)
    return made


def _kept(
    weights: Sequence[Weights], specs: Sequence[LayerSpec], at: Sequence[int], caches: Sequence[int], host: int,
    unturned: Sequence[bool], repeats: int,
) -> list[int]:  # fmt: skip
    """The layers that decide the peak: on each device the first few repetitions of a pattern, and the last.

    What is left out is whole repetitions, so that every layer follows one that it follows in the model.
    """
    host_sizes: dict[int, tuple[int, ...]] = {}
    kinds: list[object] = []
    for index, held in enumerate(weights):
        sizes = host_sizes.get(id(held))
        if sizes is None:
            sizes = host_sizes[id(held)] = tuple(size for size, home in held.values() if home == host)
        kinds.append((id(specs[index]), at[index], caches[index], sizes or len(held), unturned and unturned[index]))
    kept: list[int] = []
    start = 0
    for end in range(1, len(kinds) + 1):
        if end == len(kinds) or at[end] != at[start]:
            kept += _of_run(kinds, start, end, repeats)
            start = end
    return kept


def _of_run(kinds: Sequence[object], start: int, end: int, repeats: int) -> list[int]:
    """The layers to keep of one device's."""
    for head in range(min(_HEAD, end - start)):
        first = start + head
        for period in range(1, min(_PERIOD, end - first) + 1):
            if all(kinds[i] == kinds[i + period] for i in range(first, end - period)):
                cut = first + (repeats + 1) * period
                rest = end - period - (end - cut - period) % (2 * period)
                return [*range(start, cut), *range(rest, end)] if rest > cut else list(range(start, end))
    if len(set(kinds[start:end])) > _IRREGULAR:
        return list(range(start, end))
    seen: dict[tuple[object, object], int] = {}
    kept: list[int] = []
    before: object = None
    for index in range(start, end):
        count = seen.get((before, kinds[index]), 0)
        if count < repeats or index == end - 1:
            kept.append(index)
            seen[before, kinds[index]] = count + 1
        before = kinds[index]
    return kept
