"""What a checkpoint's tensor names say: which layer, which module, which part of it, which expert.

Names follow the Hub's checkpoints of some ninety architectures (Llama, Qwen, DeepSeek, Gemma, Phi, Mamba, GPT-2,
BERT and their relatives).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final, Literal

from kvplanner.record import NamedTuple

Place = Literal["layer", "outside", "tower", "mtp"]


class Name(NamedTuple):
    """A tensor's name taken apart.

    path: of the module below its layer or the model, an expert's number left out; part: what of the module it is
    ("weight", "bias", "weight_scale_inv", "qweight" ...); expert: its number, or that of a tower's block, or None.
    """

    place: Place
    layer: int
    path: str
    part: str
    expert: int | None


# What a module stores beside or instead of "weight": packed values, scales, zero points.
PARTS: Final = frozenset(
    {
        "weight", "qweight", "weight_packed", "blocks", "weight_scale", "weight_scale_inv", "weight_scale_2", "scales",
        "scale", "weight_global_scale", "input_scale", "input_global_scale", "activation_scale", "qzeros",
        "weight_zero_point", "g_idx", "weight_g_idx", "weight_shape", "weight_block_scale", "tensor_scale", "SCB",
        "weight_format", "absmax", "quant_map", "nested_absmax", "nested_quant_map", "quant_state", "weight_bias",
        "biases", "pre_quant_scale", "input_scale_inv", "act_scale", "weight_scale_inv_2", "qscale_weight",
        "qscale_act",
    }
)  # fmt: skip
SCALE_PARTS: Final = PARTS - {"weight", "qweight", "weight_packed", "blocks"}

_LAYER: Final = re.compile(r"^(?:(.*?)\.)?(?:layers|layer|h|blocks|block)\.(\d{1,5})\.(.+)$")
_EXPERT: Final = re.compile(r"^(.*\bexperts)\.(\d{1,5})\.(.+)$")
_TOWER: Final = re.compile(
    r"(?:^|\.)(?:vision\w*|visual\w*|vit|image_\w+|img_\w+|audio\w*|speech\w*|sound_\w+|vpm|resampler|aligner|"
    r"multi_modal_projector|mm_\w+|multimodal_projector|mlp1|connector|merger|patch_merger|talker|token2wav|"
    r"embed_vision|embed_audio)(?:\.|$)"
)
_MTP: Final = re.compile(r"(?:^|\.)(?:mtp\w*|nextn\w*|eagle\w*|medusa\w*|model_mtp)(?:\.|$)")
_STACK: Final = re.compile(r"\b(layers|layer|blocks|block|resblocks|h|\w+_list)\.(\d{1,5})\.")
_PREFIX: Final = re.compile(r"^(?:(?:model|language_model|transformer|backbone|llm|thinker|text_model|base_model)\.)+")
_BNB_STATE: Final = re.compile(r"\.quant_state\.\w+$")


# Mistral's own spelling ("consolidated" files), by that of transformers. Its layers stand without any prefix.
_MISTRAL: Final = {
    "attention.wq": "self_attn.q_proj", "attention.wk": "self_attn.k_proj", "attention.wv": "self_attn.v_proj",
    "attention.wo": "self_attn.o_proj", "attention.wq_a": "self_attn.q_a_proj", "attention.wq_b": "self_attn.q_b_proj",
    "attention.wkv_a_with_mqa": "self_attn.kv_a_proj_with_mqa", "attention.wkv_b": "self_attn.kv_b_proj",
    "attention.q_a_norm": "self_attn.q_a_layernorm", "attention.kv_a_norm": "self_attn.kv_a_layernorm",
    "attention_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
    "feed_forward.w1": "mlp.gate_proj", "feed_forward.w2": "mlp.down_proj", "feed_forward.w3": "mlp.up_proj",
    "feed_forward.gate": "block_sparse_moe.gate", "feed_forward.experts.w1": "block_sparse_moe.experts.w1",
    "feed_forward.experts.w2": "block_sparse_moe.experts.w2", "feed_forward.experts.w3": "block_sparse_moe.experts.w3",
    "gate": "mlp.gate", "experts.w1": "mlp.experts.gate_proj", "experts.w2": "mlp.experts.down_proj",
    "experts.w3": "mlp.experts.up_proj", "shared_experts.w1": "mlp.shared_experts.gate_proj",
    "shared_experts.w2": "mlp.shared_experts.down_proj", "shared_experts.w3": "mlp.shared_experts.up_proj",
}  # fmt: skip
_MISTRAL_OUTSIDE: Final = {"tok_embeddings": "embed_tokens", "output": "lm_head"}


def is_mistrals(names: Iterable[str]) -> bool:
    """Whether a checkpoint is spelled in Mistral's own way."""
    return any(name.startswith("layers.0.attention.w") for name in names)


def from_mistrals(name: Name) -> Name:
    """A name in Mistral's own spelling in that of transformers."""
    table = _MISTRAL if name.place == "layer" else _MISTRAL_OUTSIDE if name.place == "outside" else {}
    return name._replace(path=table.get(name.path, name.path))


def take_apart(name: str, layers: int, predicting: int = 0) -> Name:
    """A tensor's name as place, layer, module path, part and expert.

    layers: how many decoder layers the config tells (0: unknown); predicting: how many multi-token-prediction blocks
    are numbered after them.
    """
    # Phi-4-multimodal's adapters are parts of its decoder layers, named for the tower that they are for.
    name = name.replace(".base_layer.", ".")
    if _TOWER.search(name.partition(".lora_")[0]):
        path, part = _module(_STACK.sub(r"\1.", name))
        numbers = "".join(f"{int(number):05d}" for _, number in _STACK.findall(name))
        return Name("tower", -1, path, part, int(numbers) if numbers else None)
    match = _LAYER.match(name)
    if match is None:
        path, part = _module(_PREFIX.sub("", name))
        return Name("mtp" if _MTP.search(name) else "outside", -1, path, part, None)
    rest, expert = match[3], None
    if "experts." in rest and (inner := _EXPERT.match(rest)):
        rest, expert = f"{inner[1]}.{inner[3]}", int(inner[2])
    path, part = _module(rest)
    layer = int(match[2])
    if (layers and layers <= layer < layers + predicting) or (match[1] and _MTP.search(match[1])):
        return Name("mtp", layer, path, part, expert)
    return Name("layer", layer, path, part, expert)


@lru_cache(maxsize=4096)
def _module(name: str) -> tuple[str, str]:
    """Module path and part: "q_proj.weight_scale" → ("q_proj", "weight_scale"); a bias is a module of its own."""
    if ".quant_state." in name:
        name = _BNB_STATE.sub(".quant_state", name)
    stem, dot, last = name.rpartition(".")
    if not dot:
        stem, last = "", name
    if last in PARTS and stem:
        # Two-level parts: "q_proj.weight.absmax" belongs to "q_proj".
        upper, _, part = stem.rpartition(".")
        return (upper, last) if part == "weight" and upper else (stem, last)
    for suffix in ("_blocks", "_scales", "_scale_inv", "_weight_scale", "_scale", "_input_scale", "_qweight"):
        if last.endswith(suffix) and stem.endswith("experts"):
            return f"{stem}.{last.removesuffix(suffix)}", suffix[1:]
    for suffix in ("_bias",):
        if last.endswith(suffix) and stem.endswith("experts"):
            return f"{stem}.{last.removesuffix(suffix)}.bias", "weight"
    return name, "weight"


def without_prefix(path: str) -> str:
    """A module's path without the wrappers that checkpoints put before the language model."""
    return _PREFIX.sub("", path)
