"""What an unread field of a config means: nothing, the same as one that was read, or something that must be known.

A field is metadata when no class makes tensors or caches of it, whatever its value. One that stands under a second
name beside a field that was read (`n_layer` beside `num_hidden_layers`) changes nothing as long as both agree.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

# A key with one of these words may change tensors or caches: unread, it is an error and not a detail.
_STRUCTURAL: Final = (
    "layer", "head", "expert", "window", "state", "rank", "compress", "share", "mtp", "chunk", "latent", "block",
    "group", "hidden", "intermediate", "ffn", "conv", "bias", "gate", "qk_norm", "embed_dim", "d_model",
    "tower", "encoder", "decoder", "width",
)  # fmt: skip
_NUMERIC: Final = re.compile(
    r"_token_(id|ids|index)$|dropout|droput|_coef$|_eps$|epsilon|initializer|_loss|_std$|jitter_noise|rope_theta|_act$"
    r"|init_value$|init_scale$|xavier_init$|^layernorm_\w+_(alpha|beta)$|_loss_weight$|drop_path|layerdrop|_multipliers?$|_scaling_factor$"
)
# Keys with such a word that change neither, whatever their value. The pooler_* and directionality fields are those
# of the first BERT files, whose classes have no such pooler.
_HARMLESS: Final = frozenset(
    {
        "hidden_act", "hidden_activation", "output_hidden_states", "chunk_size_feed_forward",
        "cross_attention_hidden_size", "layerdrop", "residual_in_fp32", "fp32_residual_connection",
        "num_beam_groups", "num_logits_to_keep", "pooler_fc_size", "pooler_num_attention_heads",
        "pooler_num_fc_layers", "pooler_size_per_head", "time_step_limit", "attention_softmax_in_fp32",
        "gradient_checkpointing_layers", "is_encoder_decoder", "add_classification_head", "diversity_penalty",
        "tie_encoder_decoder", "mamba_chunk_size_hint", "slow_but_exact", "masked_softmax_fusion", "seconds_per_chunk",
        "decoder_sparse_step", "median_filter_width", "is_original_qwen3_reranker",
    }
)  # fmt: skip
# Dictionaries and lists that hold words, token ids, processing or rope settings.
_NOT_TENSORS: Final = re.compile(
    r"token|_ids?$|words?$|^badwordsids$|label|^task|keys_to_ignore|^tags$|languages?$|auto_map|generation|pinpoints|version"
    r"|prompt|processor|tokenizer|rope|^architectures$|image_mean|image_std|_resolutions$|quantization|compression"
    r"|candidate|speculat|_stats$|training|^parameters$|license|authors?$|preprocess|time_step|^freq|_factors?$"
    r"|_range$|transformers|sentence_|unsloth|mergekit|dropout|loss|^_|scheduler|optimizer|^dataset|sampling|timestamp"
    r"|^id2|2id$|2label$|^tie_weights|video_fps|^tp_plan|_tp_plan|_pp_plan|mrope|^export|template|^use_|^auto_|capacity|multipliers?$"
)

# Sizes of layers, in a dictionary of whatever name.
_SIZES: Final = re.compile(
    r"hidden_size|layers$|^depth$|embed_dim|d_model|intermediate_size|n_heads$|num_heads$|_heads$"
)

# Names of one meaning; the first is the usual one.
_SAME: Final = (
    ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    ("hidden_size", "n_embd", "n_embed", "d_model", "dim", "model_dim", "embed_dim"),
    ("num_attention_heads", "n_head", "n_heads", "num_heads"),
    ("num_key_value_heads", "num_kv_heads", "n_head_kv", "n_kv_heads", "multi_query_group_num"),
    ("intermediate_size", "ffn_hidden_size", "ffn_dim", "n_inner", "ff_intermediate_size", "block_ff_dim"),
    ("sliding_window", "sliding_window_size", "window_size", "attention_window"),
    ("head_dim", "kv_channels", "attention_head_dim", "head_size"),
    ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"),
    ("num_experts_per_tok", "num_experts_per_token", "moe_top_k", "moe_topk", "moe_k", "experts_per_token"),
    ("attention_bias", "use_qkv_bias", "qkv_bias", "add_qkv_bias"),
    ("moe_intermediate_size", "expert_hidden_size", "expert_ffn_hidden_size"),
    ("n_shared_experts", "num_shared_experts", "num_shared_expert", "moe_num_shared_experts"),
    ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_layers"),
    ("first_k_dense_replace", "num_dense_layers"),
)  # fmt: skip
_GROUP_OF: Final = {name: group for group in _SAME for name in group}


def same_meaning(name: str) -> tuple[str, ...]:
    """Other names of the same meaning."""
    return tuple(other for other in _GROUP_OF.get(name, ()) if other != name)


def is_metadata(name: str, value: object) -> bool:
    """Whether an unread field changes neither tensors nor caches.

    A dictionary or list must be known to be metadata by its name, a number or word only where its name sounds
    structural.
    """
    if name in _HARMLESS:
        return True
    if isinstance(value, Mapping):
        return bool(_NOT_TENSORS.search(name)) and not _has_sizes(value)
    if isinstance(value, list | tuple):
        return bool(_NOT_TENSORS.search(name)) and not _nested(value)
    return bool(_NUMERIC.search(name)) or not any(word in name for word in _STRUCTURAL)


def _has_sizes(value: Mapping[object, object]) -> bool:
    """Whether a dictionary, or one in it, states sizes of a model, whatever its own name."""
    inner = (v for v in value.values() if isinstance(v, Mapping))
    return any(_SIZES.search(str(key)) for key in value) or any(_has_sizes(v) for v in inner)


def _nested(value: list[object] | tuple[object, ...]) -> bool:
    return any(isinstance(item, Mapping) for item in value)


@lru_cache(maxsize=1 << 14)  # a catalogue's configs leave the same few names unread
def misspelt(name: str, absent: str, stated: bool) -> bool:
    """Whether an unread field may be meant for one that is absent: its name is the other's with a little more or less.

    stated: its value is neither null, zero nor false; otherwise only long names are compared.
    """
    shorter = min(len(name), len(absent))
    if shorter < (4 if stated else 8) or abs(len(name) - len(absent)) > (4 if stated else 3):
        return False
    if absent in name or name in absent:
        return True
    # A slip of two letters leaves one end as it was, and most pairs are told apart by their ends.
    alike = name[:3] == absent[:3] or name[-3:] == absent[-3:]
    return shorter >= 8 and alike and abs(len(name) - len(absent)) <= 2 and _distance(name, absent) <= 2


def _distance(one: str, other: str) -> int:
    """Letters to insert, delete or replace."""
    row = list(range(len(other) + 1))
    for i, letter in enumerate(one, 1):
        last, row[0] = row[0], i
        for j, second in enumerate(other, 1):
            last, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, last + (letter != second))
    return row[-1]
