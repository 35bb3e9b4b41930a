"""The compute buffer of every device, from the graph of the largest micro-batch.

Source: sched_reserve and graph_reserve of llama-context.cpp, llama.cpp 0.5.0-dev (October 2026).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from kvplanner.engine.llamacpp.cache import is_windowed
from kvplanner.engine.llamacpp.compute import block, encoder, feedforward, gemma3n, lightning, sparse
from kvplanner.engine.llamacpp.compute.attention import as_heads, has_full_heads
from kvplanner.engine.llamacpp.compute.chained import Chain, condensed, repeated
from kvplanner.engine.llamacpp.compute.graph import Deferred, Graph, Repeat
from kvplanner.engine.llamacpp.compute.laid import CELLS, Laid
from kvplanner.engine.llamacpp.compute.layers import (
    F16,
    F32,
    INT,
    OFFLOAD_ROWS,
    PLAIN_NORM,
    IndexInputs,
    Inputs,
    Layer,
    Rest,
    Shape,
    Weights,
    same,
)  # fmt: skip
from kvplanner.engine.llamacpp.tensors import BERTS
from kvplanner.model.kv import keeps_nothing
from kvplanner.model.spec import Attention, LayerSpec, Mixer, Mla, State

_LONG: Final = 8
_TURNED: Final = 64  # heads are rotated where this divides them
# Those that pick the rows before the last norm rather than after it.
_ROWS_BEFORE_NORM: Final = frozenset({"gpt-oss", "step35"})
# Those whose operations are given in the order of their definition; the graph holds them back until they are needed.
_DEFERRED: Final = frozenset(
    {"gemma3n", "deepseek32", "glm-dsa", "kimi-linear", "nemotron_h", "nemotron_h_moe", "mamba", "mamba2", "jamba",
     "granitehybrid", "falcon-h1", "lfm2", "lfm2moe", "cohere2moe", "phi2",
     "gptneox", "bailingmoe3", "minimax-01", "minimax-m3"}
)  # fmt: skip
# Architectures that scale or norm the embedding before the first layer.
_SCALED: Final = frozenset({"minicpm3", "gemma", "gemma2", "gemma3", "gemma3n", "gemma4", "muse-glimmer"})
# Those that scale what the output matrix reads.
_SCALED_LAST: Final = frozenset({"minicpm3"})
# Those whose positions have four parts: time, height, width and one more (n_pos_per_embd).
_FOURFOLD: Final = frozenset({"qwen2vl", "qwen3vl", "qwen3vlmoe", "qwen35", "qwen35moe", "paddleocr", "qwen3tts"})
# Vision models whose first layers each take a further part of an embedding that is that much wider
# (n_deepstack_layers: three in every Qwen3-VL).
DEEPENED: Final = {"qwen3vl": 3, "qwen3vlmoe": 3}


def lay_out(
    layers: Sequence[LayerSpec], shape: Shape, chain: Chain, gpus: int, *, copies: int = 1, offload: bool = True
) -> Laid:
    """The graph, ready to be packed into the compute buffers. layers: the model's distinct ones.

    A shape whose cells are CELLS and WINDOW gives a graph for every number of them but those below `least_cells`.
    Layers that recur are built three times, those of GPUs that hold the same once: the rest of the graph is like them.
    """
    short, stand_ins, repeats = chain, tuple[int, ...](), list[Repeat]()
    if not feedforward.displaces(shape.arch, xielu=shape.xielu):  # else the host does some of every layer
        if chain.fixed and shape.arch not in DEEPENED:
            short, stand_ins = condensed(chain, gpus)
        short, repeats = repeated(short, gpus, DEEPENED.get(shape.arch, 0))
    laid = _lay_out(layers, shape, short, gpus, repeats, stand_ins, copies=copies, offload=offload)
    if laid.is_alike:
        return laid
    return _lay_out(layers, shape, chain, gpus, (), (), copies=copies, offload=offload)


def _lay_out(
    layers: Sequence[LayerSpec], shape: Shape, chain: Chain, gpus: int, repeats: Sequence[Repeat],
    stand_ins: Sequence[int], *, copies: int, offload: bool,
) -> Laid:  # fmt: skip
    graph = (Deferred if shape.arch in _DEFERRED else Graph)(gpus, copies=copies, offload=offload)
    if chain.streams:
        chain = chain._replace(fixed=chain.fixed and gpus == 1)  # some of it runs beside the output
    tokens = graph.input(INT * shape.tokens)
    if shape.both_inputs:
        wide = F32 * shape.tokens * shape.hidden * (1 + DEEPENED.get(shape.arch, 0))
        graph.input(wide, once=not shape.spare_copies)  # no operation of a batch of tokens reads it
    heads = not shape.latent or any(has_full_heads(Weights(weights)) for weights in chain.weights)
    inputs = _inputs(graph, layers, shape, full_heads=heads)
    hidden = graph.expand(graph.op(F32 * shape.tokens * shape.hidden, tokens, on=chain.embedding))
    start = chain.devices[0] if chain.fixed else None
    looked_up = _look_up(graph, shape, chain, tokens, start) if chain.per_layer else None
    if shape.arch in _SCALED:
        hidden = graph.op(graph.sizes[hidden], hidden, inplace=True, on=start)
    if shape.arch in BERTS:
        hidden = encoder.look_up(graph, shape, hidden, inputs, placed=chain.placed, first=chain.devices[0])
    elif chain.placed:
        at = graph.op(graph.sizes[hidden], inputs.positions, on=graph.host)
        hidden = graph.op(graph.sizes[hidden], hidden, at, inplace=True, on=start)
    built = _layers(graph, shape, inputs, chain)
    rows = shape.outputs if not shape.late_rows or chain.streams else None
    if chain.streams and looked_up is not None:
        hidden = _in_streams(built, shape, chain, hidden, looked_up, inputs)
    elif looked_up is not None:
        hidden = _with_inputs(built, chain, hidden, looked_up, rows)
    else:
        hidden = _in_turn(built, shape, hidden, rows)
    if keeps_nothing(layers):
        _embed(graph, shape, chain, hidden)
    else:
        _head(graph, shape, chain, hidden, rows, inputs)
    return graph.laid_out(repeats, stand_ins)


def least_cells(layers: Sequence[LayerSpec], shape: Shape) -> int:
    """From so many cells on, what attention looks at does not depend on how many there are."""
    mixers = [mixer for layer in layers for mixer in layer.mixers]
    if shape.blocks != "positions" and any(isinstance(m, Attention) and m.indexer is not None for m in mixers):
        return CELLS  # blocks are of so many cells, and where there are few all are chosen
    return max((m.indexer.top_k for m in mixers if isinstance(m, Mla) and m.indexer is not None), default=0)


def _embed(graph: Graph, shape: Shape, chain: Chain, hidden: int) -> None:
    """An encoder's end: a last norm where its layers begin with one, and no logits."""
    on = chain.output[1] if chain.fixed else None
    if shape.arch not in BERTS:
        hidden = graph.op(graph.sizes[hidden], hidden, inplace=True, on=on)
        norm = (F32 * shape.hidden, chain.output_norm)
        hidden = graph.weighted(graph.sizes[hidden], norm, hidden, inplace=True)
    encoder.pool(graph, shape, hidden, on)


def _layers(graph: Graph, shape: Shape, inputs: Inputs, chain: Chain) -> list[Layer]:
    return [
        Layer(
            graph, shape, inputs, Weights(chain.weights[index]), layer_spec, device=chain.devices[index],
            cache=chain.caches[index], bound=chain.bound, fixed=chain.fixed, turns=chain.turns,
            reads=chain.shared[index], turned=not chain.unturned or not chain.unturned[index],
            cache_offload=chain.cache_offload,
        )
        for index, layer_spec in enumerate(chain.specs)
    ]  # fmt: skip


def _in_turn(layers: Sequence[Layer], shape: Shape, hidden: int, rows: int | None) -> int:
    """Layer after layer; each puts off what is left of the one before until it needs it."""
    graph = layers[0].graph
    deepened, wide = DEEPENED.get(shape.arch, 0), hidden
    if deepened:
        wide = layers[0].op(graph.sizes[hidden] * (1 + deepened), hidden)
        hidden = graph.view(wide, graph.sizes[hidden])
    pending: Rest = partial(same, hidden)
    for index, layer in enumerate(layers):
        graph.mark()
        pending = block.build(layer, pending, rows if index == len(layers) - 1 else None)
        if index < deepened:
            pending = partial(_deepen, layer, pending, wide)
    return pending()


def _look_up(graph: Graph, shape: Shape, chain: Chain, tokens: int, start: int | None) -> int:
    """Gemma's inputs of all layers, looked up where their table is: on the host, unless an override moved it."""
    found = graph.op(F32 * shape.tokens * chain.per_layer * chain.per_layer_layers, tokens, on=chain.looked_up)
    viewed = graph.view(found, graph.sizes[found])
    return graph.expand(graph.op(graph.sizes[found], viewed, inplace=True, on=start))


def _with_inputs(layers: Sequence[Layer], chain: Chain, hidden: int, looked_up: int, rows: int | None) -> int:
    """Gemma 4's small models: each layer takes its own input up last."""
    first, projected = hidden, None
    for index, layer in enumerate(layers):
        hidden = block.build(layer, partial(same, hidden), rows if index == len(layers) - 1 else None)()
        if projected is None:
            projected = _project(layer, first, looked_up, chain)
        sliced = layer.graph.view(projected, layer.row * chain.per_layer)
        hidden = _with_per_layer(layer, hidden, sliced, chain.per_layer)
    return hidden


def _in_streams(
    layers: Sequence[Layer], shape: Shape, chain: Chain, hidden: int, looked_up: int, inputs: Inputs
) -> int:  # fmt: skip
    """Gemma 3n: several streams, of which one row each is wanted in the end."""
    graph = layers[0].graph
    projected = _project(layers[0], hidden, looked_up, chain)
    hidden = gemma3n.spread(graph, shape, hidden, chain.streams[0], chain.devices[0] if chain.fixed else None)
    for index, layer in enumerate(layers):
        hidden = gemma3n.build(layer, hidden, graph.view(projected, layer.row * chain.per_layer), index)
    merged = gemma3n.merge(graph, shape, hidden, chain.streams[1], None)
    return graph.op(F32 * shape.outputs * shape.hidden, merged, inputs.output_rows)


def _deepen(layer: Layer, before: Rest, wide: int) -> int:
    """A layer's result with its part of the wide embedding."""
    hidden = before()
    size = layer.graph.sizes[hidden]
    return layer.op(size, hidden, layer.graph.view(wide, size), inplace=True)


def _inputs(graph: Graph, layers: Sequence[LayerSpec], shape: Shape, *, full_heads: bool) -> Inputs:
    mixers = [as_heads(m) if full_heads and isinstance(m, Mla) else m for layer in layers for m in layer.mixers]
    full = any(isinstance(m, Mla) or (isinstance(m, Attention) and not (m.window or m.chunk)) for m in mixers)
    windowed = any(isinstance(m, Attention) and (m.window or m.chunk) for m in mixers)
    width = F16 if shape.flash and not shape.wide_mask else F32
    in_blocks = any(isinstance(m, Attention) and sparse.is_sparse(shape, m) for m in mixers)
    decaying = next((m for m in mixers if isinstance(m, State) and m.kind == "lightning"), None)
    encodes = keeps_nothing(layers)
    full, seen = full or encodes, (shape.tokens, shape.tokens) if encodes else (shape.full, shape.window)
    long = _LONG if shape.row_inputs and not encodes else 0
    positions = graph.input(INT * shape.tokens * (4 if shape.arch in _FOURFOLD else 1))
    values = max((m.kv_heads * m.head_size_v for m in mixers if isinstance(m, Attention)), default=1)
    if shape.latent_values:
        values = max([values, *(m.kv_lora_rank for m in mixers if isinstance(m, Mla))])
    values = values if shape.transposed else 1
    states = graph.input(INT * shape.slots if any(isinstance(m, State) for m in mixers) else 0)
    return Inputs(
        positions=positions,
        mask=graph.input(width * shape.tokens * seen[0]) if full else None,
        window_mask=graph.input(width * shape.tokens * seen[1]) if windowed else None,
        key_rows=graph.input(long * shape.tokens if full else 0),
        value_rows=graph.input(
            long * shape.tokens * values if full else 0,
            once=not shape.spare_copies and not any(isinstance(m, Attention) for m in mixers),
        ),
        window_key_rows=graph.input(long * shape.tokens if windowed else 0),
        window_value_rows=graph.input(long * shape.tokens * values if windowed else 0),
        output_rows=graph.input(INT * shape.outputs),
        states=graph.view(states, graph.sizes[states]),
        other_states=graph.view(states, 0),
        scales=graph.input(F32 * shape.tokens if shape.arch == "llama4" else 0),
        rotations={windows: _rotations(graph, shape, mixers, windows) for windows in (False, True)},
        narrowed={},
        side=_index_inputs(graph, [m for layer in layers for m in layer.mixers], shape),
        blocks=sparse.inputs_of(graph, shape) if in_blocks else None,
        decays=lightning.inputs_of(graph, shape, decaying.heads) if decaying is not None else None,
    )


def _index_inputs(graph: Graph, mixers: Sequence[Mixer], shape: Shape) -> IndexInputs | None:
    indexer = next((m.indexer for m in mixers if isinstance(m, Mla) and m.indexer), None)
    if indexer is None:
        return None
    size = indexer.head_size & -indexer.head_size
    return IndexInputs(
        rows=graph.input(_LONG * shape.tokens),
        mask=graph.input(F16 * shape.tokens * shape.full),
        rotation=graph.input(F32 * size * size),
    )


def _rotations(
    graph: Graph, shape: Shape, mixers: Sequence[Mixer], windows: bool
) -> tuple[int | None, int | None]:  # fmt: skip
    """The matrices of one cache: of the largest power of two that divides its heads for keys, of 64 for values."""
    found = next((m for m in mixers if isinstance(m, Attention) and is_windowed(m) == windows), None)
    if found is None or not shape.rotated:
        return None, None
    size = found.head_size & -found.head_size
    return (
        _rotation(graph, shape.key_type, size if found.head_size % _TURNED == 0 else 0),
        _rotation(graph, shape.value_type, _TURNED if found.head_size_v % _TURNED == 0 else 0),
    )


def _rotation(graph: Graph, type_: str, size: int) -> int | None:
    """The matrix that rotates heads before they are quantised; none for 16- and 32-bit caches."""
    return graph.input(F32 * size * size) if size and type_ not in ("f16", "f32", "bf16") else None


def _project(layer: Layer, first: int, looked_up: int, chain: Chain) -> int:
    """Gemma's per-layer inputs of all layers at once."""
    graph = layer.graph
    size = graph.sizes[looked_up]
    projected = graph.weighted(size, chain.projection, first)
    projected = layer.op(size, projected, inplace=True)
    projected = layer.op(size, projected)
    projected = graph.weighted(size, (0, chain.projection[1]), projected, inplace=True)
    both = layer.op(size, projected, looked_up, inplace=True)
    both = layer.op(size, both, inplace=True)
    return layer.op(size, both)


def _with_per_layer(layer: Layer, hidden: int, sliced: int, width: int) -> int:
    graph, shape = layer.graph, layer.shape
    gate = layer.matmul("inp_gate.weight", width, hidden)
    gate = layer.op(graph.sizes[gate], gate, inplace=True)
    gate = layer.op(graph.sizes[gate], gate, sliced, inplace=True)
    out = layer.matmul("proj.weight", shape.hidden, gate)
    out = layer.norm(out, "post_norm.weight")
    return layer.op(graph.sizes[hidden], hidden, out, inplace=True)


def _head(graph: Graph, shape: Shape, chain: Chain, hidden: int, rows: int | None, inputs: Inputs) -> None:
    at = chain.output[1]
    on = at if chain.fixed else None
    if rows is None and shape.arch in _ROWS_BEFORE_NORM:
        graph.output(hidden)
        hidden = graph.op(F32 * shape.outputs * shape.hidden, hidden, inputs.output_rows, on=on)
    normed = graph.op(graph.sizes[hidden], hidden, inplace=shape.arch not in PLAIN_NORM, on=on)
    big = shape.outputs >= OFFLOAD_ROWS
    norm = (F32 * shape.hidden, chain.output_norm)
    normed = graph.weighted(graph.sizes[normed], norm, normed, inplace=True, big=big or rows is None)
    if rows is None and shape.arch not in _ROWS_BEFORE_NORM:
        if shape.late_rows:
            graph.output(normed)  # read by drafting layers
        normed = graph.op(F32 * shape.outputs * shape.hidden, normed, inputs.output_rows, on=on)
    graph.output(normed)
    if shape.arch in _SCALED_LAST:
        normed = graph.op(graph.sizes[normed], normed, on=on)
    logits = graph.weighted(F32 * shape.outputs * shape.vocabulary, chain.output, normed, big=big)
    graph.output(graph.expand(logits))
