"""Dense decoders that are Llama, GLM or Gemma but for a few traits of their own.

Sources: the classes of vLLM 0.33 and earlier releases, and of transformers 5.24; a test holds a small config of each
against the element count of its library class, and public files against their published counts.
"""

from __future__ import annotations

from typing import Final

from kvplanner.model.config.decoder import Decoder
from kvplanner.model.config.fields import Fields
from kvplanner.model.config.moe import MIXTRAL, Experts
from kvplanner.model.config.patterns import SLIDING, all_sparse, every, full_first, listed
from kvplanner.model.config.reading import Draft, Reader, Reading
from kvplanner.model.families.dense import FOUR_NORMS, GEMMA2, GLM4, LLAMA

_PLAIN: Final = Decoder(qkv_bias=False, o_bias=False)
_FUSED: Final = ("query_key_value",) * 3
_MPT_FIELDS: Final = (
    "attn_impl", "attn_type", "attn_uses_sequence_id", "alibi", "alibi_bias_max", "prefix_lm", "softmax_scale",
    "clip_qkv", "rope", "rope_theta", "rope_impl", "rope_dail_config", "rope_hf_config",
)  # fmt: skip


def _hyperclovax(reading: Reading) -> Draft:
    """HyperCLOVA X: Llama, with a norm after attention and one after the feed-forward when the config says so."""
    norms: tuple[str, ...] = ("input_layernorm", "post_attention_layernorm")
    if reading.text.flag("use_post_norm", default=True):
        norms = (*norms, "post_norm1", "post_norm2")
    return LLAMA._replace(norms=norms)(reading)


def _minicpm(reading: Reading) -> Draft:
    """MiniCPM 1, 2 and 4: Llama with scaled residuals; the mixture has Mixtral's experts in every layer."""
    text = reading.text
    text.skip("dim_model_base", "sparse_config", "mup_denominator", "use_sparse_attn", "scale_depth")
    reader = _PLAIN._replace(tied=True, only={"attention_bias": False})
    if text.maybe("num_experts", low=0, high=1 << 16):
        experts = Experts(width=("intermediate_size",), names=MIXTRAL)
        return reader._replace(mlp_pattern=all_sparse, experts=experts)(reading)
    return reader(reading)


def _mpt(reading: Reading) -> Draft:
    """MPT: LayerNorms, a two-matrix feed-forward, alibi instead of positions unless the config says otherwise."""
    text, parts = reading.text, reading.parts
    text.skip("attn_config", "init_config", "ffn_config", "embedding_fraction", "expansion_ratio", "fc_type",
              "learned_pos_emb", "norm_type")  # fmt: skip
    bias = not text.flag("no_bias", default=False)
    inner = text.sub("attn_config") or Fields({}, text.where, f"{text.path}attn_config.", text.defaulted)
    inner.skip(*_MPT_FIELDS)
    inner.expect("qk_ln", False)
    hidden, heads = text.need("d_model", high=1 << 24), text.need("n_heads", high=1 << 16)
    kv = inner.maybe("kv_n_heads", high=1 << 16) or heads
    width = hidden * text.get("expansion_ratio", default=4, high=64)
    alibi, rope = inner.flag("alibi", default=True), inner.flag("rope", default=False)
    inner.close()
    draft = Decoder(
        qkv_bias=bias, o_bias=bias, mlp_bias=bias, norm_bias=bias, tied=True, matrices=2, kv_heads=kv,
        hidden_names=("d_model",), head_names=("n_heads",), layer_names=("n_layers",), kv_names=("kv_n_heads",),
        attention_path="attn", qkv=("Wqkv",) * 3, o_name="out_proj", mlp_path="ffn",
        mlp_names=("", "up_proj", "down_proj"), norms=("norm_1", "norm_2"), embed="transformer.wte",
        final_norm="transformer.norm_f", width=lambda _: width,
    )(reading)  # fmt: skip
    if alibi or rope or not text.flag("learned_pos_emb", default=True):
        return draft
    rows = text.need("max_seq_len", high=1 << 24)
    table = parts.at("first").tensor("transformer.wpe", "embedding", (rows, hidden))
    return draft._replace(outside=[*draft.outside, table])


def _one_bias(reading: Reading) -> Draft:
    """openPangu Embedded and the first InternLM: Llama with one switch for all biases of its attention."""
    bias = reading.text.flag("bias", default=False) or reading.text.flag("attention_bias", default=False)
    return LLAMA._replace(qkv_bias=bias, o_bias=bias)(reading)


def _plamo_kinds(fields: Fields, layers: int) -> tuple[str, ...]:
    """PLaMo 3: `layer_types`, or a list of windows with nulls for full layers."""
    given = listed(fields, layers, "full_attention", SLIDING)
    fields.skip("interleaved_sliding_window")
    if given is not None:
        return given
    return every(8, names=("sliding_window_pattern",))(fields, layers)


def _jais(reading: Reading) -> Draft:
    """JAIS: GPT-2 with a gate beside its first matrix, biases everywhere, alibi instead of positions."""
    reading.text.expect("position_embedding_type", "alibi")
    reading.text.expect("activation_function", "swiglu")
    width = reading.text.maybe("n_inner") or 4 * reading.text.need("n_embd", "hidden_size", high=1 << 24)
    reading.text.skip("mup_width_scale", "mup_output_alpha", "mup_scale_qk_dot_by_d")
    return Decoder(
        qkv_bias=True, o_bias=True, mlp_bias=True, norm_bias=True, tied=True, hidden_names=("n_embd", "hidden_size"),
        head_names=("n_head",), layer_names=("n_layer",), attention_path="attn", qkv=("c_attn",) * 3, o_name="c_proj",
        mlp_names=("c_fc2", "c_fc", "c_proj"), norms=("ln_1", "ln_2"), embed="transformer.wte",
        final_norm="transformer.ln_f", width=lambda _: width,
    )(reading)  # fmt: skip


READERS: Final[dict[str, Reader]] = {
    "GlmForCausalLM": GLM4._replace(qkv_bias=("attention_bias", True), head_size=128, norms=FOUR_NORMS[:2]),
    "SolarForCausalLM": LLAMA._replace(ignore=("bskcn_1", "bskcn_2", "bskcn_3", "bskcn_4", "bskcn_tv")),
    "OrionForCausalLM": _PLAIN._replace(norm_bias=True, only={"attention_bias": False}),
    "MiniCPMForCausalLM": _minicpm,
    "MptForCausalLM": _mpt,
    "HyperCLOVAXForCausalLM": _hyperclovax,
    "CwmForCausalLM": LLAMA._replace(head_size=128, kv_heads=8, pattern=full_first(4), window=8192),
    "TeleFLMForCausalLM": LLAMA._replace(ignore=("use_mup", "mup_scale_factor", "output_mult", "input_mult")),
    "TeleChat2ForCausalLM": Decoder(
        qkv_bias=False, o_bias=True, down_bias=True, hidden_names=("hidden_size", "n_embed"), head_names=("n_head",),
        layer_names=("n_layer",), width_names=("ffn_hidden_size",), attention_path="self_attention",
        qkv=("query", "key_value", "key_value"), o_name="dense", embed="transformer.word_embeddings",
        final_norm="transformer.ln_f",
        ignore=("n_inner", "apply_residual_connection_post_layernorm", "bias_dropout_fusion", "skip_bias_add",
                "skip_bias_add_qkv"),
    ),
    "Step1ForCausalLM": LLAMA._replace(tied=True, kv_names=("num_attention_groups", "num_key_value_heads"), kv_heads=1),
    "PanguEmbeddedForCausalLM": _one_bias,
    "InternLMForCausalLM": _one_bias,
    "Plamo3ForCausalLM": _PLAIN._replace(
        qk_norm="head", attention_path="mixer", pattern=_plamo_kinds, window=2048,
        norms=("pre_mixer_norm", "post_mixer_norm", "pre_mlp_norm", "post_mlp_norm"),
    ),
    "GraniteSWAForCausalLM": LLAMA._replace(sinks=True, tied=True, pattern=full_first(4), window=128,
                                            ignore=("layer_rope_theta",)),
    "VaultGemmaForCausalLM": GEMMA2._replace(norms=("input_layernorm", "pre_feedforward_layernorm")),
    "Rnj1ForCausalLM": Decoder(
        heads=8, kv_heads=4, head_size=256, tied=True, qk_norm="head", norms=FOUR_NORMS, pattern=every(6), window=4096,
        vocab=262208,
    ),
    "Jais2ForCausalLM": Decoder(
        qkv_bias=("attention_bias", True), o_bias=("attention_bias", True), mlp_bias=("mlp_bias", True),
        norm_bias=True, matrices=2, head_size=128, only={"hidden_act": "relu2"},
    ),
    "JAISLMHeadModel": _jais,
    "PersimmonForCausalLM": Decoder(
        qkv_bias=True, o_bias=True, mlp_bias=True, norm_bias=True, matrices=2, qk_norm="head",
        qk_norm_if=("qk_layernorm", True), qk_norm_bias=True, q_norm_names=("q_layernorm", "k_layernorm"), qkv=_FUSED,
        o_name="dense", mlp_names=("", "dense_h_to_4h", "dense_4h_to_h"), final_norm="model.final_layernorm",
    ),
}  # fmt: skip
