"""Decoders that mix kinds of attention: LFM2, MiniMax-Text-01 and M1, MiniMax-M3, MiMo-V2.

Sources: configuration and modelling classes of transformers 5.24 and of the repositories; element counts.
"""

from __future__ import annotations

from typing import Final

from kvplanner.model.config.fields import Fields, need_divides, need_length
from kvplanner.model.config.moe import MIXTRAL, Experts
from kvplanner.model.config.mtp import one_layer
from kvplanner.model.config.patterns import DENSE, FULL, LINEAR, SPARSE, after_first, listed
from kvplanner.model.config.reading import Body, Draft, Heads, MixerPart, MlpPart, Reader, Reading, body, stack
from kvplanner.model.families.latent import dense_mlp, layer_norms
from kvplanner.model.spec import Attention, Indexer, Mlp, State
from kvplanner.model.towers.more import minimax_m3 as minimax_tower
from kvplanner.model.towers.vision import with_towers
from kvplanner.units import round_up

_CONV: Final = "conv"
_W_NAMES: Final = ("w1", "w3", "w2")


def _lfm2(reading: Reading) -> Draft:
    """LFM2: short convolutions beside full attention; LFM2-MoE: experts after the first layers."""
    text = reading.text
    moe = reading.architecture.startswith("Lfm2Moe")
    bias = text.flag("conv_bias", default=False)
    text.skip("conv_dim", "conv_dim_out", "num_heads", "block_dim")
    text.expect("block_use_swiglu", True)
    hidden = text.need("hidden_size", "block_dim", high=1 << 24)
    vocab, layers = reading.vocab(), reading.layer_count()
    heads = reading.heads(hidden)
    kinds = _lfm2_kinds(text, layers)
    kernel = text.get("conv_L_cache", default=3, high=256)
    width = _lfm2_width(text, moe)
    experts = Experts(path="feed_forward", names=_W_NAMES, correction="expert_bias",
                      correction_if=("use_expert_bias", False))  # fmt: skip
    norms = reading.parts.norm("operator_norm", hidden) + reading.parts.norm("ffn_norm", hidden)

    def make(key: tuple[str, str]) -> Body:
        parts = reading.parts
        if key[0] == _CONV:
            groups = parts.linear("conv.in_proj", "state", 3 * hidden, hidden, "column", bias=bias)
            groups.append(parts.tensor("conv.conv", "state", (hidden, 1, kernel), "column"))
            if bias:
                groups.append(parts.tensor("conv.conv.bias", "state", (hidden,), "column"))
            groups += parts.linear("conv.out_proj", "state", hidden, hidden, "row", bias=bias)
            mixer = MixerPart(State("short_conv", kernel, channels=hidden), groups)
        else:
            mixer = _lfm2_attention(reading, hidden, heads)
        if key[1] == SPARSE:
            return body(mixer, experts(reading, hidden), norms)
        return body(mixer, MlpPart(Mlp(width), parts.mlp("feed_forward", hidden, width, names=_W_NAMES)), norms)

    mlps = after_first(2, "num_dense_layers")(text, layers) if moe else (DENSE,) * layers
    bodies, body_of = stack(zip(kinds, mlps, strict=True), make)
    tied = reading.tied(True)
    outside = reading.vocabulary(vocab, hidden, tied, norm="model.embedding_norm")
    return Draft(hidden, vocab, bodies, body_of, outside, tied)


def _lfm2_attention(reading: Reading, hidden: int, heads: Heads) -> MixerPart:
    n, kv, size = heads
    groups = reading.parts.qkv("self_attn", hidden, *heads)
    groups += reading.parts.linear("self_attn.out_proj", "attention", hidden, n * size, "row", unit=size)
    for name in ("q_layernorm", "k_layernorm"):
        groups += reading.parts.norm(f"self_attn.{name}", size)
    return MixerPart(Attention(n, kv, size, size), groups)


def _lfm2_kinds(text: Fields, layers: int) -> tuple[str, ...]:
    """`layer_types`, or full attention at `full_attn_idxs`."""
    given, at = listed(text, layers, FULL, _CONV), text.ints("full_attn_idxs", high=layers - 1)
    if given is not None:
        return given
    if at is None:
        raise text.missing("layer_types", "full_attn_idxs")
    return tuple(FULL if i in at else _CONV for i in range(layers))


def _lfm2_width(text: Fields, moe: bool) -> int:
    """The stated width, or two thirds of it rounded up when `block_auto_adjust_ff_dim` says so."""
    stated = text.need("block_ff_dim", "intermediate_size", low=2)
    step = text.get("block_multiple_of", default=256, high=1 << 20)
    factor = text.number("block_ffn_dim_multiplier")
    if moe or not text.flag("block_auto_adjust_ff_dim", default=True):
        return stated
    width = int(2 * stated / 3)
    return round_up(int(width * (factor if factor is not None and 0 < factor < 1024 else 1.0)), step)


def _minimax_m1(reading: Reading) -> Draft:
    """MiniMax-Text-01 and M1: lightning attention, full attention where `attn_type_list` holds a one."""
    text = reading.text
    text.skip("postnorm", "rotary_dim", "sliding_window", "shared_moe_mode", "block_size")
    text.expect("shared_intermediate_size", 0)
    for name in list(text.values):
        if str(name).startswith("layernorm_"):
            text.skip(str(name))
    hidden, vocab, layers = reading.hidden(), reading.vocab(), reading.layer_count()
    heads = reading.heads(hidden)
    types = _lightning(text, layers)
    n, kv, size = heads
    wide = n * size
    experts = Experts(("num_local_experts",), width=("intermediate_size",), path="block_sparse_moe", names=MIXTRAL)
    parts, norms = reading.parts, layer_norms(reading, hidden)

    def make(full: int) -> Body:
        if full:
            groups = parts.qkv("self_attn", hidden, *heads)
            groups += parts.linear("self_attn.o_proj", "attention", hidden, wide, "row", unit=size)
            return body(MixerPart(Attention(n, kv, size, size), groups), experts(reading, hidden), norms)
        groups = parts.linear("self_attn.qkv_proj", "state", 3 * wide, hidden, "column", unit=size)
        groups += parts.linear("self_attn.output_gate", "state", wide, hidden, "column", unit=size)
        groups += parts.linear("self_attn.out_proj", "state", hidden, wide, "row", unit=size)
        groups += parts.norm("self_attn.norm", wide, shard="column")
        state = State("lightning", heads=n, head_size=size, key_heads=n, key_size=size)
        return body(MixerPart(state, groups), experts(reading, hidden), norms)

    bodies, body_of = stack(types, make)
    tied = reading.tied(False)
    return Draft(hidden, vocab, bodies, body_of, reading.vocabulary(vocab, hidden, tied), tied)


def _lightning(text: Fields, layers: int) -> tuple[int, ...]:
    """1 for full attention, 0 for lightning: `attn_type_list`, or `layer_types` of converted files."""
    types, named = text.ints("attn_type_list", high=1), listed(text, layers, FULL, LINEAR)
    if types is None and named is None:
        raise text.missing("attn_type_list", "layer_types")
    if types is None:
        return tuple(int(kind == FULL) for kind in named or ())
    need_length(text, "attn_type_list", types, layers)
    return types


def _minimax_m3(reading: Reading) -> Draft:
    """MiniMax-M3: block-sparse attention with an index cache, experts after the first layers.

    `intermediate_size` is the experts' width here, `dense_intermediate_size` that of the dense layers.
    """
    text = reading.text
    text.skip("num_mtp_modules", "num_nextn_predict_layers", "rotary_dim", "moe_intermediate_size")
    text.expect("attention_output_gate", False)
    text.expect("use_qk_norm", True)
    text.expect("qk_norm_type", "per_head")
    hidden, vocab, layers = reading.hidden(), reading.vocab(), reading.layer_count()
    heads = reading.heads(hidden)
    index, sparse = _minimax_index(text, layers)
    mlps = after_first()(text, layers)
    experts = Experts(("num_local_experts",), width=("intermediate_size",), path="block_sparse_moe", names=MIXTRAL,
                      shared_width=("shared_intermediate_size",), correction="e_score_correction_bias",
                      correction_if=("use_routing_bias", True), ignore=("n_shared_experts",))  # fmt: skip
    norms = layer_norms(reading, hidden)

    def make(key: tuple[bool, str]) -> Body:
        mixer = _m3_attention(reading, hidden, heads, index if key[0] else None)
        if key[1] == SPARSE:
            return body(mixer, experts(reading, hidden), norms)
        return body(mixer, dense_mlp(reading, hidden, "dense_intermediate_size"), norms)

    bodies, body_of = stack(zip(sparse, mlps, strict=True), make)
    tied = reading.tied(False)
    return Draft(hidden, vocab, bodies, body_of, reading.vocabulary(vocab, hidden, tied), tied)


def _minimax_index(text: Fields, layers: int) -> tuple[Indexer | None, tuple[bool, ...]]:
    """`sparse_attention_config`: the selector, and which layers are block-sparse."""
    config = text.sub("sparse_attention_config")
    if config is None:
        raise text.missing("sparse_attention_config")
    on = config.flag("use_sparse_attention", default=True)
    flags = config.ints("sparse_attention_freq", high=1)
    if flags is None:
        raise config.missing("sparse_attention_freq")
    need_length(config, "sparse_attention_freq", flags, layers)
    block, top = config.need("sparse_block_size", high=1 << 16), config.need("sparse_topk_blocks", high=1 << 16)
    heads, size = config.need("sparse_num_index_heads", high=1 << 12), config.need("sparse_index_dim", high=1 << 12)
    config.skip("sparse_disable_index_value", "sparse_init_block", "sparse_local_block")
    config.close()
    return Indexer(heads, size, block * top), tuple(bool(flag) and on for flag in flags)


def _m3_attention(reading: Reading, hidden: int, heads: Heads, index: Indexer | None) -> MixerPart:
    parts, (n, kv, size) = reading.parts, heads
    groups = parts.qkv("self_attn", hidden, *heads)
    groups += parts.linear("self_attn.o_proj", "attention", hidden, n * size, "row", unit=size)
    groups += parts.norm("self_attn.q_norm", size) + parts.norm("self_attn.k_norm", size)
    if index is not None:
        groups += parts.linear("self_attn.index_q_proj", "attention", index.heads * index.head_size, hidden)
        groups += parts.linear("self_attn.index_k_proj", "attention", index.head_size, hidden)
        for name in ("index_q_norm", "index_k_norm"):
            groups += parts.norm(f"self_attn.{name}", index.head_size)
    return MixerPart(Attention(n, kv, size, size, indexer=index), groups)


def _mimo_v2(reading: Reading) -> Draft:
    """MiMo-V2: windowed layers have their own sizes and sinks; values are narrower than keys."""
    text = reading.text
    text.skip("attention_chunk_size", "n_group", "topk_group", "sliding_window_size")
    text.expect("attention_bias", False)
    hidden, vocab, layers = reading.hidden(), reading.vocab(), reading.layer_count()
    pattern = text.ints("hybrid_layer_pattern", high=1)
    if pattern is None:
        raise text.missing("hybrid_layer_pattern")
    need_length(text, "hybrid_layer_pattern", pattern, layers)
    experts = Experts(
        ("n_routed_experts",), shared_count=("n_shared_experts",), correction="gate.e_score_correction_bias"
    )
    norms = layer_norms(reading, hidden)

    def make(key: tuple[int, str]) -> Body:
        mixer = _mimo_attention(reading, hidden, bool(key[0]))
        return body(mixer, experts(reading, hidden) if key[1] == SPARSE else dense_mlp(reading, hidden), norms)

    mlps = after_first()(text, layers)
    bodies, body_of = stack(zip(pattern, mlps, strict=True), make)
    tied = reading.tied(False)
    draft = Draft(hidden, vocab, bodies, body_of, reading.vocabulary(vocab, hidden, tied), tied)
    # The public file holds three dense, windowed blocks; its config does not say so.
    mtp = one_layer("num_nextn_predict_layers", default=3)(reading, make((1, DENSE)), hidden, vocab)
    return draft._replace(mtp=mtp)


def _mimo_attention(reading: Reading, hidden: int, windowed: bool) -> MixerPart:
    text, parts = reading.text, reading.parts
    pre = "swa_" if windowed else ""
    n = text.need(f"{pre}num_attention_heads", high=1 << 16)
    kv = text.need(f"{pre}num_key_value_heads", high=1 << 16)
    need_divides(text, f"{pre}num_key_value_heads", kv, f"{pre}num_attention_heads", n)
    size, v = text.need(f"{pre}head_dim", high=1 << 16), text.need(f"{pre}v_head_dim", high=1 << 16)
    text.skip("swa_num_attention_heads", "swa_num_key_value_heads", "swa_head_dim", "swa_v_head_dim")
    flag, default = ("add_swa_attention_sink_bias", True) if windowed else ("add_full_attention_sink_bias", False)
    sinks = text.flag(flag, default=default)
    groups = parts.qkv("self_attn", hidden, n, kv, size, head_size_v=v)
    groups += parts.linear("self_attn.o_proj", "attention", hidden, n * v, "row", unit=v)
    if sinks:
        groups.append(parts.tensor("self_attn.attention_sink_bias", "attention", (n,), "column"))
    window = text.need("sliding_window") if windowed else None
    return MixerPart(Attention(n, kv, size, v, window=window, sinks=sinks), groups)


READERS: Final[dict[str, Reader]] = {
    "Lfm2ForCausalLM": _lfm2,
    "Lfm2MoeForCausalLM": _lfm2,
    **dict.fromkeys(("MiniMaxM1ForCausalLM", "MiniMaxText01ForCausalLM"), _minimax_m1),
    "MiniMaxM3ForCausalLM": _minimax_m3,
    "MiniMaxM3SparseForConditionalGeneration": with_towers(_minimax_m3, minimax_tower),
    "MiMoV2FlashForCausalLM": _mimo_v2,
}
