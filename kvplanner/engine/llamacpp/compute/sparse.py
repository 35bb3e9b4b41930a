"""MiniMax-M3's block-sparse attention: each token sees the blocks of cells that an index of keys ranks highest.

Source: models/minimax-m3.cpp of llama.cpp 0.5.0-dev (October 2026), and of pull requests 24908 and 26297 before it. It
needs flash attention and cells that no two sequences share; else the model attends to everything.
"""

from __future__ import annotations

from typing import Final

from kvplanner.engine.llamacpp.compute.graph import Graph
from kvplanner.engine.llamacpp.compute.layers import F16, F32, INT, BlockInputs, Layer, Shape
from kvplanner.model.spec import Attention, Indexer

_BLOCK: Final = 128  # cells of a block (attention.indexer.block_size)
_CHOSEN: Final = 16  # blocks of a token (attention.indexer.top_k)
_POSITIONS: Final = 256  # that a graph without any sequence is reserved for (get_n_pos of llama-kv-cache-msa.cpp)


def is_sparse(shape: Shape, mixer: Attention) -> bool:
    """Whether a layer attends to blocks only."""
    return mixer.indexer is not None and shape.flash and (shape.slots == 1 or shape.streams > 1)


def inputs_of(graph: Graph, shape: Shape) -> BlockInputs:
    """What the graph reads for it: biases of blocks, a mask by position, and maps between positions and cells.

    Where blocks are of cells it reads the biases alone.
    """
    mapped = shape.blocks == "positions"
    return BlockInputs(
        rows=graph.input(8 * shape.tokens if mapped else 0),
        bias=graph.input(F32 * _ranked(shape) // _BLOCK * shape.tokens),
        mask=graph.input(F32 * _POSITIONS * shape.tokens if mapped else 0),
        places=graph.input(INT * _POSITIONS * shape.streams if mapped else 0),
        cells=graph.input(INT * shape.full * shape.streams if mapped else 0),
        widened={},
    )


def _ranked(shape: Shape) -> int:
    """How many cells or positions the blocks cover that are ranked."""
    return _POSITIONS if shape.blocks == "positions" else shape.full


def keep(layer: Layer, indexer: Indexer, source: int) -> None:
    """Stores the index's keys."""
    graph, inputs = layer.graph, layer.inputs
    assert inputs.blocks is not None
    size = layer.row * indexer.head_size
    key = layer.matmul("indexer.k_proj.weight", indexer.head_size, source)
    key = layer.norm(key, "indexer.k_norm.weight", bytes_=size, inplace=False)
    key = layer.op(size, key, inputs.positions, inplace=True)
    rows = inputs.blocks.rows if layer.shape.blocks == "positions" else inputs.key_rows
    graph.op(0, key, rows, on=layer.cache, stored=True)


def masks(layer: Layer, indexer: Indexer, source: int) -> list[int]:
    """A mask for each group of heads of each stream, in 16 bits."""
    graph, shape, inputs = layer.graph, layer.shape, layer.inputs
    blocks = inputs.blocks
    assert blocks is not None
    query_size = layer.row * indexer.heads * indexer.head_size
    query = layer.matmul("indexer.q_proj.weight", indexer.heads * indexer.head_size, source)
    query = layer.norm(query, "indexer.q_norm.weight", bytes_=query_size, inplace=False)
    query = layer.op(query_size, query, inputs.positions, inplace=True)
    return [_mask(layer, indexer, query, graph, shape, blocks) for _ in range(shape.streams)]


def _mask(layer: Layer, indexer: Indexer, query: int, graph: Graph, shape: Shape, blocks: BlockInputs) -> int:
    tokens, heads = shape.tokens // shape.streams, indexer.heads
    mapped = shape.blocks == "positions"
    ranked = _ranked(shape)
    count = ranked // _BLOCK
    keys = graph.cache((F16 if mapped else F32) * indexer.head_size * shape.full, layer.cache)
    if mapped:
        keys = layer.op(F32 * indexer.head_size * ranked, keys, graph.view(blocks.places, INT * ranked))
    viewed = graph.view(query, graph.sizes[query] // shape.streams)
    scores = layer.op(F32 * ranked * heads * tokens, keys, viewed)
    hidden = graph.view(blocks.mask, F32 * ranked * tokens) if mapped else _wide_mask(layer, blocks)
    # What is added in place is a view of the scores.
    pooled = layer.op(F32 * count * heads * tokens, _onto(layer, scores, hidden))
    bias = graph.view(blocks.bias, F32 * count * tokens)
    if shape.blocks == "host":
        turned = layer.op(F16 * count * heads * tokens, pooled, bias, on=graph.host)
    else:
        turned = _chosen(layer, pooled, bias, count, heads, tokens)
    if not mapped:
        spread = layer.op(F16 * tokens * heads * shape.full, graph.view(turned, graph.sizes[turned]))
        mask = layer.inputs.mask
        assert mask is not None
        return _onto(layer, spread, graph.view(mask, F16 * tokens * shape.full))
    turned = layer.op(graph.sizes[turned], turned)
    spread = layer.op(F32 * tokens * heads * shape.full, turned, graph.view(blocks.cells, INT * shape.full))
    spread = layer.op(graph.sizes[spread], spread)
    joined = _onto(layer, spread, _wide_mask(layer, blocks))
    return layer.op(F16 * tokens * heads * shape.full, joined)


def _chosen(layer: Layer, pooled: int, bias: int, count: int, heads: int, tokens: int) -> int:
    """The blocks that each token sees, of those that are ranked."""
    graph = layer.graph
    pooled = layer.op(graph.sizes[pooled], pooled, bias, inplace=True)
    chosen = layer.op(INT * min(_CHOSEN, count) * heads * tokens, pooled)
    zeros = layer.op(graph.sizes[chosen], chosen)
    zeros = layer.op(graph.sizes[zeros], zeros, inplace=True)
    closed = layer.op(F32 * count * tokens, bias)
    closed = layer.op(F16 * count * tokens, closed)
    closed = layer.op(F16 * count * heads * tokens, closed)
    opened = graph.view(layer.op(0, zeros, chosen, graph.view(closed, graph.sizes[closed])), 0)
    return layer.op(graph.sizes[closed], graph.view(closed, graph.sizes[closed]), opened)


def _onto(layer: Layer, target: int, more: int) -> int:
    """An addition in place: a view of what it adds to."""
    return layer.op(layer.graph.sizes[target], target, more, inplace=True)


def _wide_mask(layer: Layer, blocks: BlockInputs) -> int:
    """A view of one stream's mask in 32 bits, which the first layer that needs it makes for all."""
    graph, shape = layer.graph, layer.shape
    mask = layer.inputs.mask
    assert mask is not None
    if not blocks.widened:
        blocks.widened[0] = layer.op(F32 * shape.tokens * shape.full, mask)
    return graph.view(blocks.widened[0], F32 * shape.tokens // shape.streams * shape.full)


def attend(layer: Layer, mixer: Attention, query: int, keys: int, values: int, opened: list[int]) -> int:
    """Flash attention of each stream under its masks; the results of all, one behind the other."""
    graph, shape = layer.graph, layer.shape
    tokens = shape.tokens // shape.streams
    out = F32 * tokens * mixer.heads * mixer.head_size_v
    extra = sum(
        F16 * shape.full * mixer.kv_heads * width
        for type_, width in ((shape.key_type, mixer.head_size), (shape.value_type, mixer.head_size_v))
        if type_ != "f16" and shape.copies_reserved
    )
    found: int | None = None
    for mask in opened:
        viewed = graph.view(query, graph.sizes[query] // shape.streams)
        parts = [graph.view(cached, graph.sizes[cached] // shape.streams) for cached in (keys, values)]
        one = graph.with_extra(layer.op(out, viewed, *parts, mask), extra)
        one = layer.op(out, one)
        found = one if found is None else layer.op(graph.sizes[found] + out, found, one)
    assert found is not None
    return found


def close(layer: Layer, found: int, turn_values: int | None) -> int:
    """The projection after it."""
    if turn_values is not None:
        found = layer.op(layer.graph.sizes[found], turn_values, found)
    return layer.matmul("attn_output.weight", layer.shape.hidden, found)
