"""Tensor names of GGUF files, for models that are read from checkpoints of the Hub.

Source: tensor_mapping.py and the converters of llama.cpp (October 2026).
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from kvplanner.model.tensors import TensorGroup

# How names of GGUF files themselves begin.
_OWN: Final = ("altup_", "laurel_", "attn_", "ffn_", "ssm_", "shortconv", "time_mix", "channel_mix", "post_", "indexer")
_PLAIN_NAMES: Final = frozenset({"ssm_a", "ssm_d", "ssm_dt", "rope_freqs"})

# The names that checkpoints on the Hub use, for models that are planned without a GGUF file.
_HUB_NAMES: Final[tuple[tuple[str, str], ...]] = (
    # Recurrent and convolutional layers, whose projections have names of their own.
    (r".*(linear_attn|mamba|mixer)\.A_log", "ssm_a"), (r".*(mamba|mixer)\.D", "ssm_d"),
    (r".*(linear_attn|mamba|mixer)\.conv1d", "ssm_conv1d"), (r".*(linear_attn|mamba|mixer)\.out_proj", "ssm_out"),
    (r".*(linear_attn|mamba|mixer)\.norm", "ssm_norm"), (r".*linear_attn\.in_proj_a", "ssm_alpha"),
    (r".*linear_attn\.in_proj_b", "ssm_beta"), (r".*linear_attn\.in_proj_ba", "ssm_ba"),
    (r".*linear_attn\.in_proj_qkvz?", "attn_qkv"), (r".*linear_attn\.in_proj_z", "attn_gate"),
    (r".*(mamba|mixer)\.in_proj", "ssm_in"), (r"conv\.conv", "shortconv.conv"),
    (r"conv\.in_proj", "shortconv.in_proj"), (r"conv\.out_proj", "shortconv.out_proj"),
    # Attention.
    (r".*\.(q_proj|wq|query)", "attn_q"), (r".*\.(k_proj|wk|key)", "attn_k"), (r".*\.(v_proj|wv|value)", "attn_v"),
    (r".*\.(o_proj|wo|out_proj|dense)", "attn_output"), (r".*(qkv_proj|query_key_value|W_pack|c_attn)", "attn_qkv"),
    (r".*q_a_proj", "attn_q_a"), (r".*q_b_proj", "attn_q_b"), (r".*kv_a_proj_with_mqa", "attn_kv_a_mqa"),
    (r".*kv_b_proj", "attn_kv_b"), (r".*q_a_layernorm", "attn_q_a_norm"), (r".*kv_a_layernorm", "attn_kv_a_norm"),
    (r".*(q_norm|q_layernorm)", "attn_q_norm"), (r".*(k_norm|k_layernorm)", "attn_k_norm"), (r".*sinks", "attn_sinks"),
    # Experts, then dense blocks.
    (r".*experts.*gate_up_proj", "ffn_gate_up_exps"), (r".*shared_expert_gate", "ffn_gate_inp_shexp"),
    (r".*shared_expert.*gate_proj", "ffn_gate_shexp"), (r".*shared_expert.*up_proj", "ffn_up_shexp"),
    (r".*shared_expert.*down_proj", "ffn_down_shexp"), (r".*experts.*(gate_proj|w1)", "ffn_gate_exps"),
    (r".*experts.*(up_proj|w3)", "ffn_up_exps"), (r".*experts.*(down_proj|w2)", "ffn_down_exps"),
    (r".*block_sparse_moe\.input_linear", "ffn_gate_up_exps"), (r".*block_sparse_moe\.output_linear", "ffn_down_exps"),
    (r".*shared_mlp\.input_linear", "ffn_up_shexp"), (r".*shared_mlp\.output_linear", "ffn_down_shexp"),
    (r".*(e_score_correction_bias|expert_bias)", "exp_probs_b.bias"),
    (r".*(gate_up_proj)", "ffn_up"), (r".*(gate_proj|feed_forward\.w1)", "ffn_gate"),
    (r".*(up_proj|feed_forward\.w3)", "ffn_up"), (r".*(down_proj|feed_forward\.w2)", "ffn_down"),
    # Gemma 3n's streams.
    (r"altup\.router_norm", "altup_router_norm"), (r"altup\.modality_router", "altup_router"),
    (r"altup\.correct_output_scale", "altup_correct_scale"), (r"altup\.correction_coefs", "altup_correct_coef"),
    (r"altup\.prediction_coefs", "altup_predict_coef"), (r"laurel\.linear_left", "laurel_l"),
    (r"laurel\.linear_right", "laurel_r"), (r"laurel\.post_laurel_norm", "laurel_post_norm"),
    (r".*(mlp\.gate|router|block_sparse_moe\.gate|mixer\.gate|feed_forward\.gate).*", "ffn_gate_inp"),
    # Norms; what stands before the feed-forward block is Gemma's `ffn_norm`, and else the norm after attention.
    (r".*pre_feedforward_layernorm", "ffn_norm"), (r".*pre_feedforward_layernorm_2", "pre_ffw_norm_2"),
    (r".*post_feedforward_layernorm", "post_ffw_norm"), (r".*post_feedforward_layernorm_1", "post_ffw_norm_1"),
    (r".*post_feedforward_layernorm_2", "post_ffw_norm_2"), (r".*post_attention_layernorm", "post_attention_norm"),
    (r".*(input_layernorm|operator_norm)|norm", "attn_norm"),
    # Gemma's inputs of each layer.
    (r"per_layer_input_gate", "inp_gate"), (r"per_layer_projection", "proj"),
    (r"post_per_layer_input_norm", "post_norm"), (r"layer_scalar", "layer_output_scale"),
)  # fmt: skip
# The same outside the layers.
_OUTSIDE_NAMES: Final[tuple[tuple[str, str], ...]] = (
    (r"(.*\.)?(norm|final_layernorm|ln_f|norm_f|embedding_norm)", "output_norm"),
    (r"(.*\.)?embed_tokens_per_layer", "per_layer_token_embd"),
    (r"(.*\.)?per_layer_model_projection", "per_layer_model_proj"),
    (r"(.*\.)?per_layer_projection_norm", "per_layer_proj_norm"),
    (r"(.*\.)?altup_projections", "altup_proj"), (r"(.*\.)?altup_unembed_projections", "altup_unembd_proj"),
)  # fmt: skip


@lru_cache(maxsize=4096)
def gguf_name(path: str) -> str:
    """A layer tensor's name in a GGUF file, with its suffix; a Hub name is translated, an unknown one kept."""
    stem, suffix = (path.removesuffix(".bias"), ".bias") if path.endswith(".bias") else (path, ".weight")
    if stem in _PLAIN_NAMES and suffix == ".weight":
        return stem
    if stem.startswith(_OWN) and "layernorm" not in stem and "per_layer" not in stem:
        return stem + suffix
    if stem.endswith(".dt_bias"):
        return "ssm_dt.bias"
    for pattern, name in _HUB_NAMES:
        if re.fullmatch(pattern, stem.removesuffix(".weight")):
            return name if name in _PLAIN_NAMES or name.endswith(".bias") else name + suffix
    return stem + suffix


def outside_name(group: TensorGroup) -> str:
    """The name in a GGUF file of a tensor outside the layers."""
    if group.kind == "head":
        return "output.bias" if group.path.endswith(".bias") else "output.weight"
    for pattern, name in _OUTSIDE_NAMES:
        if re.fullmatch(pattern, group.path):
            return f"{name}.weight"
    if group.kind == "embedding" and not group.path.startswith(("per_layer", "altup", "token", "position")):
        return "token_embd.weight"
    return group.path if group.path.endswith(".bias") else f"{group.path}.weight"
