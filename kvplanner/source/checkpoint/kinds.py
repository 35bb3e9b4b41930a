"""What kind of tensor a module's name stands for, and how engines usually split it.

For files without a config, and for modules that the config's architecture does not have. A name that no rule knows
is of the kind "other" and whole on every rank.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from kvplanner.model.tensors import Shard, TensorKind
from kvplanner.source.checkpoint.names import Place

_NORM: Final = re.compile(
    r"norm(?:_?\w)?(?:\.bias)?$|(?:^|\.)ln_\w+|layernorm|(?:^|\.)(?:ln\d|norm\d?)(?:\.|$)|_norm\b", re.IGNORECASE
)
_KINDS: Final[tuple[tuple[TensorKind, re.Pattern[str]], ...]] = (
    ("other", re.compile(r"\.lora_[AB]\.")),
    ("norm", _NORM),
    ("router", re.compile(
        r"(?:^|\.)(?:router\w*|gate|wg|e_score_correction_bias|expert_bias|tid2eid)(?:\.|$)|shared_expert_gate"
    )),
    ("experts", re.compile(r"(?:^|[._])experts?(?:\.|$)|block_sparse_moe\.(?:in|out)put_linear")),
    ("state", re.compile(
        r"(?:^|\.)(?:mamba\w*|ssm|linear_attn|conv\w*|mixer\.(?:in_proj|out_proj|conv1d|A_log|D|dt_\w+|x_proj|norm)|"
        r"A_log|dt_bias|dt_proj|x_proj|in_proj\w*|[qkv]_conv1d|[fg]_[ab]_proj)(?:\.|$)"
    )),
    ("attention", re.compile(r"^attention\.|^self_attn\.gate_proj")),
    ("mlp", re.compile(
        r"(?:^|\.)(?:mlp|feed_forward|ffn\w*|shared_experts?|shared_mlp|gate_proj|up_proj|down_proj|gate_up_proj|"
        r"share_expert|fc1|fc2|w1|w2|w3|intermediate)(?:\.|$)|^output\."
    )),
    ("attention", re.compile(
        r"(?:^|\.)(?:self_attn\w*|attn\w*|attention\w*|self_attention|cross_attn\w*|encoder_attn|mixer|wqkv|wo)(?:\.|$)"
    )),
)  # fmt: skip
_SHARED_EXPERT: Final = re.compile(r"(?:^|\.)shared?_experts?\.(?!gate(?:\.|$))")
_EMBEDDING: Final = re.compile(
    r"(?:^|\.)(?:embed_\w+|wte|wpe|word_embeddings\w*|tok_embeddings|embeddings?|position_embeddings)(?:\.|$)"
)
_HEAD: Final = re.compile(r"(?:^|\.)(?:lm_head|output|embed_out|output_layer|score|classifier)(?:\.bias)?$")


@lru_cache(maxsize=4096)
def kind_of(place: Place, path: str) -> TensorKind:
    """The kind of a module's tensors, "other" when no rule knows the name."""
    if place in ("tower", "mtp"):
        return "tower" if place == "tower" else "mtp"
    if place == "outside":
        if _NORM.search(path):
            return "norm"
        if _HEAD.search(path):
            return "head"
        return "embedding" if _EMBEDDING.search(path) else "other"
    if _SHARED_EXPERT.search(path):
        return "mlp"
    for kind, pattern in _KINDS:
        if pattern.search(path):
            return kind
    return "other"


# The joined matrix that engines load a projection into, by the projection's own name.
_JOINED: Final[dict[str, tuple[Shard, str]]] = {
    "q_proj": ("column", "qkv_proj"), "k_proj": ("kv", "qkv_proj"), "v_proj": ("kv", "qkv_proj"),
    "query": ("column", "qkv_proj"), "key": ("kv", "qkv_proj"), "value": ("kv", "qkv_proj"),
    "gate_proj": ("column", "gate_up_proj"), "up_proj": ("column", "gate_up_proj"),
    "gate_up_proj": ("column", "gate_up_proj"), "w1": ("column", "gate_up_proj"), "w3": ("column", "gate_up_proj"),
    "o_proj": ("row", ""), "out_proj": ("row", ""), "down_proj": ("row", ""), "w2": ("row", ""), "c_proj": ("row", ""),
    "dense": ("row", ""), "dense_4h_to_h": ("row", ""), "fc2": ("row", ""), "wo": ("row", ""),
    "q_b_proj": ("column", ""), "kv_b_proj": ("column", ""), "fc1": ("column", ""), "c_fc": ("column", ""),
    "dense_h_to_4h": ("column", ""), "in_proj_qkvz": ("column", ""), "in_proj_ba": ("column", ""),
    "in_proj": ("column", ""), "in_proj_qkv": ("column", ""), "in_proj_z": ("column", ""), "in_proj_a": ("column", ""),
    "in_proj_b": ("column", ""), "conv1d": ("column", ""), "conv": ("column", ""), "x_proj": ("row", ""),
    "dt_proj": ("column", ""), "a_proj": ("column", ""), "b_proj": ("column", ""), "g_proj": ("column", ""),
    "q_conv1d": ("column", ""), "k_conv1d": ("column", ""), "v_conv1d": ("column", ""), "f_b_proj": ("column", ""),
    "g_b_proj": ("column", ""), "qkv_proj": ("column", "qkv_proj"), "query_key_value": ("column", "qkv_proj"),
    "wqkv": ("column", "qkv_proj"), "W_pack": ("column", "qkv_proj"), "c_attn": ("column", "qkv_proj"),
    "input_linear": ("column", "gate_up_proj"), "output_linear": ("row", ""), "intermediate.dense": ("column", ""),
    "c_fc_0": ("column", "gate_up_proj"), "c_fc_1": ("column", "gate_up_proj"),
}  # fmt: skip


def split_of(kind: TensorKind, path: str) -> tuple[Shard, str]:
    """How engines usually split a module of this name, and the joined matrix it goes into; replicated if unsure."""
    if kind in ("embedding", "head"):
        return "vocab", ""
    words = path.removesuffix(".bias").rsplit(".", 2)
    shard, fused = _JOINED.get(".".join(words[-2:])) or _JOINED.get(words[-1], ("replicated", ""))
    if kind == "state" and shard == "kv":
        shard = "column"  # a recurrent layer's keys and values have heads of their own, one for each state
    if path.endswith(".bias") and shard == "row":
        return "replicated", ""
    if kind == "experts":
        if shard == "row":
            return "expert_row", "w2"
        return ("expert_column", "w13") if fused == "gate_up_proj" else ("replicated", "")
    return (shard, fused) if kind in ("attention", "mlp", "state") else ("replicated", "")
