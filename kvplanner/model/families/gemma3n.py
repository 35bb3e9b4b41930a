"""Gemma 3n: four residual streams, low-rank shortcuts, per-layer embeddings, layers that share caches; two towers.

Sources: configuration and modelling classes of transformers 5.24 and the element counts of google/gemma-3n-E2B-it and
E4B-it, which the files reach with the key and value projections of the sharing layers, although no class builds them.
"""

from __future__ import annotations

from typing import Final

from kvplanner.model.config.fields import Fields
from kvplanner.model.config.moe import uniform
from kvplanner.model.config.patterns import FULL, SLIDING, listed
from kvplanner.model.config.reading import Body, Draft, Reader, Reading, stack
from kvplanner.model.families.conversions import pooled
from kvplanner.model.spec import Attention, LayerSpec, Mlp, Tower
from kvplanner.model.tensors import TensorGroup
from kvplanner.model.towers.vision import MAX_DEPTH, norm, table, tower_of, with_towers

_NORMS: Final = (
    "input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm",
)  # fmt: skip
# Elements of timm's mobilenetv5_300m_enc: what both published counts leave beside the rest.
_MOBILENET: Final = {"mobilenetv5_300m_enc": 294_126_912}


def text(reading: Reading) -> Draft:
    """The language model."""
    fields, parts = reading.text, reading.parts
    fields.skip("activation_sparsity_pattern", "altup_active_idx", "altup_coef_clip", "altup_correct_scale",
                "altup_lr_multiplier", "query_pre_attn_scalar")  # fmt: skip
    fields.expect("attention_bias", False)
    hidden, vocab, layers = reading.hidden(), reading.vocab(default=262_400), reading.layer_count(default=35)
    heads = reading.heads(hidden, default_heads=8, default_kv=2, default_size=256)
    kinds = listed(fields, layers, FULL, SLIDING)
    if kinds is None:
        fields.took_default("layer_types")
        kinds = tuple(FULL if (i + 1) % 5 == 0 else SLIDING for i in range(layers))
    window, width = fields.get("sliding_window", default=512), uniform(fields, ("intermediate_size",), 1 << 24)
    shared = fields.get("num_kv_shared_layers", default=15, low=0, high=layers - 1)
    inputs = fields.get("altup_num_inputs", default=4, high=64)
    rank, per_layer = fields.get("laurel_rank", default=64), fields.get("hidden_size_per_layer_input", default=256)

    def make(key: tuple[str, bool]) -> Body:
        kind, owns = key
        path = "self_attn"
        groups = parts.qkv(path, hidden, *heads)
        groups += parts.linear(f"{path}.o_proj", "attention", hidden, heads.heads * heads.head_size, "row",
                               unit=heads.head_size)  # fmt: skip
        groups += parts.norm(f"{path}.q_norm", heads.head_size) + parts.norm(f"{path}.k_norm", heads.head_size)
        groups += parts.mlp("mlp", hidden, width)
        for name in _NORMS:
            groups += parts.norm(name, hidden)
        groups += _altup(reading, hidden, inputs) + _beside(reading, hidden, rank, per_layer)
        mixer = Attention(*heads, heads.head_size, window=window if kind == SLIDING else None, owns_cache=owns)
        return Body(LayerSpec((mixer,), (Mlp(width),)), tuple(groups))

    bodies, body_of = stack([(kind, i < layers - shared) for i, kind in enumerate(kinds)], make)
    tied = reading.tied(True)
    outside = reading.vocabulary(vocab, hidden, tied)
    first, last = parts.at("first"), parts.at("last")
    rows = fields.get("vocab_size_per_layer_input", default=262_144, high=1 << 26)
    outside.append(first.tensor("model.embed_tokens_per_layer", "embedding", (rows, layers * per_layer), "vocab"))
    outside += first.linear("model.per_layer_model_projection", "other", layers * per_layer, hidden)
    outside += first.norm("model.per_layer_projection_norm", per_layer)
    outside.append(first.tensor("model.altup_projections", "other", (hidden, hidden), count=inputs - 1))
    outside.append(last.tensor("model.altup_unembed_projections", "other", (hidden, hidden), count=inputs - 1))
    return Draft(hidden, vocab, bodies, body_of, outside, tied)


def _altup(reading: Reading, hidden: int, inputs: int) -> list[TensorGroup]:
    """The streams' prediction and correction."""
    parts, path = reading.parts, "altup"
    groups = parts.norm(f"{path}.correct_output_scale", hidden) + parts.norm(f"{path}.router_norm", hidden)
    groups += parts.linear(f"{path}.correction_coefs", "other", inputs, inputs)
    groups += parts.linear(f"{path}.prediction_coefs", "other", inputs * inputs, inputs)
    return groups + parts.linear(f"{path}.modality_router", "other", inputs, hidden)


def _beside(reading: Reading, hidden: int, rank: int, per_layer: int) -> list[TensorGroup]:
    """The low-rank shortcut and the layer's own input."""
    parts = reading.parts
    groups = parts.linear("laurel.linear_left", "other", rank, hidden)
    groups += parts.linear("laurel.linear_right", "other", hidden, rank) + parts.norm("laurel.post_laurel_norm", hidden)
    groups += parts.linear("per_layer_input_gate", "other", per_layer, hidden)
    groups += parts.linear("per_layer_projection", "other", hidden, per_layer)
    return groups + parts.norm("post_per_layer_input_norm", hidden)


def _embedder(reading: Reading, fields: Fields, path: str, hidden: int, default: int) -> list[TensorGroup]:
    """From a tower into the language model, with words of its own."""
    parts = reading.parts.at("tower")
    size, words = fields.get("hidden_size", default=default), fields.get("vocab_size", default=128)
    groups = [table(parts, f"{path}.embedding", words, size)]
    for name in ("hard_embedding_norm", "soft_embedding_norm"):
        groups += norm(parts, f"{path}.{name}", size, bias=False)
    return groups + parts.linear(f"{path}.embedding_projection", "tower", hidden, size)


def _vision(reading: Reading, hidden: int) -> tuple[list[Tower], list[TensorGroup]]:
    fields = reading.top.sub("vision_config")
    if fields is None:
        raise reading.top.missing("vision_config")
    name = fields.text("architecture", allowed=_MOBILENET) or "mobilenetv5_300m_enc"
    groups = _embedder(reading, fields, "embed_vision", hidden, 2048)
    fields.skip("model_args", "num_classes", "do_pooling", "label_names")
    fields.close()
    groups.append(reading.parts.at("tower").tensor("vision_tower.timm_model", "tower", (_MOBILENET[name],)))
    tokens = reading.top.get("vision_soft_tokens_per_image", default=256, high=1 << 20)
    return [tower_of("vision", 2048, 1, groups, tokens=tokens)], groups


def _audio(reading: Reading, hidden: int) -> tuple[list[Tower], list[TensorGroup]]:
    """The conformer."""
    fields = reading.top.sub("audio_config")
    if fields is None:
        raise reading.top.missing("audio_config")
    parts, path = reading.parts.at("tower"), "audio_tower.conformer"
    groups = _embedder(reading, fields, "embed_audio", hidden, 1536)
    size, depth = fields.get("hidden_size", default=1536), fields.get("conf_num_hidden_layers", default=12,
                                                                      high=MAX_DEPTH)  # fmt: skip
    heads = fields.get("conf_num_attention_heads", default=8, high=size)
    kernel = fields.get("conf_conv_kernel_size", default=5)
    channels = fields.ints("sscp_conv_channel_size", low=1, high=1 << 16) or (128, 32)
    bins = fields.get("input_feat_size", default=128)
    fields.skip(*(name for name in fields.values if str(name).startswith(("conf_", "sscp_", "gradient"))))
    fields.close()
    groups += _front(reading, size, channels, bins)
    for place in ("ffw_layer_start", "ffw_layer_end"):
        groups += parts.linear(f"{path}.{place}.ffw_layer_1", "tower", 4 * size, size, count=depth)
        groups += parts.linear(f"{path}.{place}.ffw_layer_2", "tower", size, 4 * size, count=depth)
        for side in ("pre", "post"):
            groups += norm(parts, f"{path}.{place}.{side}_layer_norm", size, bias=False, count=depth)
    for name in ("attn.q_proj", "attn.k_proj", "attn.v_proj", "attn.relative_position_embedding.pos_proj", "post"):
        groups += parts.linear(f"{path}.attention.{name}", "tower", size, size, count=depth)
    groups.append(parts.tensor(f"{path}.attention.attn.per_dim_scale", "tower", (size // heads,), count=depth))
    groups += parts.linear(f"{path}.lconv1d.linear_start", "tower", 2 * size, size, count=depth)
    groups += parts.linear(f"{path}.lconv1d.linear_end", "tower", size, size, count=depth)
    groups.append(parts.tensor(f"{path}.lconv1d.depthwise_conv1d", "tower", (size, 1, kernel), count=depth))
    for name in (
        "attention.pre_attn_norm",
        "attention.post_norm",
        "lconv1d.pre_layer_norm",
        "lconv1d.conv_norm",
        "norm",
    ):
        groups += norm(parts, f"{path}.{name}", size, bias=False, count=depth)
    tokens = reading.top.get("audio_soft_tokens_per_image", default=188, high=1 << 20)
    return [tower_of("audio", size, depth, groups, heads, tokens=tokens)], groups


def _front(reading: Reading, size: int, channels: tuple[int, ...], bins: int) -> list[TensorGroup]:
    """Two convolutions that halve time and frequency, and a projection."""
    parts, path = reading.parts.at("tower"), "audio_tower.subsample_conv_projection"
    groups: list[TensorGroup] = []
    before = 1
    for i, after in enumerate(channels):
        groups.append(parts.tensor(f"{path}.conv_{i}.conv", "tower", (after, before, 3, 3)))
        groups += norm(parts, f"{path}.conv_{i}.norm", after, bias=False)
        before = after
    return groups + parts.linear(f"{path}.input_proj_linear", "tower", size, before * bins // 2 ** len(channels))


READERS: Final[dict[str, Reader]] = {
    "Gemma3nForCausalLM": text,
    "Gemma3nForConditionalGeneration": with_towers(text, _vision, _audio),
    "Gemma3nTextModel": pooled(text, "embed"),
}
