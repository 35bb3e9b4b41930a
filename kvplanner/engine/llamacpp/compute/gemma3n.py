"""Gemma 3n in llama.cpp's graph: four streams of which one is computed, the others predicted and corrected.

Source: models/gemma3n.cpp and llama-graph.cpp of llama.cpp 0.5.0-dev (October 2026).
"""

from __future__ import annotations

from typing import Final

from kvplanner.engine.llamacpp.compute import attention
from kvplanner.engine.llamacpp.compute.graph import Graph
from kvplanner.engine.llamacpp.compute.layers import F32, Layer, Shape
from kvplanner.model.spec import Attention, Mlp

STREAMS: Final = 4  # altup_num_inputs of every published model
_LAUREL: Final = 64  # rank of the learned residual (laurel_rank)
_SPARSE: Final = 10  # layers whose gates keep their largest activations only (n_layer_sparsity)


def spread(graph: Graph, shape: Shape, hidden: int, weight: tuple[int, int], on: int | None) -> int:
    """The embedding as all streams: a projection for each but the first, as large as the embedding."""
    row, size = F32 * shape.tokens, graph.sizes[hidden]
    target = _magnitude(graph, hidden, row, on)
    repeated = graph.op((STREAMS - 1) * size, hidden, on=on)
    added = graph.weighted(graph.sizes[repeated], weight, repeated)
    magnitude = _magnitude(graph, added, (STREAMS - 1) * row, on)
    added = graph.op(graph.sizes[added], added, target, inplace=True, on=on)
    added = graph.op(graph.sizes[added], added, magnitude, inplace=True, on=on)
    return graph.op(STREAMS * size, hidden, added, on=on)


def merge(graph: Graph, shape: Shape, hidden: int, weight: tuple[int, int], on: int | None) -> int:
    """The mean of all streams once the others are projected back."""
    row, size = F32 * shape.tokens, graph.sizes[hidden] // STREAMS
    target = _magnitude(graph, graph.view(hidden, size), row, on)
    back = graph.weighted((STREAMS - 1) * size, weight, graph.view(hidden, (STREAMS - 1) * size))
    magnitude = _magnitude(graph, back, (STREAMS - 1) * row, on)
    back = graph.op(graph.sizes[back], back, target, inplace=True, on=on)
    back = graph.op(graph.sizes[back], back, magnitude, inplace=True, on=on)
    merged = graph.view(hidden, size)
    for _ in range(STREAMS - 1):
        merged = graph.op(size, merged, graph.view(back, size), inplace=True, on=on)
    return graph.op(size, merged, inplace=True, on=on)


def _magnitude(graph: Graph, source: int, bytes_: int, on: int | None) -> int:
    squares = graph.op(graph.sizes[source], source, inplace=True, on=on)
    summed = graph.op(bytes_, squares, on=on)
    return graph.op(bytes_, summed, inplace=True, on=on)


def build(layer: Layer, streams: int, sliced: int, index: int) -> int:
    """One layer: all streams in, all streams out. sliced: the layer's own input, F32 × tokens × its width."""
    graph, size = layer.graph, layer.row * layer.shape.hidden
    predictions = _predict(layer, streams, index)
    active = graph.view(predictions, size)
    source = layer.norm(active, "attn_norm.weight", inplace=False)
    laurel = layer.matmul("laurel_r.weight", layer.shape.hidden, layer.matmul("laurel_l.weight", _LAUREL, source))
    laurel = layer.op(size, layer.norm(laurel, "laurel_post_norm.weight"), source, inplace=True)
    mixer = next(m for m in layer.spec.mixers if isinstance(m, Attention))
    mixed = attention.attend(layer, mixer, source)()
    mixed = layer.norm(mixed, "post_attention_norm.weight")
    mixed = layer.op(size, mixed, active, inplace=True)
    joined = layer.op(size, layer.op(size, mixed, laurel, inplace=True), inplace=True)
    out = _feed_forward(layer, layer.norm(joined, "ffn_norm.weight", inplace=False), sparse=index < _SPARSE)
    out = layer.op(size, out, inplace=True)  # a norm that is bound to no layer
    out = graph.weighted(size, layer._weight("post_ffw_norm.weight"), out, inplace=True)
    out = layer.op(size, out, joined, inplace=True)
    corrected = _correct(layer, predictions, out, index)
    return _with_own_input(layer, corrected, sliced)


def _predict(layer: Layer, streams: int, index: int) -> int:
    graph, row = layer.graph, layer.row
    size, every = row * layer.shape.hidden, graph.sizes[streams]
    modalities = _modalities(layer, graph.view(streams, size), index)
    coefficients = layer.matmul("altup_predict_coef.weight", STREAMS * STREAMS, modalities)
    turned = layer.op(every, graph.view(streams, every))
    predicted = layer.op(every, turned, graph.view(coefficients, graph.sizes[coefficients]))
    predicted = layer.op(every, graph.view(predicted, every))
    return layer.op(every, predicted, streams, inplace=True)


def _modalities(layer: Layer, source: int, index: int) -> int:
    """How far each stream is followed. The two weights are read twice by a layer: one copy of them serves both."""
    graph, size = layer.graph, layer.graph.sizes[source]
    routed = layer.op(size, source, inplace=True, on=layer.device if layer.bound else None)
    name = "altup_router_norm.weight"
    routed = graph.weighted(size, layer._weight(name), routed, inplace=True, shared=f"{index}.{name}")
    routed = layer.op(size, routed, inplace=True)
    name = "altup_router.weight"
    found = graph.weighted(layer.row * STREAMS, layer._weight(name), routed, shared=f"{index}.{name}")
    return layer.op(graph.sizes[found], found, inplace=True)


def _feed_forward(layer: Layer, source: int, *, sparse: bool) -> int:
    mlp = next(mlp for mlp in layer.spec.mlps if isinstance(mlp, Mlp))
    size, row = layer.row * mlp.width, layer.row
    up = layer.matmul("ffn_up.weight", mlp.width, source)
    gate = layer.matmul("ffn_gate.weight", mlp.width, source)
    if sparse:
        mean = layer.op(row, gate)
        spread_ = layer.op(size, gate, mean, inplace=True)
        spread_ = layer.op(size, spread_, inplace=True)
        deviation = layer.op(row, spread_)
        deviation = layer.op(row, layer.op(row, deviation, inplace=True), inplace=True)
        cut = layer.op(row, mean, layer.op(row, deviation, inplace=True), inplace=True)
        gate = layer.op(size, gate, cut, inplace=True)
        gate = layer.op(size, gate, inplace=True)
    gate = layer.op(size, gate, inplace=True)
    return layer.matmul("ffn_down.weight", layer.shape.hidden, layer.op(size, up, gate, inplace=True))


def _correct(layer: Layer, predictions: int, activated: int, index: int) -> int:
    graph, row = layer.graph, layer.row
    size, every = graph.sizes[activated], graph.sizes[predictions]
    modalities = _modalities(layer, activated, index)
    innovation = layer.op(size, activated, graph.view(predictions, size), inplace=True)
    coefficients = layer.matmul("altup_correct_coef.weight", STREAMS, modalities)
    coefficients = layer.op(row * STREAMS, coefficients, inplace=True)
    coefficients = layer.op(row * STREAMS, graph.view(coefficients, row * STREAMS))
    corrected = layer.op(every, layer.op(every, innovation), coefficients, inplace=True)
    return layer.op(every, corrected, predictions, inplace=True)


def _with_own_input(layer: Layer, corrected: int, sliced: int) -> int:
    """All streams but the first take the layer's own input up."""
    graph = layer.graph
    every = graph.sizes[corrected]
    size, rest = every // STREAMS, every - every // STREAMS
    width = graph.sizes[sliced] // layer.row
    first = layer.scaled("altup_correct_scale.weight", graph.view(corrected, size))
    first = layer.matmul("inp_gate.weight", width, first)
    first = layer.op(graph.sizes[first], first, inplace=True)
    first = layer.op(graph.sizes[first], first, sliced, inplace=True)
    first = layer.norm(layer.matmul("proj.weight", layer.shape.hidden, first), "post_norm.weight")
    others = layer.op(rest, graph.view(corrected, rest), first, inplace=True)
    return layer.op(every, graph.view(corrected, size), others)
