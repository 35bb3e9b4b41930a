"""Softmax and latent attention, in the order of llama.cpp's graph (build_attn of llama-graph.cpp, October 2026)."""

from __future__ import annotations

from functools import partial
from typing import Final

from kvplanner.engine.llamacpp.cache import is_windowed, row_bytes
from kvplanner.engine.llamacpp.compute import encoder, sparse
from kvplanner.engine.llamacpp.compute.layers import F16, Layer, Rest, Weights
from kvplanner.model.spec import Attention, Indexer, Mla

# Architectures that heed positions in their windowed layers only.
_WINDOWS_TURN: Final = frozenset(
    {"cohere2", "cohere2moe", "exaone4", "exaone-moe", "muse-glimmer", "smallthinker"}
)  # fmt: skip
# Those with a gate for every element of a head, not one for each head.
_GATED_WHOLE: Final = frozenset({"muse-glimmer"})
# Those that norm heads after they are turned, and those that norm a projection as a whole.
_NORMED_TURNED: Final = frozenset({"hunyuan-dense", "hunyuan-moe", "hunyuan-vl"})
_NORMED_WHOLE: Final = frozenset({"olmo2"})


def attend(layer: Layer, mixer: Attention, source: int) -> Rest:
    """Softmax attention."""
    turn_keys, turn_values = layer.inputs.rotations[is_windowed(mixer)]
    if mixer.indexer is not None and layer.inputs.blocks is not None:
        sparse.keep(layer, mixer.indexer, source)
    queries, keys = mixer.heads * mixer.head_size, mixer.kv_heads * mixer.head_size
    full: int | None = None
    if layer.weights.has("attn_qkv.weight"):
        query = _joined(layer, mixer, source)
        return _finish(layer, mixer, query, None, layer.cache)
    if _is_gated(layer, queries):
        full = layer.matmul("attn_q.weight", 2 * queries, source)
    product = layer.matmul("attn_q.weight", queries, source) if full is None else full
    query = _heads(layer, mixer, product, "attn_q_norm.weight", layer.row * queries)
    query = _rotate(layer, query, turn_keys)
    if not mixer.owns_cache and layer.reads is not None:
        return _finish(layer, mixer, query, full, layer.reads)
    gate = source if layer.weights.has("attn_gate.weight") else None
    if mixer.indexer is not None and layer.inputs.blocks is not None:
        return _in_blocks(layer, mixer, mixer.indexer, source, query)
    wide = mixer.kv_heads * mixer.head_size_v
    own_values = layer.weights.has("attn_v.weight") or not layer.weights.has("attn_k.weight")
    if own_values and layer.inputs.window_mask is None:
        value = _rotate(layer, _values(layer, layer.matmul("attn_v.weight", wide, source)), turn_values)
        product = layer.matmul("attn_k.weight", keys, source)
        key = _rotate(layer, _heads(layer, mixer, product, "attn_k_norm.weight", layer.row * keys), turn_keys)
    else:  # models with windows put keys into the graph before values
        product = layer.matmul("attn_k.weight", keys, source)
        key = _rotate(layer, _heads(layer, mixer, product, "attn_k_norm.weight", layer.row * keys), turn_keys)
        value = layer.matmul("attn_v.weight", wide, source) if own_values else product
        value = _rotate(layer, _values(layer, value), turn_values)
    if not mixer.causal:
        return encoder.attend(layer, mixer, query, key, value)
    _store(layer, mixer, key, value)
    return _finish(layer, mixer, query, full, layer.cache, gate)


def _joined(layer: Layer, mixer: Attention, source: int) -> int:
    """Queries, keys and values of one product; the queries are left. Older builds copy the three out of it."""
    shape, turns = layer.shape, layer.inputs.rotations[is_windowed(mixer)]
    queries, keys = layer.row * mixer.heads * mixer.head_size, layer.row * mixer.kv_heads * mixer.head_size
    values = layer.row * mixer.kv_heads * mixer.head_size_v
    joined = layer.matmul("attn_qkv.weight", (queries + keys + values) // layer.row, source)
    copied = shape.copied_heads
    query = _heads(layer, mixer, layer.op(queries, joined) if copied else joined, "attn_q_norm.weight", queries)
    query = _rotate(layer, query, turns[0])
    # Values and keys are views of the product; only a copy or a rotated copy of them is smaller.
    if not copied:
        value = _rotate(layer, layer.op(values, joined) if shape.copied_values else joined, turns[1], values)
    key = _heads(layer, mixer, layer.op(keys, joined) if copied else joined, "attn_k_norm.weight", keys)
    key = _rotate(layer, key, turns[0])
    if copied:
        value = _rotate(layer, layer.op(values, joined), turns[1], values)
    _store(layer, mixer, key, value)
    return query


def _in_blocks(layer: Layer, mixer: Attention, indexer: Indexer, source: int, query: int) -> Rest:
    """MiniMax-M3's layers that see blocks only; their index comes first."""
    graph, shape = layer.graph, layer.shape
    turn_keys, turn_values = layer.inputs.rotations[False]
    widths = mixer.kv_heads * mixer.head_size, mixer.kv_heads * mixer.head_size_v
    product = layer.matmul("attn_k.weight", widths[0], source)
    key = _rotate(layer, _heads(layer, mixer, product, "attn_k_norm.weight", layer.row * widths[0]), turn_keys)
    value = _rotate(layer, layer.matmul("attn_v.weight", widths[1], source), turn_values)
    _store(layer, mixer, key, value)
    cells = shape.full * shape.streams
    keys = graph.cache(cache_bytes(shape.key_type, widths[0], cells), layer.cache)
    values = graph.cache(cache_bytes(shape.value_type, widths[1], cells), layer.cache)
    found = sparse.attend(layer, mixer, query, keys, values, sparse.masks(layer, indexer, source))
    return partial(sparse.close, layer, found, turn_values)


def _values(layer: Layer, value: int) -> int:
    """Values, which Gemma norms too."""
    return layer.op(layer.graph.sizes[value], value) if layer.shape.arch in ("gemma4", "gemma3n") else value


def _is_gated(layer: Layer, queries: int) -> bool:
    return layer.shape.arch in ("qwen3next", "qwen35", "qwen35moe")


def _heads(layer: Layer, mixer: Attention, product: int, norm: str, bytes_: int) -> int:
    """Queries or keys by heads, normed where the layer does so, and turned by their positions.

    Heads are a view of the product, and nothing is done in place on a view.
    """
    arch = layer.shape.arch
    # Gemma 4 has factors for its layers of full attention only.
    table = mixer.window is None
    turned = arch not in _WINDOWS_TURN or mixer.window is not None
    if arch in _NORMED_TURNED and layer.weights.has(norm):
        return layer.norm(layer.turn(bytes_, product, table=table), norm)
    whole = arch in _NORMED_WHOLE  # normed before it is seen as heads
    if layer.weights.has(norm):
        product = layer.norm(product, norm, bytes_=bytes_, inplace=whole)
        return layer.turn(bytes_, product, inplace=not whole, table=table) if turned else product
    if arch == "llama4" and not layer.turned and "_q_" in norm:
        return layer.op(bytes_, product, layer.inputs.scales)  # by how far they stand
    product = layer.turn(bytes_, product, table=table) if turned else product
    # Phi-3 scales its queries here.
    return layer.op(bytes_, product, inplace=True) if arch == "phi3" and "_q_" in norm else product


def _rotate(layer: Layer, source: int, rotation: int | None, bytes_: int | None = None) -> int:
    """Heads as attention gets them: turned once more where they go into a quantised cache."""
    if rotation is None:
        return layer.graph.expand(source)
    size = layer.graph.sizes[source] if bytes_ is None else bytes_
    return layer.graph.expand(layer.op(size, rotation, source))


def _store(layer: Layer, mixer: Attention, key: int, value: int) -> None:
    windowed = is_windowed(mixer)
    inputs = layer.inputs
    rows = (inputs.window_key_rows, inputs.window_value_rows) if windowed else (inputs.key_rows, inputs.value_rows)
    for kept, places in zip((key, value), rows, strict=True):
        sources = (kept, places) if layer.shape.row_inputs else (kept,)
        layer.graph.op(0, *sources, on=layer.cache, stored=True)


def _finish(layer: Layer, mixer: Attention, query: int, gate: int | None, cache: int, gated_by: int | None = None
) -> Rest:  # fmt: skip
    shape, graph, _inputs = layer.shape, layer.graph, layer.inputs
    windowed = is_windowed(mixer)
    cells = (shape.window if windowed else shape.full) * shape.streams
    mask = layer.mask(windowed)
    keys = graph.cache(cache_bytes(shape.key_type, mixer.kv_heads * mixer.head_size, cells), cache)
    values = graph.cache(cache_bytes(shape.value_type, mixer.kv_heads * mixer.head_size_v, cells), cache)
    out = layer.row * mixer.heads * mixer.head_size_v
    if shape.flash:
        found = _flash(layer,
            query, keys, values, mask, out,
            key_elements=cells * mixer.kv_heads * mixer.head_size,
            value_elements=cells * mixer.kv_heads * mixer.head_size_v,
        )  # fmt: skip
    else:
        host = None if layer.cache_offload else graph.host
        per_stream = cells // shape.streams
        if not shape.transposed:
            values = layer.op(graph.sizes[values], values)
        scores = layer.op(layer.row * mixer.heads * per_stream, keys, query)
        scores = _softmax(layer, scores, mask)
        mixed = layer.op(out, values, scores)
        found = layer.op(out, mixed, on=host)
    graph.expand(found)
    if gated_by is not None:
        return partial(_close_gated, layer, mixer, found, gated_by)
    return partial(_close, layer, found, gate, out, layer.inputs.rotations[windowed][1])


def _softmax(layer: Layer, scores: int, mask: int) -> int:
    """Scores under the mask; a layer's own sinks bind it to their device as any weight does."""
    size = layer.graph.sizes[scores]
    if layer.weights.has("attn_sinks.weight"):
        return layer.graph.weighted(size, layer._weight("attn_sinks.weight"), scores, mask, inplace=True)
    return layer.op(size, scores, mask, inplace=True)


def _close_gated(layer: Layer, mixer: Attention, found: int, source: int) -> int:
    """A gate for each head, by what attention read (Step-3.5), or for each of its elements."""
    out = layer.row * mixer.heads * mixer.head_size_v
    turn_values = layer.inputs.rotations[is_windowed(mixer)][1]
    if turn_values is not None:
        found = layer.op(out, turn_values, found)
    whole = layer.shape.arch in _GATED_WHOLE
    gate = layer.matmul("attn_gate.weight", mixer.heads * (mixer.head_size_v if whole else 1), source)
    gate = layer.op(layer.graph.sizes[gate], gate, inplace=True)
    return layer.matmul("attn_output.weight", layer.shape.hidden, layer.op(out, found, gate, inplace=whole))


def _close(layer: Layer, found: int, gate: int | None, out: int, turn_values: int | None) -> int:
    shape = layer.shape
    if turn_values is not None:
        found = layer.op(out, turn_values, found)
    if gate is not None:
        opened = layer.op(out, gate)
        opened = layer.op(out, opened, inplace=True)
        found = layer.op(out, opened, found, inplace=True)
    return layer.matmul("attn_output.weight", shape.hidden, found)


def _flash(layer: Layer, query: int, keys: int, values: int | None, mask: int, out: int, *, key_elements: int,
    value_elements: int,
) -> int:  # fmt: skip
    """Flash attention; its buffer also takes 16-bit copies of keys and values of another type."""
    graph, shape = layer.graph, layer.shape
    extra = 0
    sources = [query]
    if shape.no_kernel:  # it then runs on the host, silently
        held = [cached for cached in (keys, values) if cached is not None]
        return layer.op(out, query, *held, mask, on=graph.host)
    for cached, type_, elements in (
        (keys, shape.key_type, key_elements),
        (values, shape.value_type, value_elements),
    ):
        if cached is None:
            continue
        if type_ == "f32":
            sources.append(layer.op(F16 * elements, cached))
            continue
        if type_ != "f16" and shape.copies_reserved:
            extra += F16 * elements
        sources.append(cached)
    if layer.weights.has("attn_sinks.weight"):
        return graph.with_extra(graph.weighted(out, layer._weight("attn_sinks.weight"), *sources, mask), extra)
    return graph.with_extra(layer.op(out, *sources, mask), extra)


def latent(layer: Layer, mixer: Mla, source: int) -> Rest:
    """Latent attention: on its absorbed cache, or on full heads where the file has one key-value matrix."""
    row, heads = layer.row, mixer.heads
    per_head = mixer.qk_nope + mixer.qk_rope
    reduced = source
    if mixer.q_lora_rank:
        reduced = layer.norm(layer.matmul("attn_q_a.weight", mixer.q_lora_rank, source), "attn_q_a_norm.weight")
    selected = select(layer, mixer.indexer, source, reduced) if mixer.indexer else None
    query = layer.matmul("attn_q_b.weight" if mixer.q_lora_rank else "attn_q.weight", heads * per_head, reduced)
    if has_full_heads(layer.weights) or not layer.shape.latent:
        return _full_heads(layer, mixer, source, query)
    nope = layer.graph.view(query, layer.graph.sizes[query])
    absorbed = layer.matmul("attn_k_b.weight", heads * mixer.kv_lora_rank, nope)
    width = mixer.kv_lora_rank + mixer.qk_rope
    query = layer.op(row * heads * width, absorbed, _turned_part(layer, query, row * heads * mixer.qk_rope))
    layer.graph.expand(query)
    joined = layer.matmul("attn_kv_a_mqa.weight", width, source)
    value = layer.norm(joined, "attn_kv_a_norm.weight", bytes_=row * mixer.kv_lora_rank, inplace=False)
    layer.graph.expand(value)
    key = layer.op(row * width, value, _turned_part(layer, joined, row * mixer.qk_rope))
    layer.graph.expand(key)
    if layer.shape.latent_values:
        _store(layer, as_latent(mixer), key, value)
    else:
        layer.graph.op(0, key, layer.inputs.key_rows, on=layer.cache, stored=True)
    return _close_latent(layer, mixer, query, _mask(layer, mixer, selected))


def has_full_heads(weights: Weights) -> bool:
    """Whether latent attention keeps every head's keys and values: its key-value matrix is not split."""
    return weights.has("attn_kv_b.weight") and not weights.has("attn_k_b.weight")


def _turned_part(layer: Layer, source: int, bytes_: int) -> int:
    """The part of heads that positions turn, if they do."""
    if not layer.turned:
        return layer.graph.view(source, layer.graph.sizes[source])
    return layer.op(bytes_, source, layer.inputs.positions)


def as_heads(mixer: Mla) -> Attention:
    """Latent attention as its full heads see it."""
    return Attention(mixer.heads, mixer.heads, mixer.qk_nope + mixer.qk_rope, mixer.head_size_v)


def as_latent(mixer: Mla) -> Attention:
    """Latent attention as its absorbed cache sees it: one key of all heads, whose first part is the value."""
    return Attention(mixer.heads, 1, mixer.kv_lora_rank + mixer.qk_rope, mixer.kv_lora_rank)


def _full_heads(layer: Layer, mixer: Mla, source: int, query: int) -> Rest:
    """Keys and values of every head (minicpm3, and deepseek2 files of before the split)."""
    graph, row, heads = layer.graph, layer.row, mixer.heads
    turn_keys, turn_values = layer.inputs.rotations[False]
    query = _rotate(layer, layer.turn(graph.sizes[query], query), turn_keys)
    joined = layer.matmul("attn_kv_a_mqa.weight", mixer.kv_lora_rank + mixer.qk_rope, source)
    shared = layer.norm(joined, "attn_kv_a_norm.weight", bytes_=row * mixer.kv_lora_rank, inplace=False)
    both = layer.matmul("attn_kv_b.weight", heads * (mixer.qk_nope + mixer.head_size_v), shared)
    value = _rotate(layer, layer.op(row * heads * mixer.head_size_v, both), turn_values)
    turned = layer.op(row * heads * mixer.qk_rope, layer.turn(row * mixer.qk_rope, joined))
    key = _rotate(layer, layer.op(row * heads * (mixer.qk_nope + mixer.qk_rope), both, turned), turn_keys)
    whole = as_heads(mixer)
    _store(layer, whole, key, value)
    return _finish(layer, whole, query, None, layer.cache)


def select(layer: Layer, indexer: Indexer, source: int, reduced: int) -> int | None:
    """The cells that each token attends to, by the side cache of DeepSeek's sparse attention (deepseek32.cpp).

    Its operation is fused wherever GPUs have it: for 32 or 64 heads of 128 elements. None: an earlier layer's choice.
    """
    graph, shape, inputs, row = layer.graph, layer.shape, layer.inputs, layer.row
    if not indexer.owns_cache:
        return None
    wide = row * indexer.heads * indexer.head_size
    query = layer.matmul("indexer.attn_q_b.weight", indexer.heads * indexer.head_size, reduced)
    query = layer.op(wide, query, inputs.positions)
    key = layer.matmul("indexer.attn_k.weight", indexer.head_size, source)
    key = layer.op(graph.sizes[key], key, on=layer.device if layer.bound else None)
    for name in ("indexer.k_norm.weight", "indexer.k_norm.bias"):
        key = graph.weighted(graph.sizes[key], layer._weight(name), key, inplace=True)
    key = layer.op(graph.sizes[key], key, inputs.positions)
    assert inputs.side is not None
    query = layer.op(wide, inputs.side.rotation, query)
    key = layer.op(graph.sizes[key], inputs.side.rotation, key)
    graph.op(0, key, inputs.side.rows, on=layer.cache, stored=True)
    weights = layer.matmul("indexer.proj.weight", indexer.heads, source)
    weights = layer.op(graph.sizes[weights], weights)
    cells = shape.full * shape.streams
    keys = graph.cache(cache_bytes(shape.key_type, indexer.head_size, cells), layer.cache)
    scores = layer.op(row * shape.full, query, keys, weights, inputs.side.mask)
    chosen = layer.op(row * min(indexer.top_k, shape.full), scores)
    return layer.op(graph.sizes[chosen], graph.view(chosen, graph.sizes[chosen]))


def _mask(layer: Layer, mixer: Mla, selected: int | None) -> int:
    """The mask, in which a selection leaves open only what it chose."""
    held = layer.mask(False)
    if selected is None:
        return held
    size = layer.graph.sizes[held]
    graph = layer.graph
    # Sources stand in the order in which ggml_set_rows names them: rows, their places, what they are put into.
    zeros = graph.leaf(graph.sizes[selected])
    opened = layer.op(graph.sizes[selected], zeros, inplace=True)
    closed = layer.op(size, held)
    changed = graph.op(0, opened, selected, graph.view(closed, size), on=layer._home, stored=True)  # a view of it
    return layer.op(size, changed, graph.view(closed, size), held)


def _close_latent(layer: Layer, mixer: Mla, query: int, mask: int) -> Rest:
    shape, graph, row, heads = layer.shape, layer.graph, layer.row, mixer.heads
    width = mixer.kv_lora_rank + mixer.qk_rope
    cells = shape.full * shape.streams
    keys = graph.cache(cache_bytes(shape.key_type, width, cells), layer.cache)
    mixed = row * heads * mixer.kv_lora_rank
    out = row * heads * mixer.head_size_v
    if shape.flash:
        values = graph.cache(graph.sizes[keys], layer.cache)  # a view of the keys, but copied on its own
        found = _flash(layer, query, keys, values, mask, mixed, key_elements=cells * width, value_elements=0)
    else:
        kept = cache_bytes(shape.value_type, mixer.kv_lora_rank, cells)
        if shape.latent_values:
            values = graph.cache(kept, layer.cache)
        else:
            values = layer.op(cache_bytes("f16", mixer.kv_lora_rank, cells), keys)
        scores = layer.op(row * heads * shape.full, keys, query)
        scores = layer.op(graph.sizes[scores], scores, mask, inplace=True)
        found = layer.op(mixed, values, scores)
    found = layer.matmul("attn_v_b.weight", heads * mixer.head_size_v, found)
    # Without flash attention what reads a cache on the host ends there (build_attn_mha).
    host = graph.host if not shape.flash and not layer.cache_offload else None
    found = graph.expand(layer.op(out, found, on=host))
    return partial(layer.matmul, "attn_output.weight", shape.hidden, found)


def cache_bytes(type_: str, elements: int, cells: int) -> int:
    """Bytes of a layer's keys or values, as an operation sees them."""
    return row_bytes(type_, elements) * cells
