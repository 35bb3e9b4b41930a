"""Encoders in the graph: BERT and its kin, EmbeddingGemma. They keep no cache and give no logits.

Attention reads the micro-batch alone: its mask is as wide as it is long, and its keys and values are what the layer has
just made. Source: models/bert.cpp, models/gemma-embedding.cpp, build_attn of llm_graph_input_attn_no_cache and
build_pooling (llama-graph.cpp) of llama.cpp 0.5.0-dev, October 2026.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from kvplanner.engine.llamacpp.compute import feedforward
from kvplanner.engine.llamacpp.compute.graph import Graph
from kvplanner.engine.llamacpp.compute.layers import F16, F32, INT, OFFLOAD_ROWS, Inputs, Layer, Rest, Shape
from kvplanner.model.spec import Attention

# Pooled by the first token; all others by the mean of their tokens.
_BY_FIRST: Final = frozenset({"bert"})


def attend(layer: Layer, mixer: Attention, query: int, key: int, value: int) -> Rest:
    """Attention over the tokens of the micro-batch."""
    graph, shape = layer.graph, layer.shape
    mask = layer.mask(mixer.window is not None)
    out = layer.row * mixer.heads * mixer.head_size_v
    if shape.flash:
        narrow = [
            layer.op(F16 * shape.tokens * mixer.kv_heads * size, source)
            for source, size in ((key, mixer.head_size), (value, mixer.head_size_v))
        ]
        found = layer.op(out, query, *narrow, mask)
    else:
        turned = layer.op(layer.row * mixer.kv_heads * mixer.head_size_v, value)
        scores = layer.op(layer.row * mixer.heads * shape.tokens, key, query)
        scores = layer.op(graph.sizes[scores], scores, mask, inplace=True)
        found = layer.op(out, layer.op(out, turned, scores))
    return partial(_out, layer, graph.expand(found))


def _out(layer: Layer, found: int) -> int:
    return layer.matmul("attn_output.weight", layer.shape.hidden, found)


def build(layer: Layer, before: Rest, rows: int | None) -> Rest:
    """One of BERT's layers: it norms the sum of what came in and what each part gives. rows: outputs of the last."""
    hidden = before()
    mixer = next(m for m in layer.spec.mixers if isinstance(m, Attention))
    query, key, value = _projected(layer, mixer, hidden)
    return partial(_close, layer, attend(layer, mixer, query, key, value), hidden, rows)


def _projected(layer: Layer, mixer: Attention, source: int) -> tuple[int, int, int]:
    """Queries, keys and values: of one product where the file joins them, of which values are a view."""
    widths = mixer.heads * mixer.head_size, mixer.kv_heads * mixer.head_size, mixer.kv_heads * mixer.head_size_v
    turned = layer.shape.arch in ("nomic-bert", "nomic-bert-moe", "jina-bert-v3")
    if layer.weights.has("attn_qkv.weight"):
        joined = layer.matmul("attn_qkv.weight", sum(widths), source)
        parts = [joined, joined, joined]
    else:
        names = ("attn_q.weight", "attn_k.weight", "attn_v.weight")
        parts = [layer.matmul(name, width, source) for name, width in zip(names, widths, strict=True)]
    if turned:
        parts[:2] = [layer.turn(layer.row * width, part) for part, width in zip(parts[:2], widths[:2], strict=True)]
    return parts[0], parts[1], parts[2]


def _close(layer: Layer, attended: Rest, residual: int, rows: int | None) -> int:
    mixed = attended()
    if rows is not None:
        mixed, residual = layer.pick(mixed, rows), layer.pick(residual, rows)
    normed = _norm(layer, "attn_output_norm.weight", mixed, residual)
    out = feedforward.build(layer, layer.spec.mlps[0], normed, rows)()
    return layer.graph.expand(_norm(layer, "layer_output_norm.weight", out, normed))


def _norm(layer: Layer, name: str, out: int, source: int) -> int:
    """The norm of a sum, which is no RMS norm: it takes the place of nothing. It has a weight in every file."""
    graph = layer.graph
    size = graph.sizes[out]
    joined = layer.op(size, out, source, inplace=True)
    normed = layer.op(size, joined, on=layer.device if layer.bound else None)
    return graph.weighted(size, (0, layer.device), normed, inplace=True)


def look_up(graph: Graph, shape: Shape, found: int, inputs: Inputs, *, placed: bool, first: int) -> int:
    """What is added to the embedding before the first layer, and a norm of the sum.

    Types of tokens and positions lie on the host, whose sums the first GPU takes over; the norm lies with the first
    layer. placed: positions are looked up in a table. first: the backend of the first layer.
    """
    size = graph.sizes[found]
    at = graph.op(size, inputs.positions, on=graph.host) if placed else None
    types = F32 * shape.hidden, graph.host
    hidden = graph.weighted(size, types, found, inplace=True, big=shape.tokens >= OFFLOAD_ROWS, last=True)
    if at is not None:
        hidden = graph.op(size, at, hidden, inplace=True)
    return graph.weighted(size, (0, first), graph.op(size, hidden), inplace=True)


def pool(graph: Graph, shape: Shape, hidden: int, on: int | None) -> None:
    """One vector of each sequence, out of its tokens'."""
    graph.output(hidden)
    vectors = F32 * shape.hidden * shape.slots
    if shape.arch in _BY_FIRST:
        graph.output(graph.op(vectors, hidden, graph.input(INT * shape.slots), on=on))
        return
    shares = graph.input(F32 * shape.tokens * shape.slots)
    graph.output(graph.op(vectors, graph.op(graph.sizes[hidden], hidden, on=on), shares, on=on))
