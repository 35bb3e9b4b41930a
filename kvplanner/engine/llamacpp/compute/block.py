"""One layer in the graph: its mixers, its feed-forward part, and how architectures join the two.

What a layer leaves to do is put into the graph only when the next layer asks for its result, as llama.cpp does: which
operations stand before the next layer's look-ups decides on which device they run. Source: the models' own files and
llama-graph.cpp of llama.cpp 0.5.0-dev (October 2026).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from kvplanner.engine.llamacpp.compute import attention, encoder, feedforward, lightning, recurrent
from kvplanner.engine.llamacpp.compute.layers import F32, Layer, Rest, same
from kvplanner.engine.llamacpp.tensors import BERTS
from kvplanner.model.spec import Attention, Mla, Mlp, Moe, State

# Architectures that add to what came in rather than the other way round, which decides whose memory is taken over: what
# the mixers gave, and what the feed-forward block gave.
_ONTO_INPUT: Final = frozenset({"lfm2", "lfm2moe", "jamba", "openelm"})
_ONTO_SUM: Final = frozenset({"lfm2", "lfm2moe", "jamba", "phi3"})
# Those whose feed-forward block reads what attention reads, so that the two stand side by side; of these, those that
# add attention before what came in.
_PARALLEL: Final = frozenset({"command-r", "cohere2", "cohere2moe", "falcon", "phi2", "gptneox", "plamo"})
_ATTENTION_FIRST: Final = frozenset({"falcon", "phi2"})
# What the feed-forward block gives is added to attention rather than the other way round.
_ONTO_ATTENTION: Final = frozenset({"phi2"})
# Those that norm what a part gives, not what it reads.
_NORMED_AFTER: Final = frozenset({"olmo2", "exaone4"})

_Closed = Callable[[], tuple[int, int]]


def build(layer: Layer, before: Rest, rows: int | None) -> Rest:
    """Puts a layer into the graph; what is left gives its result.

    before: gives what comes in. rows: the outputs that the last layer keeps, None where all tokens go on.
    """
    if layer.shape.arch in _PARALLEL:
        return _parallel(layer, before, rows)
    if layer.shape.arch in BERTS:
        return encoder.build(layer, before, rows)
    if layer.shape.arch == "minimax-01":
        return lightning.build(layer, before, rows)
    close = _mix(layer, before)
    # Experts go into the graph at once, everything else only when the next layer asks for it.
    if any(isinstance(mlp, Moe) for mlp in layer.spec.mlps):
        return _join(layer, close, rows)
    return partial(_whole, layer, close, rows)


def _mix(layer: Layer, before: Rest) -> _Closed:
    """A layer's mixers; what is left gives their sum and what came in."""
    if not layer.spec.mixers:
        return partial(_normed, layer, before)
    early = [m for m in layer.spec.mixers if isinstance(m, State) and m.kind in recurrent.EARLY]
    if early and not isinstance(layer.spec.mixers[0], Attention):
        looked_up = recurrent.convolution(layer, early[0])
        hidden = before()
        return partial(_sum, layer, [_recurrent(layer, early[0], hidden, looked_up)], hidden)
    hidden = before()
    source = hidden if layer.shape.arch in _NORMED_AFTER else layer.norm(hidden, "attn_norm.weight", inplace=False)
    rests: list[Rest] = []
    for mixer in layer.spec.mixers:
        if isinstance(mixer, Attention):
            rests.append(attention.attend(layer, mixer, source))
        elif isinstance(mixer, Mla):
            rests.append(attention.latent(layer, mixer, source))
        elif isinstance(mixer, State) and mixer.kind == "gated_delta":
            rests.append(recurrent.delta_net(layer, mixer, source))
        elif isinstance(mixer, State) and mixer.kind == "kda":
            rests.append(recurrent.kda(layer, mixer, source))
        elif isinstance(mixer, State):
            rests.append(_recurrent(layer, mixer, hidden, recurrent.convolution(layer, mixer)))
    return partial(_sum, layer, rests, hidden)


def _recurrent(layer: Layer, mixer: State, hidden: int, looked_up: int) -> Rest:
    source = layer.norm(hidden, "attn_norm.weight", inplace=False)
    if mixer.kind == "short_conv":
        return recurrent.short_convolution(layer, mixer, source, looked_up)
    if mixer.kind == "mamba1":
        return recurrent.mamba1(layer, mixer, source, looked_up)
    return recurrent.mamba2(layer, mixer, source, looked_up)


def _normed(layer: Layer, before: Rest) -> tuple[int, int]:
    """What a layer without any mixer hands to its feed-forward block: nothing asks for it earlier."""
    hidden = before()
    return layer.norm(hidden, "attn_norm.weight", inplace=False), hidden


def _sum(layer: Layer, rests: Sequence[Rest], hidden: int) -> tuple[int, int]:
    mixed = rests[0]()
    for rest in rests[1:]:
        found = rest()
        mixed = layer.op(layer.graph.sizes[found], mixed, found, inplace=True)
    return mixed, hidden


def _whole(layer: Layer, close: _Closed, rows: int | None) -> int:
    return _join(layer, close, rows)()


def _join(layer: Layer, close: _Closed, rows: int | None) -> Rest:
    """Residual and feed-forward part after the mixers."""
    graph, shape, weights = layer.graph, layer.shape, layer.weights
    mixed, residual = close()
    # Where attention and a recurrent part stand side by side, rows are picked after their sum.
    beside = len(layer.spec.mixers) > 1
    if rows is not None and not beside:
        mixed, residual = layer.pick(mixed, rows), layer.pick(residual, rows)
    normed_after = shape.arch in _NORMED_AFTER
    if weights.has("post_attention_norm.weight") and (normed_after or weights.has("ffn_norm.weight")):
        mixed = layer.norm(mixed, "post_attention_norm.weight", rows=rows)
    if not layer.spec.mixers:
        return _feed_forward(layer, mixed, residual, rows)
    # What a delta net gives is a view, which nothing takes the place of: what came in is overwritten instead.
    viewed = rows is None and any(isinstance(m, State) and m.kind == "gated_delta" for m in layer.spec.mixers)
    both = (residual, mixed) if viewed or shape.arch in _ONTO_INPUT else (mixed, residual)
    joined = layer.op(graph.sizes[mixed], *both, inplace=True)
    if rows is not None and beside:
        joined = layer.pick(joined, rows)
    if not layer.spec.mlps:
        return partial(same, joined)
    if normed_after:
        return _feed_forward(layer, joined, joined, rows)
    if len(layer.spec.mlps) > 1:
        return _two_parts(layer, joined, rows)
    name = "ffn_norm.weight" if weights.has("ffn_norm.weight") else "post_attention_norm.weight"
    return _feed_forward(layer, layer.norm(joined, name, inplace=False, rows=rows), joined, rows)


def _feed_forward(layer: Layer, source: int, residual: int, rows: int | None) -> Rest:
    parts = layer.spec.mlps
    if not parts:
        return partial(same, residual)
    return partial(_close, layer, feedforward.build(layer, parts[0], source, rows), residual, rows)


def _close(layer: Layer, rest: Rest, residual: int, rows: int | None) -> int:
    graph = layer.graph
    out = rest()
    if layer.weights.has("post_ffw_norm.weight"):
        out = layer.norm(out, "post_ffw_norm.weight", rows=rows)
    both = (residual, out) if layer.shape.arch in _ONTO_SUM else (out, residual)
    out = layer.op(graph.sizes[out], *both, inplace=True)
    if layer.weights.has("layer_output_scale.weight") and layer.shape.arch == "gemma4":
        out = graph.weighted(graph.sizes[out], layer.weights.sizes["layer_output_scale.weight"], out, inplace=True)
    return out


def _two_parts(layer: Layer, joined: int, rows: int | None) -> Rest:
    """Gemma 4's dense block beside its experts: the router comes first, then the experts, then the dense block."""
    dense = next(mlp for mlp in layer.spec.mlps if isinstance(mlp, Mlp))
    moe = next(mlp for mlp in layer.spec.mlps if isinstance(mlp, Moe))
    size = layer.graph.sizes[joined]
    routed = layer.op(size, joined)
    routed = layer.op(size, routed, inplace=True)
    routed = layer.scaled("ffn_gate_inp.scale", routed)
    chosen = feedforward.route(layer, moe, routed, rows)
    source = layer.norm(joined, "pre_ffw_norm_2.weight", inplace=False, rows=rows)
    experts = feedforward.spread(layer, moe, source, chosen, rows)
    return partial(_close, layer, partial(_both_parts, layer, dense, joined, experts, rows), joined, rows)


def _both_parts(layer: Layer, dense: Mlp, joined: int, experts: int, rows: int | None) -> int:
    source = layer.norm(joined, "ffn_norm.weight", inplace=False, rows=rows)
    plain = feedforward.dense(layer, dense, source, rows)
    plain = layer.norm(plain, "post_ffw_norm_1.weight", rows=rows)
    experts = layer.norm(experts, "post_ffw_norm_2.weight", rows=rows)
    return layer.op(layer.graph.sizes[plain], plain, experts, inplace=True)


def _parallel(layer: Layer, before: Rest, rows: int | None) -> Rest:
    """Attention and feed-forward block on one normed input."""
    hidden = before()
    source = layer.norm(hidden, "attn_norm.weight", inplace=False)
    mixer = next(m for m in layer.spec.mixers if isinstance(m, Attention))
    return partial(_close_parallel, layer, attention.attend(layer, mixer, source), source, hidden, rows)


def _close_parallel(layer: Layer, attended: Rest, source: int, hidden: int, rows: int | None) -> int:
    if layer.weights.has("ffn_norm.weight"):
        hidden = hidden if rows is None else layer.pick(hidden, rows)
        source = layer.norm(hidden, "ffn_norm.weight", inplace=False, rows=rows)
    elif rows is not None:
        source = layer.pick(source, rows)
    out = feedforward.build(layer, layer.spec.mlps[0], source, rows)()
    others: list[Rest] = [attended, partial(same, hidden)]
    for rest in others if layer.shape.arch in _ATTENTION_FIRST else reversed(others):
        more = rest()
        if rows is not None and layer.graph.sizes[more] != F32 * rows * layer.shape.hidden:
            more = layer.pick(more, rows)
        both = (more, out) if rest is attended and layer.shape.arch in _ONTO_ATTENTION else (out, more)
        out = layer.op(layer.graph.sizes[out], *both, inplace=True)
    return out
