"""Dense decoders with grouped-query attention that differ in a few traits only.

Traits: configuration and modelling classes of transformers 5.24 and the repositories' own code, each confirmed
by element counts of the catalogue's models.
"""

from __future__ import annotations

from typing import Final

from kvplanner.model.config.decoder import Decoder
from kvplanner.model.config.mtp import one_layer
from kvplanner.model.config.patterns import (
    alternating,
    every,
    lettered,
    mistral_window,
    optional_window,
    window_everywhere,
)
from kvplanner.model.config.reading import Draft, Reader, Reading

FOUR_NORMS: Final = (
    "input_layernorm",
    "post_attention_layernorm",
    "pre_feedforward_layernorm",
    "post_feedforward_layernorm",
)
_POST_NORMS: Final = ("post_attention_layernorm", "post_feedforward_layernorm")
_FUSED_QKV: Final = ("qkv_proj", "qkv_proj", "qkv_proj")
_FUSED_MLP: Final = ("gate_up_proj", "gate_up_proj", "down_proj")


def _half_width(reading: Reading) -> int:
    """Qwen-1 states twice the width of its MLP; its first release called it `ffn_hidden_size`."""
    reading.text.skip("n_inner", "num_key_value_heads")
    return reading.text.need("intermediate_size", "ffn_hidden_size", low=2) // 2


LLAMA: Final = Decoder(mlp_bias=("mlp_bias", False))
MISTRAL: Final = Decoder(qkv_bias=False, o_bias=False, pattern=mistral_window, window=4096)
MINISTRAL3: Final = MISTRAL._replace(pattern=window_everywhere, window=None)
QWEN2: Final = Decoder(qkv_bias=True, o_bias=False, pattern=optional_window, only={"attention_bias": True})
QWEN3: Final = Decoder(qk_norm="head", head_size=128, pattern=optional_window)
GEMMA2: Final = Decoder(
    head_size=256, tied=True, norms=FOUR_NORMS, pattern=alternating, window=4096, ignore=("cache_implementation",)
)
GEMMA3: Final = Decoder(
    heads=8, kv_heads=4, head_size=256, tied=True, qk_norm="head", norms=FOUR_NORMS, pattern=every(6), window=4096,
    vocab=262208,
)  # fmt: skip
PHI3: Final = Decoder(
    qkv_bias=False, o_bias=False, qkv=_FUSED_QKV, mlp_names=_FUSED_MLP, pattern=window_everywhere,
    head_bias=("lm_head_bias", False), only={"attention_bias": False, "mlp_bias": False},
)  # fmt: skip
GLM4: Final = Decoder(o_bias=False, norms=(*FOUR_NORMS[:2], "post_self_attn_layernorm", "post_mlp_layernorm"),
                      mlp_names=_FUSED_MLP)  # fmt: skip
GLM4V: Final = GLM4._replace(qkv_bias=("attention_bias", True))

_QWEN: Final = Decoder(
    qkv_bias=True,
    o_bias=False,
    attention_path="attn",
    qkv=("c_attn", "c_attn", "c_attn"),
    o_name="c_proj",
    mlp_names=("w1", "w2", "c_proj"),
    norms=("ln_1", "ln_2"),
    embed="transformer.wte",
    final_norm="transformer.ln_f",
    hidden_names=("hidden_size", "n_embd"),
    head_names=("num_attention_heads", "n_head"),
    layer_names=("num_hidden_layers", "n_layer"),
    head_size_names=("kv_channels",),
    width=_half_width,
    only={"no_bias": True, "apply_residual_connection_post_layernorm": False},
    ignore=("bias_dropout_fusion",),
)
_CHATGLM: Final = Decoder(
    qkv_bias=("add_qkv_bias", False),
    o_bias=("add_bias_linear", False),
    mlp_bias=("add_bias_linear", False),
    attention_path="self_attention",
    qkv=("query_key_value", "query_key_value", "query_key_value"),
    o_name="dense",
    mlp_names=("dense_h_to_4h", "dense_h_to_4h", "dense_4h_to_h"),
    layer_names=("num_layers",),
    kv_names=("multi_query_group_num",),
    head_size_names=("kv_channels",),
    width_names=("ffn_hidden_size",),
    vocab_names=("padded_vocab_size",),
    embed="transformer.embedding.word_embeddings",
    final_norm="transformer.encoder.final_layernorm",
    head="transformer.output_layer",
    only={
        "multi_query_attention": True,
        "rmsnorm": True,
        "post_layer_norm": True,
        "apply_residual_connection_post_layernorm": False,
    },
    ignore=("apply_query_key_layer_scaling", "bias_dropout_fusion"),
)


def _qwen(reading: Reading) -> Draft:
    """Qwen-1, and Qwen-VL, which has the same architecture and an encoder in `visual`."""
    draft = _QWEN(reading)
    if not reading.text.has("visual"):
        return draft
    from kvplanner.model.families.vision import qwen_vl

    towers, groups = qwen_vl(reading, draft.hidden)
    return draft._replace(towers=tuple(towers), outside=[*draft.outside, *groups])


def _chatglm(reading: Reading) -> Draft:
    """GLM-4 and ChatGLM; GLM-4V has the same architecture and an encoder, which the class of this name lacks."""
    draft = _CHATGLM(reading)
    if not reading.text.has("vision_config"):
        return draft
    from kvplanner.model.families.vision import glm_4v

    towers, groups = glm_4v(reading, draft.hidden)
    wanted = (
        """vLLM's ChatGLMForCausalLM refuses the encoder: --hf-overrides '{"architectures": ["GLM4VForCausalLM"]}'"""
    )
    return draft._replace(towers=tuple(towers), outside=[*draft.outside, *groups], remarks=(wanted,))


# attention/backends/dual_chunk_flash_attn.py is there in 0.9 and 0.10 and no longer in 0.11.
_DUAL_CHUNK: Final = (
    "vLLM has no backend for dual chunk attention since 0.11, and starts this file with --hf-overrides "
    """'{"dual_chunk_attention_config": null}', with plain attention: so it is planned"""
)


def _qwen2(reading: Reading) -> Draft:
    """Qwen2 and 2.5; those for 1M tokens attend in chunks, which changes no tensor and no cache."""
    chunked = reading.text.values.get("dual_chunk_attention_config") is not None
    reading.text.skip("dual_chunk_attention_config")
    draft = QWEN2(reading)
    return draft._replace(remarks=(*draft.remarks, _DUAL_CHUNK)) if chunked else draft


READERS: Final[dict[str, Reader]] = {
    "LlamaForCausalLM": LLAMA,
    "MistralForCausalLM": MISTRAL,
    "Ministral3ForCausalLM": MINISTRAL3,
    "Qwen2ForCausalLM": _qwen2,
    "Qwen3ForCausalLM": QWEN3,
    "ArceeForCausalLM": Decoder(mlp_bias=("mlp_bias", False), matrices=2),
    "SeedOssForCausalLM": Decoder(
        qkv_bias=("attention_bias", True), o_bias=("attention_out_bias", False), mlp_bias=("mlp_bias", False)
    ),
    "SmolLM3ForCausalLM": Decoder(
        mlp_bias=("mlp_bias", False), tied=True, kv_heads=4, pattern=optional_window,
        ignore=("no_rope_layers", "no_rope_layer_interval"),
    ),
    "StableLmForCausalLM": Decoder(
        qkv_bias=("use_qkv_bias", False), o_bias=False, norm_bias=True,
        only={"qk_layernorm": False, "use_parallel_residual": False},
    ),
    "Starcoder2ForCausalLM": Decoder(
        qkv_bias=("use_bias", True), o_bias=("use_bias", True), mlp_bias=("use_bias", True), norm_bias=True, tied=True,
        matrices=2, mlp_names=("", "c_fc", "c_proj"), kv_heads=2, pattern=window_everywhere,
        only={"mlp_type": "default", "norm_type": "layer_norm"},
    ),
    "GraniteForCausalLM": Decoder(mlp_bias=("mlp_bias", False)),
    "Phi3ForCausalLM": PHI3,
    "Olmo2ForCausalLM": Decoder(qk_norm="full", norms=_POST_NORMS),
    "Olmo3ForCausalLM": Decoder(qk_norm="full", norms=_POST_NORMS, pattern=every(4), window=4096),
    "ApertusForCausalLM": Decoder(
        qk_norm="head", norms=("attention_layernorm", "feedforward_layernorm"), matrices=2,
        scalars=("mlp.act_fn.alpha_p", "mlp.act_fn.alpha_n"), mlp_bias=("mlp_bias", False),
        only={"qk_norm": True, "post_norm": False},
    ),
    "Exaone4ForCausalLM": Decoder(qkv_bias=False, o_bias=False, qk_norm="head", norms=_POST_NORMS, pattern=lettered),
    "ExaoneForCausalLM": Decoder(
        qkv_bias=False, o_bias=False, attention_path="attn.attention", o_name="out_proj", layer_names=("num_layers",),
        mlp_names=("c_fc_0", "c_fc_1", "c_proj"), norms=("ln_1", "ln_2"), embed="transformer.wte",
        final_norm="transformer.ln_f",
    ),
    "InternLM3ForCausalLM": Decoder(
        qkv_bias=("qkv_bias", False), o_bias=("bias", False), mlp_bias=("bias", False),
        only={"attention_bias": False, "mlp_bias": False},
    ),
    "InternLM2ForCausalLM": Decoder(
        qkv_bias=("bias", False), o_bias=("bias", False), attention_path="attention", qkv=("wqkv", "wqkv", "wqkv"),
        o_name="wo", mlp_path="feed_forward", mlp_names=("w1", "w3", "w2"), norms=("attention_norm", "ffn_norm"),
        embed="model.tok_embeddings", head="output",
    ),
    "BaichuanForCausalLM": Decoder(qkv_bias=False, o_bias=False, qkv=("W_pack", "W_pack", "W_pack")),
    "HunYuanDenseV1ForCausalLM": Decoder(
        qk_norm="head", q_norm_names=("query_layernorm", "key_layernorm"),
        only={"use_cla": False, "num_experts": 1, "use_qk_norm": True},
        ignore=("cla_share_factor", "attention_head_dim"),
    ),
    "Ernie4_5ForCausalLM": Decoder(
        qkv_bias=("use_bias", False), o_bias=("use_bias", False), mlp_bias=("use_bias", False), tied=True,
        only={"compression_ratio": 1.0},
    ),
    "CohereForCausalLM": Decoder(
        qk_norm="full", qk_norm_if=("use_qk_norm", False), norms=("input_layernorm",), tied=True
    ),
    "Cohere2ForCausalLM": Decoder(
        norms=("input_layernorm",), tied=True, pattern=every(4), window=4096
    ),
    "Glm4ForCausalLM": GLM4,
    "GemmaForCausalLM": Decoder(head_size=256, tied=True),
    "Gemma2ForCausalLM": GEMMA2,
    "Gemma3ForCausalLM": GEMMA3,
    "MiMoForCausalLM": Decoder(
        qkv_bias=("attention_bias", True), o_bias=False, pattern=optional_window,
        mtp=one_layer("num_nextn_predict_layers")
    ),
    "QWenLMHeadModel": _qwen,
    "ChatGLMModel": _chatglm,
    "Phi3SmallForCausalLM": Decoder(
        qkv_bias=True, o_bias=True, mlp_bias=True, norm_bias=True, tied=True,
        qkv=("query_key_value", "query_key_value", "query_key_value"), o_name="dense",
        mlp_names=("up_proj", "up_proj", "down_proj"), width_names=("ff_intermediate_size",),
        final_norm="model.final_layernorm",
        ignore=("blocksparse_block_size", "blocksparse_num_local_blocks", "blocksparse_triton_kernel_block_size",
                "blocksparse_vert_stride", "attention_bias", "blocksparse_homo_head_pattern",
                "dense_attention_every_n_layers"),
    ),
}  # fmt: skip
