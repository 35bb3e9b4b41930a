"""Tensor names of GGUF files, for models that are read from checkpoints of the Hub.

Source: tensor_mapping.py and the converters of llama.cpp (October 2026).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from kvplanner.model.tensors import TensorGroup
from kvplanner.record import NamedTuple

# How names of GGUF files themselves begin.
_OWN: Final = ("altup_", "laurel_", "attn_", "ffn_", "ssm_", "shortconv", "time_mix", "channel_mix", "post_", "indexer")
_PLAIN_NAMES: Final = frozenset({"ssm_a", "ssm_d", "ssm_dt", "rope_freqs"})


class _Rule(NamedTuple):
    """A tensor's name where the path below its layer ends so, or is just that.

    below: what stands somewhere before that end. anywhere: the end may stand anywhere in the path.
    """

    name: str
    ends: tuple[str, ...] = ()
    whole: tuple[str, ...] = ()
    below: str = ""
    anywhere: bool = False

    def fits(self, path: str) -> bool:
        """Whether the rule is for a path."""
        if path in self.whole:
            return True
        if self.anywhere:
            return any(end in path for end in self.ends)
        if not path.endswith(self.ends):
            return False
        return not self.below or any(path.endswith(end) and self.below in path[: -len(end)] for end in self.ends)


def _below(modules: tuple[str, ...], *leaves: str) -> tuple[str, ...]:
    return tuple(f"{module}.{leaf}" for module in modules for leaf in leaves)


_RECURRENT: Final = ("linear_attn", "mamba", "mixer")
_MAMBA: Final = ("mamba", "mixer")
# The names that checkpoints on the Hub use, for models that are planned without a GGUF file; the first that fits.
_HUB_NAMES: Final[tuple[_Rule, ...]] = (
    # Recurrent and convolutional layers, whose projections have names of their own.
    _Rule("ssm_a", _below(_RECURRENT, "A_log")), _Rule("ssm_d", _below(_MAMBA, "D")),
    _Rule("ssm_conv1d", _below(_RECURRENT, "conv1d")), _Rule("ssm_out", _below(_RECURRENT, "out_proj")),
    _Rule("ssm_norm", _below(_RECURRENT, "norm")), _Rule("ssm_alpha", ("linear_attn.in_proj_a",)),
    _Rule("ssm_beta", ("linear_attn.in_proj_b",)), _Rule("ssm_ba", ("linear_attn.in_proj_ba",)),
    _Rule("attn_qkv", ("linear_attn.in_proj_qkv", "linear_attn.in_proj_qkvz")),
    _Rule("attn_gate", ("linear_attn.in_proj_z",)),
    _Rule("ssm_in", _below(_MAMBA, "in_proj")), _Rule("shortconv.conv", whole=("conv.conv",)),
    _Rule("shortconv.in_proj", whole=("conv.in_proj",)), _Rule("shortconv.out_proj", whole=("conv.out_proj",)),
    # The side cache of sparse attention.
    _Rule("indexer.attn_q_b", ("indexer.wq_b",)), _Rule("indexer.attn_k", ("indexer.wk",)),
    _Rule("indexer.k_norm", ("indexer.k_norm",)), _Rule("indexer.proj", ("indexer.weights_proj",)),
    # BERT and its kin, whose norms stand after attention and after the feed-forward block.
    _Rule("attn_output_norm", ("attention.output.LayerNorm",), whole=("norm1",)),
    _Rule("layer_output_norm", whole=("output.LayerNorm", "norm2")), _Rule("attn_qkv", whole=("attn.Wqkv",)),
    _Rule("ffn_up", whole=("intermediate.dense", "mlp.fc11")), _Rule("ffn_gate", whole=("mlp.fc12",)),
    _Rule("ffn_down", whole=("output.dense", "mlp.fc2")),
    # Attention.
    _Rule("attn_q", (".q_proj", ".wq", ".query")), _Rule("attn_k", (".k_proj", ".wk", ".key")),
    _Rule("attn_v", (".v_proj", ".wv", ".value")), _Rule("attn_output", (".o_proj", ".wo", ".out_proj", ".dense")),
    _Rule("attn_qkv", ("qkv_proj", "query_key_value", "W_pack", "c_attn")),
    _Rule("attn_q_a", ("q_a_proj",)), _Rule("attn_q_b", ("q_b_proj",)),
    _Rule("attn_kv_a_mqa", ("kv_a_proj_with_mqa",)), _Rule("attn_kv_b", ("kv_b_proj",)),
    _Rule("attn_q_a_norm", ("q_a_layernorm",)), _Rule("attn_kv_a_norm", ("kv_a_layernorm",)),
    _Rule("attn_q_norm", ("q_norm", "q_layernorm")), _Rule("attn_k_norm", ("k_norm", "k_layernorm")),
    _Rule("attn_sinks", ("sinks",)),
    # Experts, then dense blocks.
    _Rule("ffn_gate_up_exps", ("gate_up_proj",), below="experts"), _Rule("ffn_gate_inp_shexp", ("shared_expert_gate",)),
    _Rule("ffn_gate_shexp", ("gate_proj",), below="shared_expert"),
    _Rule("ffn_up_shexp", ("up_proj",), below="shared_expert"),
    _Rule("ffn_down_shexp", ("down_proj",), below="shared_expert"),
    _Rule("ffn_gate_exps", ("gate_proj", "w1"), below="experts"),
    _Rule("ffn_up_exps", ("up_proj", "w3"), below="experts"),
    _Rule("ffn_down_exps", ("down_proj", "w2"), below="experts"),
    _Rule("ffn_gate_up_exps", ("block_sparse_moe.input_linear",)),
    _Rule("ffn_down_exps", ("block_sparse_moe.output_linear",)),
    _Rule("ffn_up_shexp", ("shared_mlp.input_linear",)), _Rule("ffn_down_shexp", ("shared_mlp.output_linear",)),
    _Rule("exp_probs_b.bias", ("e_score_correction_bias", "expert_bias")),
    _Rule("ffn_up", ("gate_up_proj",)), _Rule("ffn_gate", ("gate_proj", "feed_forward.w1")),
    _Rule("ffn_up", ("up_proj", "feed_forward.w3")), _Rule("ffn_down", ("down_proj", "feed_forward.w2")),
    # Gemma 3n's streams, and the narrower space of Nemotron's largest experts.
    _Rule("altup_router_norm", whole=("altup.router_norm",)), _Rule("altup_router", whole=("altup.modality_router",)),
    _Rule("altup_correct_scale", whole=("altup.correct_output_scale",)),
    _Rule("altup_correct_coef", whole=("altup.correction_coefs",)),
    _Rule("altup_predict_coef", whole=("altup.prediction_coefs",)),
    _Rule("laurel_l", whole=("laurel.linear_left",)), _Rule("laurel_r", whole=("laurel.linear_right",)),
    _Rule("laurel_post_norm", whole=("laurel.post_laurel_norm",)),
    _Rule("ffn_latent_down", (".fc1_latent_proj",)), _Rule("ffn_latent_up", (".fc2_latent_proj",)),
    _Rule("ffn_gate_inp", ("mlp.gate", "router", "block_sparse_moe.gate", "mixer.gate", "feed_forward.gate"),
          anywhere=True),
    # Norms; what stands before the feed-forward block is Gemma's `ffn_norm`, and else the norm after attention.
    _Rule("ffn_norm", ("pre_feedforward_layernorm",)), _Rule("pre_ffw_norm_2", ("pre_feedforward_layernorm_2",)),
    _Rule("post_ffw_norm", ("post_feedforward_layernorm",)),
    _Rule("post_ffw_norm_1", ("post_feedforward_layernorm_1",)),
    _Rule("post_ffw_norm_2", ("post_feedforward_layernorm_2",)),
    _Rule("post_attention_norm", ("post_attention_layernorm",)),
    _Rule("attn_norm", ("input_layernorm", "operator_norm"), whole=("norm",)),
    # Gemma's inputs of each layer.
    _Rule("inp_gate", whole=("per_layer_input_gate",)), _Rule("proj", whole=("per_layer_projection",)),
    _Rule("post_norm", whole=("post_per_layer_input_norm",)), _Rule("layer_output_scale", whole=("layer_scalar",)),
)  # fmt: skip
# The same outside the layers, by the last part of the path but ".bias".
_OUTSIDE_NAMES: Final[dict[str, str]] = {
    **dict.fromkeys(("norm", "final_layernorm", "ln_f", "norm_f", "embedding_norm"), "output_norm"),
    "embed_tokens_per_layer": "per_layer_token_embd",
    "position_embeddings": "position_embd",
    "token_type_embeddings": "token_types",
    "LayerNorm": "token_embd_norm",
    "per_layer_model_projection": "per_layer_model_proj",
    "per_layer_projection_norm": "per_layer_proj_norm",
    "altup_projections": "altup_proj",
    "altup_unembed_projections": "altup_unembd_proj",
}


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
    inner = stem.removesuffix(".weight")
    for rule in _HUB_NAMES:
        if rule.fits(inner):
            name = rule.name
            return name if name in _PLAIN_NAMES or name.endswith(".bias") else name + suffix
    return stem + suffix


def outside_name(group: TensorGroup) -> str:
    """The name in a GGUF file of a tensor outside the layers."""
    if group.kind == "head":
        return "output.bias" if group.path.endswith(".bias") else "output.weight"
    name = _OUTSIDE_NAMES.get(group.path.removesuffix(".bias").rpartition(".")[2])
    if name is not None:
        return f"{name}.bias" if group.path.endswith(".bias") else f"{name}.weight"
    if group.kind == "embedding" and not group.path.startswith(("per_layer", "altup", "token", "position")):
        return "token_embd.weight"
    return group.path if group.path.endswith(".bias") else f"{group.path}.weight"
