"""Feed-forward blocks and experts, in the order of llama.cpp's graph (llama-graph.cpp, October 2026)."""

from __future__ import annotations

from functools import partial
from typing import Final

from kvplanner.engine.llamacpp.compute.layers import F32, Layer, Rest, same
from kvplanner.model.spec import Mlp, Moe
from kvplanner.record import NamedTuple

# Architectures that weigh what experts read rather than what they give.
_WEIGHTED_FIRST: Final = frozenset({"llama4"})
# Those that ask for 32-bit inputs of the experts' last product, which CUDA then refuses (supports_op of ggml-cuda.cu).
_HOST_DOWN: Final = frozenset({"mistral4"})


def displaces(arch: str, *, xielu: bool) -> bool:
    """Whether every layer has an operation that the host does even where all layers are on GPUs."""
    return arch in _HOST_DOWN or (arch == "apertus" and not xielu)


def build(layer: Layer, part: Mlp | Moe, source: int, rows: int | None) -> Rest:
    """A feed-forward part of a layer, and what of it is left to do."""
    if isinstance(part, Moe):
        return experts(layer, part, source, rows)
    return partial(same, dense(layer, part, source, rows))


def dense(layer: Layer, mlp: Mlp, source: int, rows: int | None, suffix: str = "", width: int | None = None) -> int:
    """A dense feed-forward block."""
    inner = width or mlp.width
    size = (layer.row if rows is None else F32 * rows) * inner
    if mlp.matrices == 3 and layer.weights.has(f"ffn_gate{suffix}.weight"):
        gate = _opened(layer, layer.matmul(f"ffn_gate{suffix}.weight", inner, source, rows=rows))
        up = layer.matmul(f"ffn_up{suffix}.weight", inner, source, rows=rows)
        both = layer.op(size, gate, up, inplace=not layer.shape.fused_gates)
    elif mlp.matrices == 3:
        joined = layer.matmul(f"ffn_up{suffix}.weight", 2 * inner, source, rows=rows)
        both = layer.op(size, joined) if layer.shape.fused_gates else _halves(layer, joined, size)
    else:
        up = layer.matmul(f"ffn_up{suffix}.weight", inner, source, rows=rows)
        away = not layer.shape.xielu and layer.shape.arch == "apertus"
        both = layer.op(size, up, inplace=True, on=layer.graph.host if away else None)
    return layer.matmul(f"ffn_down{suffix}.weight", layer.shape.hidden, both, rows=rows)


def _opened(layer: Layer, gate: int) -> int:
    """A gate ready for its product: older builds apply its activation first, in place."""
    return gate if layer.shape.fused_gates else layer.op(layer.graph.sizes[gate], gate, inplace=True)


def _halves(layer: Layer, joined: int, size: int) -> int:
    """Gate and up of one matrix in older builds: both halves are copied out."""
    gate = layer.op(size, layer.op(size, joined), inplace=True)
    return layer.op(size, gate, layer.op(size, joined), inplace=True)


def experts(layer: Layer, moe: Moe, source: int, rows: int | None) -> Rest:
    """Routed experts, which llama.cpp puts into the graph at once, and what is left to do: the shared ones."""
    chosen = route(layer, moe, source, rows)
    if not layer.weights.has("ffn_latent_down.weight"):
        out = spread(layer, moe, source, chosen, rows)
    else:  # the experts of the largest Nemotrons work in a narrower space
        narrow = layer.matmul("ffn_latent_down.weight", moe.hidden or layer.shape.hidden, source, rows=rows)
        narrowed = spread(layer, moe, narrow, chosen, rows)
        out = layer.matmul("ffn_latent_up.weight", layer.shape.hidden, narrowed, rows=rows)
    return partial(_with_shared, layer, moe, source, rows, out)


class Chosen(NamedTuple):
    """Which experts a token goes to, and with what weights."""

    experts: int
    weights: int


def route(layer: Layer, moe: Moe, source: int, rows: int | None) -> Chosen:
    """The experts that each token goes to."""
    graph, shape = layer.graph, layer.shape
    row = layer.row if rows is None else F32 * rows
    used = max(moe.top_k, 1)
    logits = layer.matmul("ffn_gate_inp.weight", moe.experts, source, rows=rows)
    late_softmax = shape.arch == "gpt-oss"
    scores = logits if late_softmax else layer.op(row * moe.experts, logits, inplace=True)
    # Llama 4 chooses by what it has not yet squashed, which therefore stays.
    biased = logits if shape.arch in _WEIGHTED_FIRST else scores
    if layer.weights.has("exp_probs_b.bias"):
        biased = graph.weighted(
            graph.sizes[scores], layer._weight("exp_probs_b.bias"), scores, inplace=True, big=layer.is_big(rows)
        )
    chosen = layer.op(row * moe.experts, biased)
    weights = layer.op(row * used, scores, chosen)
    if late_softmax:
        weights = layer.op(row * used, weights)
    else:
        total = layer.op(row, weights)
        weights = layer.op(row * used, weights, total)
    return Chosen(chosen, graph.expand(weights))


def spread(layer: Layer, moe: Moe, source: int, chosen: Chosen, rows: int | None) -> int:
    """The weighted sum of the chosen experts' results."""
    row = layer.row if rows is None else F32 * rows
    used = max(moe.top_k, 1)
    width = row * used * moe.width
    first = layer.shape.arch in _WEIGHTED_FIRST
    if first:
        source = layer.op(layer.graph.sizes[source] * used, source)
        source = layer.op(layer.graph.sizes[source], source, chosen.weights, inplace=True)
    if layer.weights.has("ffn_gate_up_exps.weight"):
        joined = _routed(layer, "ffn_gate_up_exps", 2 * width, source, chosen.experts, rows)
        both = layer.op(width, joined)
    elif moe.matrices == 3:
        gate = _opened(layer, _routed(layer, "ffn_gate_exps", width, source, chosen.experts, rows))
        up = _routed(layer, "ffn_up_exps", width, source, chosen.experts, rows)
        both = layer.op(width, gate, up, inplace=not layer.shape.fused_gates)
    else:
        up = _routed(layer, "ffn_up_exps", width, source, chosen.experts, rows)
        both = layer.op(width, up, inplace=True)
    hidden = moe.hidden or layer.shape.hidden
    out = _routed(layer, "ffn_down_exps", row * used * hidden, both, chosen.experts, rows)
    if not first:
        out = layer.op(layer.graph.sizes[out], out, chosen.weights, inplace=True)
    # The experts' outputs are views into one tensor, which stays until the last of them is added.
    return layer.graph.expand(layer.op(row * hidden, *[out] * used))


def _with_shared(layer: Layer, moe: Moe, source: int, rows: int | None, routed: int) -> int:
    if not moe.shared_width:
        return routed
    graph = layer.graph
    matrices = 3 if layer.weights.has("ffn_gate_shexp.weight") else 2
    shared = dense(layer, Mlp(moe.shared_width, matrices), source, rows, "_shexp")
    if layer.weights.has("ffn_gate_inp_shexp.weight"):
        opened = layer.matmul("ffn_gate_inp_shexp.weight", 1, source, rows=rows)
        opened = layer.op(graph.sizes[opened], opened, inplace=True)
        shared = layer.op(graph.sizes[shared], shared, opened, inplace=True)
    return layer.op(graph.sizes[routed], routed, shared, inplace=True)


def _routed(layer: Layer, name: str, bytes_: int, source: int, chosen: int, rows: int | None) -> int:
    big = layer.is_big(rows)
    if layer.shape.arch in _HOST_DOWN and name == "ffn_down_exps":
        return layer.graph.displaced(bytes_, layer._weight(f"{name}.weight"), source, chosen)
    out = layer.graph.weighted(bytes_, layer._weight(f"{name}.weight"), source, chosen, big=big)
    if layer.weights.has(f"{name}.bias"):
        out = layer.graph.weighted(bytes_, layer._weight(f"{name}.bias"), out, chosen, inplace=True, big=big)
    return out
