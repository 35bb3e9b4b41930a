"""MiniMax-01's layers: lightning attention, whose state decays, seven times to one of softmax attention; and experts.

Source: models/minimax-01.cpp of llama.cpp 0.5.0-dev (October 2026). A part adds to its own normed input, scaled.
"""

from __future__ import annotations

from functools import partial

from kvplanner.engine.llamacpp.compute import attention, feedforward, recurrent
from kvplanner.engine.llamacpp.compute.graph import Graph
from kvplanner.engine.llamacpp.compute.layers import F32, DecayInputs, Layer, Rest, Shape
from kvplanner.model.spec import Attention, Moe, State


def inputs_of(graph: Graph, shape: Shape, heads: int) -> DecayInputs:
    """Decays of a micro-batch; pairs are of the tokens of one sequence each."""
    size = F32 * heads * shape.tokens
    return DecayInputs(
        graph.input(F32 * heads), graph.input(size), graph.input(size),
        graph.input(size * (shape.tokens // shape.slots)),
    )  # fmt: skip


def build(layer: Layer, before: Rest, rows: int | None) -> Rest:
    """One layer. rows: outputs of the last. States are looked up before the layer before is done."""
    (mixer,) = layer.spec.mixers
    state: int | None = None
    if isinstance(mixer, State):
        state = recurrent.states(layer, mixer.heads * mixer.head_size * mixer.head_size)
    source = layer.norm(before(), "attn_norm.weight", inplace=False)
    if isinstance(mixer, State) and state is not None:
        mixed = _attend(layer, mixer, source, state)()
    else:
        assert isinstance(mixer, Attention)
        mixed = attention.attend(layer, mixer, source)()
    if rows is not None:
        mixed, source = layer.pick(mixed, rows), layer.pick(source, rows)
    joined = _onto(layer, mixed, source)
    normed = layer.norm(joined, "ffn_norm.weight", rows=rows)
    moe = next(mlp for mlp in layer.spec.mlps if isinstance(mlp, Moe))
    return partial(_close, layer, feedforward.experts(layer, moe, normed, rows), normed)


def _close(layer: Layer, experts: Rest, normed: int) -> int:
    return _onto(layer, experts(), normed)


def _onto(layer: Layer, found: int, source: int) -> int:
    """A part's result, added to the scaled input of it."""
    size = layer.graph.sizes[found]
    return layer.op(size, found, layer.op(size, source, inplace=True), inplace=True)


def _attend(layer: Layer, mixer: State, source: int, state: int) -> Rest:
    """Lightning attention: within the micro-batch by pairs of tokens, and on the state of what came before."""
    graph, decays = layer.graph, layer.inputs.decays
    assert decays is not None
    wide = mixer.heads * mixer.head_size
    size, pairs = layer.row * wide, graph.sizes[decays.pairs]
    joined = layer.matmul("attn_qkv.weight", 3 * wide, source)
    joined = layer.op(graph.sizes[joined], joined, inplace=True)
    part = graph.view(joined, graph.sizes[joined])
    earlier = layer.op(size, state, layer.op(size, part, _faded(layer, decays.queries)))
    values = layer.op(size, part)
    scores = layer.op(pairs, part, part)
    scores = layer.op(pairs, scores, _faded(layer, decays.pairs), inplace=True)
    found = graph.expand(layer.op(size, earlier, layer.op(size, values, scores), inplace=True))
    slopes = layer.op(graph.sizes[decays.slopes], _faded(layer, decays.slopes), inplace=True)
    kept = layer.op(graph.sizes[state], state, slopes, inplace=True)
    keys = layer.op(size, layer.op(size, part, _faded(layer, decays.keys)))
    added = layer.op(graph.sizes[state], keys, values)
    kept = layer.op(graph.sizes[state], kept, added, inplace=True)
    graph.op(0, kept, on=layer.cache, stored=True)
    return partial(_gate, layer, found, source, wide)


def _faded(layer: Layer, decay: int) -> int:
    """A decay scaled by the layer's own rate, as a factor."""
    size = layer.graph.sizes[decay]
    return layer.op(size, layer.op(size, decay), inplace=True)


def _gate(layer: Layer, found: int, source: int, wide: int) -> int:
    size = layer.row * wide
    gate = layer.matmul("attn_gate.weight", wide, source)
    gate = layer.op(size, gate, inplace=True)
    normed = layer.norm(layer.op(size, found), "attn_norm_2.weight")
    return layer.matmul("attn_output.weight", layer.shape.hidden, layer.op(size, gate, normed, inplace=True))
