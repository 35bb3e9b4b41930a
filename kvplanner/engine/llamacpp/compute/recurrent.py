"""Recurrent layers, in the order of llama.cpp's graph (delta-net-base.cpp and mamba-base.cpp, October 2026)."""

from __future__ import annotations

from functools import partial
from typing import Final

from kvplanner.engine.llamacpp.compute.layers import F32, Layer, Rest
from kvplanner.model.spec import State


def states(layer: Layer, elements: int) -> int:
    """The states of all sequences, looked up in the cache; what others left there is written back.

    Between two operations in the cache the look-up stays where the cache is.
    """
    graph, states = layer.graph, layer.inputs.states
    stored = graph.cache(F32 * elements * layer.shape.slots, layer.cache)
    graph.op(0, stored, on=layer.cache, stored=True)
    found = graph.expand(layer.op(F32 * elements * layer.shape.slots, stored, states))
    others = layer.op(0, stored, layer.inputs.other_states)
    graph.op(0, others, on=layer.cache, stored=True)
    return found


def delta_net(layer: Layer, mixer: State, source: int) -> Rest:
    """Gated delta net (qwen3next, qwen35), fused."""
    graph, shape, row = layer.graph, layer.shape, layer.row
    wide, keys = mixer.heads * mixer.head_size, mixer.key_heads * mixer.key_size
    channels = wide + 2 * keys
    conv = states(layer, max(mixer.conv_kernel - 1, 0) * channels)
    mixed = layer.matmul("attn_qkv.weight", channels, source)
    both = layer.op(row * channels + graph.sizes[conv], conv, mixed)
    graph.op(0, both, on=layer.cache, stored=True)
    state = states(layer, wide * mixer.key_size)
    convolved = graph.weighted(row * channels, layer._weight("ssm_conv1d.weight"), both)
    convolved = layer.op(row * channels, convolved, inplace=True)
    parts: list[int] = []
    for _ in range(2):
        part = layer.op(row * keys, convolved)
        part = layer.op(row * keys, part, inplace=True)
        if mixer.key_heads != mixer.heads and shape.arch == "qwen3next":
            part = layer.op(row * wide, part)
        parts.append(part)
    if layer.weights.has("ssm_ba.weight"):
        both_gates = layer.matmul("ssm_ba.weight", 2 * mixer.heads, source)
        decay = layer.op(row * mixer.heads, both_gates)
        beta_source = both_gates
        decay = _decay(layer, decay)
    else:
        decay = _decay(layer, layer.matmul("ssm_alpha.weight", mixer.heads, source))
        beta_source = layer.matmul("ssm_beta.weight", mixer.heads, source)
    beta = layer.op(row * mixer.heads, beta_source)
    size = row * wide + shape.snapshots * graph.sizes[state]
    result = layer.op(size, *parts, convolved, decay, beta, state)
    graph.op(0, graph.view(result, graph.sizes[state]), on=layer.cache, stored=True)
    return partial(_close_delta, layer, wide, result, source)


def _decay(layer: Layer, decay: int) -> int:
    """How fast states fade."""
    graph = layer.graph
    decay = graph.weighted(graph.sizes[decay], layer._weight("ssm_dt.bias"), decay)
    decay = layer.op(graph.sizes[decay], decay, inplace=True)
    return graph.weighted(graph.sizes[decay], layer._weight("ssm_a"), decay, inplace=True)


def _close_delta(layer: Layer, wide: int, result: int, source: int) -> int:
    graph, shape, row = layer.graph, layer.shape, layer.row
    normed = layer.op(row * wide, result)
    normed = graph.weighted(row * wide, layer._weight("ssm_norm.weight"), normed, inplace=True)
    gate = layer.matmul("attn_gate.weight", wide, source)
    gate = layer.op(row * wide, gate)
    out = layer.op(row * wide, normed, gate, inplace=True)
    return layer.matmul("ssm_out.weight", shape.hidden, out)


def kda(layer: Layer, mixer: State, source: int) -> Rest:
    """Kimi's delta attention: convolutions of queries, keys and values each, and a decay for every channel.

    Ling 3.0 has one matrix for the decay and one for the gate where Kimi Linear has two.
    """
    graph, row = layer.graph, layer.row
    wide = mixer.heads * mixer.head_size
    size = row * wide
    graph.expand(source)
    conv = states(layer, 3 * max(mixer.conv_kernel - 1, 0) * wide)
    # Each third of what is looked up is a view with a row for every sequence.
    third = graph.sizes[conv] // 3
    viewed = graph.sizes[conv] - 2 * third // layer.shape.slots
    parts: list[int] = []
    for name in "qkv":
        product = layer.matmul(f"attn_{name}.weight", wide, source)
        both = layer.op(size + third, graph.view(conv, viewed), product)
        graph.op(0, both, on=layer.cache, stored=True)
        convolved = graph.weighted(size, layer._weight(f"ssm_conv1d_{name}.weight"), both)
        parts.append(layer.op(size, convolved))
    decay = _narrowed(layer, "ssm_f", mixer, source)
    decay = graph.weighted(size, layer._weight("ssm_dt.bias"), decay, inplace=True)
    decay = layer.op(size, decay, inplace=True)
    decay = graph.weighted(size, layer._weight("ssm_a"), decay)
    beta = layer.op(row * mixer.heads, layer.matmul("ssm_beta.weight", mixer.heads, source))
    state = states(layer, wide * mixer.key_size)
    for at in (0, 1):
        normed = layer.op(size, parts[at])
        parts[at] = layer.op(size, normed, inplace=True)
    result = layer.op(size + layer.shape.snapshots * graph.sizes[state], *parts, decay, beta, state)
    graph.op(0, graph.view(result, graph.sizes[state]), on=layer.cache, stored=True)
    return partial(_close_kda, layer, mixer, result, source)


def _narrowed(layer: Layer, name: str, mixer: State, source: int) -> int:
    """A product by way of a narrow one, where the layer has both matrices."""
    wide = mixer.heads * mixer.head_size
    if not layer.weights.has(f"{name}_b.weight"):
        return layer.matmul(f"{name}_a.weight", wide, source)
    return layer.matmul(f"{name}_b.weight", wide, layer.matmul(f"{name}_a.weight", mixer.head_size, source))


def _close_kda(layer: Layer, mixer: State, result: int, source: int) -> int:
    graph = layer.graph
    wide = mixer.heads * mixer.head_size
    size = layer.row * wide
    output = layer.op(size, graph.view(result, size))
    normed = layer.norm(output, "ssm_norm.weight", inplace=False)
    gate = _narrowed(layer, "ssm_g", mixer, source)
    gated = layer.op(size, normed, layer.op(size, gate), inplace=True)
    return layer.matmul("attn_output.weight", layer.shape.hidden, layer.op(size, gated))


# The rank of Mamba's steps is the hidden size by this, rounded up, in every published model.
_RANK_OF: Final = 16
# Kinds whose convolution's last inputs are looked up before the layer's norm.
EARLY: Final = frozenset({"mamba1", "mamba2", "short_conv"})


def convolution(layer: Layer, mixer: State) -> int:
    """The last inputs of a layer's convolution."""
    channels = mixer.channels or _channels(mixer)
    return states(layer, max(mixer.conv_kernel - 1, 0) * channels)


def short_convolution(layer: Layer, mixer: State, source: int, conv: int) -> Rest:
    """A gated short convolution (LFM2)."""
    graph, row = layer.graph, layer.row
    size = row * mixer.channels
    joined = layer.matmul("shortconv.in_proj.weight", 3 * mixer.channels, source)
    # Each third is a view that spans almost the whole product.
    third = graph.sizes[joined] - 2 * F32 * mixer.channels
    gated = layer.op(size, graph.view(joined, third), graph.view(joined, third))
    both = layer.op(size + graph.sizes[conv], conv, gated)
    graph.op(0, both, on=layer.cache, stored=True)
    return partial(_close_short, layer, mixer, graph.view(joined, third), both)


def _close_short(layer: Layer, mixer: State, gate: int, both: int) -> int:
    graph, size = layer.graph, layer.row * mixer.channels
    convolved = graph.weighted(size, layer._weight("shortconv.conv.weight"), both)
    convolved = layer.op(size, gate, convolved, inplace=True)
    out = layer.matmul("shortconv.out_proj.weight", layer.shape.hidden, convolved)
    return graph.view(out, graph.sizes[out])


def mamba1(layer: Layer, mixer: State, source: int, conv: int) -> Rest:
    """A Mamba layer of the first kind (Falcon-Mamba, Jamba)."""
    graph, shape, row = layer.graph, layer.shape, layer.row
    inner, size = mixer.channels, mixer.state_size
    joined = layer.matmul("ssm_in.weight", 2 * inner, source)
    both = layer.op(row * inner + graph.sizes[conv], conv, joined)
    graph.op(0, both, on=layer.cache, stored=True)
    aside = _aside(layer, F32 * inner * size * shape.slots)
    mixed = graph.weighted(row * inner, layer._weight("ssm_conv1d.weight"), both)
    mixed = graph.weighted(row * inner, layer._weight("ssm_conv1d.bias"), mixed, inplace=True)
    mixed = layer.op(row * inner, mixed, inplace=True)
    rank = -(-shape.hidden // _RANK_OF)
    parts = layer.matmul("ssm_x.weight", rank + 2 * size, mixed)
    step = layer.norm(parts, "ssm_dt_norm.weight", bytes_=row * rank, inplace=False)  # else a copy of the same size
    step = graph.weighted(row * inner, layer._weight("ssm_dt.weight"), step)
    step = graph.weighted(row * inner, layer._weight("ssm_dt.bias"), step, inplace=True)
    normed = layer.weights.has("ssm_dt_norm.weight")
    last = graph.sizes[parts] - F32 * (rank + size)  # a view of some columns ends with them in the last row
    inward, outward = (
        layer.norm(parts, name, bytes_=row * size, inplace=False) if normed else graph.view(parts, last)
        for name in ("ssm_b_norm.weight", "ssm_c_norm.weight")
    )
    scanned = _scan(layer, inner, aside, (mixed, step, inward, outward))
    return partial(_close_mamba1, layer, inner, joined, mixed, graph.view(scanned, row * inner))


def _close_mamba1(layer: Layer, inner: int, joined: int, mixed: int, scanned: int) -> int:
    out = _gated(layer, inner, joined, mixed, scanned, first=True)
    out = layer.matmul("ssm_out.weight", layer.shape.hidden, out)
    return layer.graph.view(out, layer.graph.sizes[out])


def mamba2(layer: Layer, mixer: State, source: int, conv: int) -> Rest:
    """A Mamba-2 layer."""
    graph, shape, row = layer.graph, layer.shape, layer.row
    inner, channels = mixer.heads * mixer.head_size, _channels(mixer)
    joined = layer.matmul("ssm_in.weight", inner + channels + mixer.heads, source)
    both = layer.op(row * channels + graph.sizes[conv], conv, joined)
    graph.op(0, both, on=layer.cache, stored=True)
    aside = _aside(layer, F32 * inner * mixer.state_size * shape.slots)
    mixed = graph.weighted(row * channels, layer._weight("ssm_conv1d.weight"), both)
    mixed = graph.weighted(row * channels, layer._weight("ssm_conv1d.bias"), mixed, inplace=True)
    mixed = layer.op(row * channels, mixed, inplace=True)
    step = layer.op(row * mixer.heads, joined)
    step = graph.weighted(row * mixer.heads, layer._weight("ssm_dt.bias"), step, inplace=True)
    # The scan reads three parts of the product, each of which is copied for itself to another backend.
    parts = [graph.view(mixed, row * channels - F32 * (channels - width))
             for width in (inner, mixer.groups * mixer.state_size, mixer.groups * mixer.state_size)]  # fmt: skip
    scanned = _scan(layer, inner, aside, (parts[0], step, *parts[1:]))
    return partial(_close_mamba, layer, inner, joined, mixed, graph.view(scanned, row * inner))


def _aside(layer: Layer, state: int) -> int:
    """All sequences' states, of which one is cleared before anything else of the layer is asked for."""
    aside = layer.graph.cache(state, layer.cache)
    layer.graph.op(0, aside, on=layer.cache, stored=True)
    return aside


def _scan(layer: Layer, inner: int, aside: int, sources: tuple[int, ...]) -> int:
    """A Mamba scan over all sequences' states, which are read twice: once for the scan, once for those left aside.

    The result has one row, so a GPU never takes the scan over from the host.
    """
    graph = layer.graph
    state = graph.sizes[aside]
    stored = graph.cache(state, layer.cache)
    size = layer.row * inner + layer.shape.snapshots * state
    scanned = graph.weighted(size, layer._weight("ssm_a"), stored, *sources, layer.inputs.states, big=False)
    graph.expand(scanned)
    others = layer.op(0, aside, layer.inputs.other_states)
    graph.op(0, others, on=layer.cache, stored=True)
    graph.op(0, graph.view(scanned, state), on=layer.cache, stored=True)
    return scanned


def _close_mamba(layer: Layer, inner: int, joined: int, mixed: int, scanned: int) -> int:
    out = _gated(layer, inner, joined, mixed, scanned, first=False)
    if layer.weights.has("ssm_norm.weight"):
        out = layer.norm(out, "ssm_norm.weight", inplace=False)
    return layer.matmul("ssm_out.weight", layer.shape.hidden, out)


def _gated(layer: Layer, inner: int, joined: int, mixed: int, scanned: int, *, first: bool) -> int:
    """What a scan gave, with what goes past it, behind its gate."""
    graph, shape, row = layer.graph, layer.shape, layer.row
    whole = graph.sizes[joined]
    gate = layer.op(row * inner, graph.view(joined, whole - whole // shape.tokens + F32 * inner))
    # Mamba multiplies what its convolution gave itself, Mamba-2 a view of it.
    direct = graph.weighted(row * inner, layer._weight("ssm_d"), mixed, inplace=first)
    out = layer.op(row * inner, scanned, direct, inplace=True)
    return layer.op(row * inner, gate, out)


def _channels(mixer: State) -> int:
    return mixer.heads * mixer.head_size + 2 * mixer.groups * mixer.state_size
