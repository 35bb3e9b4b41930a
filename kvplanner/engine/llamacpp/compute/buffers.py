"""The compute buffer of every device, from the graph of the largest micro-batch.

Source: sched_reserve and graph_reserve of llama-context.cpp, llama.cpp 0.5.0-dev (October 2026).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from kvplanner.engine.llamacpp.compute import attention, feedforward, recurrent
from kvplanner.engine.llamacpp.compute.graph import Graph
from kvplanner.engine.llamacpp.compute.layers import Inputs, Layer, Rest, Shape, Weights
from kvplanner.model.spec import Attention, LayerSpec, Mla, Mlp, Moe, State
from kvplanner.record import NamedTuple

_F32: Final = 4
_F16: Final = 2
_INT: Final = 4
_LONG: Final = 8
# Architectures whose last layer still computes every token, because the drafting layers may need it
# (embeddings_nextn_masked of their graphs).
_LATE_ROWS: Final = frozenset(
    {"gpt-oss", "qwen3next", "qwen35", "qwen35moe", "gemma4", "nemotron_h", "nemotron_h_moe", "glm4moe", "step35",
     "mimo2", "cohere2moe", "glm-dsa", "deepseek32"}
)  # fmt: skip
# Those that pick the rows before the last norm rather than after it.
_ROWS_BEFORE_NORM: Final = frozenset({"gpt-oss"})
# Architectures that scale the embedding before the first layer.
_SCALED: Final = frozenset({"gemma", "gemma2", "gemma3", "gemma3n", "gemma4"})
# Those that add to what came in rather than the other way round, which decides whose memory is taken over: what the
# mixers gave, and what the feed-forward block gave.
_ONTO_INPUT: Final = frozenset({"lfm2", "lfm2moe", "jamba", "openelm"})
_ONTO_SUM: Final = frozenset({"lfm2", "lfm2moe", "jamba", "phi3"})
# Those whose positions have four parts: time, height, width and one more (n_pos_per_embd).
_FOURFOLD: Final = frozenset({"qwen2vl", "qwen3vl", "qwen3vlmoe", "qwen35", "qwen35moe", "paddleocr", "qwen3tts"})
# Vision models whose first layers each take a further part of an embedding that is that much wider
# (n_deepstack_layers: three in every Qwen3-VL).
DEEPENED: Final = {"qwen3vl": 3, "qwen3vlmoe": 3}


class Chain(NamedTuple):
    """The layers to build: device, cache's backend and weights of each; and where the output and the embedding lie.

    shared: for a layer without its own cache, the backend of the one that it reads. output: bytes and backend.

    turns: bytes of the table of factors that positions turn heads by, 0 without one; it lies with its layers.
    per_layer: elements of Gemma's per-layer inputs, 0 without them. bound, fixed: as in Layer.
    """

    specs: tuple[LayerSpec, ...]
    devices: tuple[int, ...]
    caches: tuple[int, ...]
    shared: tuple[int | None, ...]
    weights: tuple[Mapping[str, tuple[int, int]], ...]
    output: tuple[int, int]
    output_norm: int
    embedding: int
    bound: bool
    fixed: bool
    per_layer: int = 0
    per_layer_layers: int = 0
    projection: tuple[int, int] = (0, 0)
    turns: int = 0


def reserve(
    layers: Sequence[LayerSpec], shape: Shape, chain: Chain, gpus: int, *, copies: int = 1, offload: bool = True
) -> tuple[int, ...]:
    """Bytes of the compute buffer of each GPU, then of the host. layers: the model's distinct ones."""
    graph = Graph(gpus, copies=copies, offload=offload)
    tokens = graph.input(_INT * shape.tokens)
    deepened = DEEPENED.get(shape.arch, 0)
    if shape.both_inputs:
        graph.input(_F32 * shape.tokens * shape.hidden * (1 + deepened))
    inputs = _inputs(graph, layers, shape)
    hidden = graph.op(_F32 * shape.tokens * shape.hidden, tokens, on=chain.embedding)
    start = chain.devices[0] if chain.fixed else None
    per_layer: int | None = None
    if chain.per_layer:
        per_layer = graph.op(_F32 * shape.tokens * chain.per_layer * chain.per_layer_layers, tokens, on=graph.host)
        per_layer = graph.op(graph.sizes[per_layer], per_layer, inplace=True, on=start)
    if shape.arch in _SCALED:
        hidden = graph.op(graph.sizes[hidden], hidden, inplace=True, on=start)
    wide = hidden
    if deepened:
        wide = graph.op(graph.sizes[hidden] * (1 + deepened), hidden, on=start)
        hidden = graph.view(wide, graph.sizes[hidden])
    first = hidden
    projected: int | None = None
    rows: int | None = None
    last = len(chain.specs) - 1
    pending: Callable[[], int] = partial(_same, hidden)
    for index, layer_spec in enumerate(chain.specs):
        layer = Layer(
            graph, shape, inputs, Weights(chain.weights[index]), layer_spec, device=chain.devices[index],
            cache=chain.caches[index], bound=chain.bound, fixed=chain.fixed, turns=chain.turns,
        )  # fmt: skip
        late = shape.late_rows and shape.arch in _LATE_ROWS
        rows = shape.outputs if index == last and not late else None
        close = _mix(layer, pending, inputs, chain, index)
        if per_layer is None:
            pending = _end(layer, close, rows, inputs)
            if index < deepened:
                pending = partial(_deepen, layer, pending, wide)
            continue
        hidden = _end(layer, close, rows, inputs)()
        if projected is None:
            projected = _project(layer, first, per_layer, chain)
        hidden = _with_per_layer(layer, hidden, graph.view(projected, layer.row * chain.per_layer), chain.per_layer)
        pending = partial(_same, hidden)
    _head(graph, shape, chain, pending(), rows, inputs)
    return graph.reserve()


def _same(hidden: int) -> int:
    return hidden


def _deepen(layer: Layer, before: Callable[[], int], wide: int) -> int:
    """A layer's result with its part of the wide embedding."""
    hidden = before()
    size = layer.graph.sizes[hidden]
    return layer.op(size, hidden, layer.graph.view(wide, size), inplace=True)


def _inputs(graph: Graph, layers: Sequence[LayerSpec], shape: Shape) -> Inputs:
    mixers = [m for layer in layers for m in layer.mixers]
    full = any(isinstance(m, Mla) or (isinstance(m, Attention) and not (m.window or m.chunk)) for m in mixers)
    windowed = any(isinstance(m, Attention) and (m.window or m.chunk) for m in mixers)
    width = _F16 if shape.flash and not shape.wide_mask else _F32
    positions = graph.input(_INT * shape.tokens * (4 if shape.arch in _FOURFOLD else 1))
    attention = next((m for m in mixers if isinstance(m, Attention)), None)
    values = max((m.kv_heads * m.head_size_v for m in mixers if isinstance(m, Attention)), default=1)
    values = values if shape.transposed else 1
    return Inputs(
        positions=positions,
        mask=graph.input(width * shape.tokens * shape.full) if full else None,
        window_mask=graph.input(width * shape.tokens * shape.window) if windowed else None,
        key_rows=graph.input(_LONG * shape.tokens if full else 0),
        value_rows=graph.input(_LONG * shape.tokens * values if full else 0),
        window_key_rows=graph.input(_LONG * shape.tokens if windowed else 0),
        window_value_rows=graph.input(_LONG * shape.tokens * values if windowed else 0),
        output_rows=graph.input(_INT * shape.outputs),
        states=graph.input(_INT * shape.slots if any(isinstance(m, State) for m in mixers) else 0),
        key_rotation=_rotation(graph, shape, shape.key_type, attention.head_size if attention else 0, largest=True),
        value_rotation=_rotation(
            graph, shape, shape.value_type, attention.head_size_v if attention else 0, largest=False
        ),
        narrowed={},
    )


def _rotation(graph: Graph, shape: Shape, type_: str, head: int, *, largest: bool) -> int | None:
    """The matrix that rotates heads before they are quantised; none for 16- and 32-bit caches.

    largest: of the largest power of two that divides the head (keys), else of 64 (values).
    """
    if not shape.rotated or type_ in ("f16", "f32", "bf16") or not head or head % 64:
        return None
    size = 64
    while largest and head % (2 * size) == 0:
        size *= 2
    return graph.input(_F32 * size * size)


def _mix(
    layer: Layer, before: Callable[[], int], inputs: Inputs, chain: Chain, index: int
) -> Callable[[], tuple[int, int]]:
    """A layer's mixers; what is left gives their sum and what came in. before: gives what comes in."""
    if not layer.spec.mixers:
        return partial(_normed, layer, before)
    early = [m for m in layer.spec.mixers if isinstance(m, State) and m.kind in recurrent.EARLY]
    if early and not isinstance(layer.spec.mixers[0], Attention):
        looked_up = recurrent.convolution(layer, early[0])
        hidden = before()
        return partial(_sum, layer, [_recurrent(layer, early[0], hidden, looked_up)], hidden)
    hidden = before()
    source = layer.norm(hidden, "attn_norm.weight", inplace=False)
    rests: list[Rest] = []
    for mixer in layer.spec.mixers:
        if isinstance(mixer, Attention):
            rests.append(attention.attend(layer, mixer, source, chain.shared[index]))
        elif isinstance(mixer, Mla):
            rests.append(attention.latent(layer, mixer, source))
        elif isinstance(mixer, State) and mixer.kind == "gated_delta":
            rests.append(recurrent.delta_net(layer, mixer, source))
        elif isinstance(mixer, State):
            rests.append(_recurrent(layer, mixer, hidden, recurrent.convolution(layer, mixer)))
    return partial(_sum, layer, rests, hidden)


def _recurrent(layer: Layer, mixer: State, hidden: int, looked_up: int) -> Rest:
    source = layer.norm(hidden, "attn_norm.weight", inplace=False)
    if mixer.kind == "short_conv":
        return recurrent.short_convolution(layer, mixer, source, looked_up)
    return recurrent.mamba2(layer, mixer, source, looked_up)


def _normed(layer: Layer, before: Callable[[], int]) -> tuple[int, int]:
    """What a layer without any mixer hands to its feed-forward block: nothing asks for it earlier."""
    hidden = before()
    return layer.norm(hidden, "attn_norm.weight", inplace=False), hidden


def _sum(layer: Layer, rests: Sequence[Callable[[], int]], hidden: int) -> tuple[int, int]:
    mixed = rests[0]()
    for rest in rests[1:]:
        found = rest()
        mixed = layer.op(layer.graph.sizes[found], mixed, found, inplace=True)
    return mixed, hidden


def _end(layer: Layer, close: Callable[[], tuple[int, int]], rows: int | None, inputs: Inputs) -> Rest:
    """The rest of a layer: residual and feed-forward. rows: the outputs that the last layer keeps.

    Experts go into the graph at once, everything else only when the next layer asks for it.
    """
    if any(isinstance(mlp, Moe) for mlp in layer.spec.mlps):
        return _close_block(layer, close, rows, inputs)
    return partial(_whole, layer, close, rows, inputs)


def _whole(layer: Layer, close: Callable[[], tuple[int, int]], rows: int | None, inputs: Inputs) -> int:
    return _close_block(layer, close, rows, inputs)()


def _close_block(layer: Layer, close: Callable[[], tuple[int, int]], rows: int | None, inputs: Inputs) -> Rest:
    graph, shape = layer.graph, layer.shape
    mixed, residual = close()
    # Where attention and a recurrent part stand side by side, rows are picked after their sum.
    beside = len(layer.spec.mixers) > 1
    if rows is not None and not beside:
        size = _F32 * rows * shape.hidden
        mixed = layer.op(size, mixed, inputs.output_rows)
        residual = layer.op(size, residual, inputs.output_rows)
    if layer.weights.has("ffn_norm.weight") and layer.weights.has("post_attention_norm.weight"):
        mixed = layer.norm(mixed, "post_attention_norm.weight", rows=rows)
    if not layer.spec.mixers:
        return _feed_forward(layer, mixed, residual, rows)
    # What a delta net gives is a view, which nothing takes the place of: what came in is overwritten instead.
    viewed = rows is None and any(isinstance(m, State) and m.kind == "gated_delta" for m in layer.spec.mixers)
    both = (residual, mixed) if viewed or shape.arch in _ONTO_INPUT else (mixed, residual)
    joined = layer.op(graph.sizes[mixed], *both, inplace=True)
    if rows is not None and beside:
        joined = layer.op(_F32 * rows * shape.hidden, joined, inputs.output_rows)
    if not layer.spec.mlps:
        return partial(_same, joined)
    name = "ffn_norm.weight" if layer.weights.has("ffn_norm.weight") else "post_attention_norm.weight"
    return _feed_forward(layer, layer.norm(joined, name, inplace=False, rows=rows), joined, rows)


def _feed_forward(layer: Layer, source: int, residual: int, rows: int | None) -> Rest:
    graph = layer.graph
    parts = layer.spec.mlps
    if not parts:
        return partial(_same, residual)
    out: int | None = None
    for mlp in parts[:-1]:
        part = _part(layer, mlp, source, rows)()
        out = part if out is None else layer.op(graph.sizes[part], out, part, inplace=True)
        source = layer.norm(residual, "ffn_norm.weight", inplace=False, rows=rows)
    return partial(_close_feed_forward, layer, out, _part(layer, parts[-1], source, rows), residual, rows)


def _part(layer: Layer, mlp: Mlp | Moe, source: int, rows: int | None) -> Rest:
    if isinstance(mlp, Mlp):
        return partial(_same, feedforward.dense(layer, mlp, source, rows))
    return feedforward.experts(layer, mlp, source, rows)


def _close_feed_forward(layer: Layer, out: int | None, last: Rest, residual: int, rows: int | None) -> int:
    graph = layer.graph
    part = last()
    out = part if out is None else layer.op(graph.sizes[part], out, part, inplace=True)
    if layer.weights.has("post_ffw_norm.weight"):
        out = layer.norm(out, "post_ffw_norm.weight", rows=rows)
    both = (residual, out) if layer.shape.arch in _ONTO_SUM else (out, residual)
    return layer.op(graph.sizes[out], *both, inplace=True)


def _project(layer: Layer, first: int, looked_up: int, chain: Chain) -> int:
    """Gemma's per-layer inputs of all layers at once."""
    graph = layer.graph
    size = graph.sizes[looked_up]
    projected = graph.weighted(size, chain.projection, first)
    projected = layer.op(size, projected, inplace=True)
    projected = layer.op(size, projected)
    projected = layer.op(size, projected, inplace=True)
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
        hidden = graph.op(_F32 * shape.outputs * shape.hidden, hidden, inputs.output_rows, on=on)
    normed = graph.op(graph.sizes[hidden], hidden, inplace=True, on=on)
    big = shape.outputs >= 32
    normed = graph.weighted(graph.sizes[normed], (0, chain.output_norm), normed, inplace=True, big=big or rows is None)
    if rows is None and shape.arch not in _ROWS_BEFORE_NORM:
        normed = graph.op(_F32 * shape.outputs * shape.hidden, normed, inputs.output_rows, on=on)
    graph.output(normed)
    graph.output(graph.weighted(_F32 * shape.outputs * shape.vocabulary, chain.output, normed, big=big))
