"""The vision towers of Qwen-VL, Qwen3.5 and GLM-V: three-dimensional patches, merged two by two.

Sources: modelling classes of transformers 5.24 and element counts of public files. How many patches an item has
is decided by the processor, so it is not in these configs.
"""

from __future__ import annotations

from typing import Final

from kvplanner.model.config.fields import Fields
from kvplanner.model.config.parts import Parts
from kvplanner.model.config.reading import Reading
from kvplanner.model.spec import Tower
from kvplanner.model.tensors import TensorGroup
from kvplanner.model.towers.vision import GATED, MAX_DEPTH, Encoder, conv, norm, table, tower_of, vision_fields

_FUSED: Final = ("qkv", "qkv", "qkv")


def _sizes(fields: Fields, size_name: str = "hidden_size") -> tuple[int, int, int, int]:
    """Width, depth, heads, and patches joined per token."""
    size, depth = fields.need(size_name, high=1 << 20), fields.need("depth", high=MAX_DEPTH)
    heads = fields.need("num_heads", high=1 << 12)
    merge = fields.get("spatial_merge_size", default=2, high=64)
    return size, depth, heads, merge * merge


def _patch(fields: Fields, parts: Parts, size: int, *, bias: bool) -> list[TensorGroup]:
    channels = fields.get("in_channels", "in_chans", default=3, high=64)
    patch, frames = fields.need("patch_size", high=1 << 12), fields.get("temporal_patch_size", default=2, high=64)
    fields.skip("in_chans", "in_channels", "spatial_patch_size")
    return conv(parts, "visual.patch_embed.proj", (size, channels, frames, patch, patch), bias=bias)


def qwen2_vl(reading: Reading, hidden: int) -> tuple[list[Tower], list[TensorGroup]]:
    """Qwen2-VL: LayerNorm and a plain feed-forward."""
    fields, parts = vision_fields(reading), reading.parts.at("tower")
    size, depth, heads, merge = _sizes(fields, "embed_dim")
    fields.skip("hidden_size")
    groups = _patch(fields, parts, size, bias=False)
    layer = Encoder("attn", _FUSED, "proj", ("norm1", "norm2"))
    groups += layer.layers(parts, "visual.blocks", depth, size, size * fields.get("mlp_ratio", default=4, high=64))
    fields.close()
    groups += norm(parts, "visual.merger.ln_q", size)
    groups += parts.linear("visual.merger.mlp.0", "tower", size * merge, size * merge, "column", bias=True)
    groups += parts.linear("visual.merger.mlp.2", "tower", hidden, size * merge, "row", bias=True)
    return [tower_of("vision", size, depth, groups, heads)], groups


def qwen2_5_vl(reading: Reading, hidden: int) -> tuple[list[Tower], list[TensorGroup]]:
    """Qwen2.5-VL: RMS norms, a gated feed-forward, windows in most layers."""
    fields, parts = vision_fields(reading), reading.parts.at("tower")
    size, depth, heads, merge = _sizes(fields)
    fields.skip("out_hidden_size", "window_size", "fullatt_block_indexes")
    groups = _patch(fields, parts, size, bias=False)
    layer = Encoder("attn", _FUSED, "proj", ("norm1", "norm2"), norm_bias=False, mlp_names=GATED, gated=True)
    groups += layer.layers(parts, "visual.blocks", depth, size, fields.need("intermediate_size"))
    fields.close()
    groups += norm(parts, "visual.merger.ln_q", size, bias=False)
    groups += parts.linear("visual.merger.mlp.0", "tower", size * merge, size * merge, "column", bias=True)
    groups += parts.linear("visual.merger.mlp.2", "tower", hidden, size * merge, "row", bias=True)
    return [tower_of("vision", size, depth, groups, heads)], groups


def qwen3_vl(reading: Reading, hidden: int) -> tuple[list[Tower], list[TensorGroup]]:
    """Qwen3-VL and Qwen3.5 to 3.8: learnt positions, and one more merger for each deep-stack level."""
    fields, parts = vision_fields(reading), reading.parts.at("tower")
    size, depth, heads, merge = _sizes(fields)
    out = fields.get("out_hidden_size", default=hidden, high=1 << 20)
    fields.noted("deepstack_visual_indexes")
    levels = len(fields.ints("deepstack_visual_indexes") or ())
    groups = _patch(fields, parts, size, bias=True)
    groups.append(table(parts, "visual.pos_embed", fields.need("num_position_embeddings", high=1 << 24), size))
    layer = Encoder("attn", _FUSED, "proj", ("norm1", "norm2"), mlp_names=("", "linear_fc1", "linear_fc2"))
    groups += layer.layers(parts, "visual.blocks", depth, size, fields.need("intermediate_size"))
    fields.close()
    wide = size * merge
    groups += norm(parts, "visual.merger.norm", size) + _merger(parts, "visual.merger", wide, out, 1)
    if levels:
        path = "visual.deepstack_merger_list"
        groups += norm(parts, f"{path}.norm", wide, count=levels) + _merger(parts, path, wide, out, levels)
    return [tower_of("vision", size, depth, groups, heads)], groups


def _merger(parts: Parts, path: str, wide: int, out: int, count: int) -> list[TensorGroup]:
    groups = parts.linear(f"{path}.linear_fc1", "tower", wide, wide, "column", bias=True, count=count)
    return groups + parts.linear(f"{path}.linear_fc2", "tower", out, wide, "row", bias=True, count=count)


def optional_qwen3_vl(reading: Reading, hidden: int) -> tuple[list[Tower], list[TensorGroup]]:
    """Qwen3.5: the tower is absent in text-only configs."""
    reading.top.noted("vision_config")
    return qwen3_vl(reading, hidden) if reading.top.has("vision_config") else ([], [])


def glm4v(reading: Reading, hidden: int) -> tuple[list[Tower], list[TensorGroup]]:
    """GLM-4.1V: patches joined by a convolution, then a gated merger of the tower's own stated width."""
    fields, parts = vision_fields(reading), reading.parts.at("tower")
    size, depth, heads, merge = _sizes(fields)
    bias = fields.flag("attention_bias", default=False)
    out = fields.get("out_hidden_size", default=hidden, high=1 << 20)
    side = fields.need("image_size", high=1 << 16) // fields.need("patch_size", high=1 << 12)
    groups = _patch(fields, parts, size, bias=True)
    groups.append(table(parts, "visual.embeddings.position_embedding", side * side, size))
    layer = Encoder("attn", _FUSED, "proj", ("norm1", "norm2"), norm_bias=False, qkv_bias=bias, out_bias=False,
                    mlp_names=GATED, mlp_bias=False, gated=True)  # fmt: skip
    groups += layer.layers(parts, "visual.blocks", depth, size, out)
    groups += norm(parts, "visual.post_conv_layernorm", size, bias=False)
    groups += norm(parts, "visual.post_layernorm", size, bias=False)
    root = int(merge**0.5)
    groups += conv(parts, "visual.downsample", (out, size, root, root), bias=True)
    width = fields.need("intermediate_size")
    fields.close()
    groups += parts.linear("visual.merger.proj", "tower", out, out)
    groups += norm(parts, "visual.merger.post_projection_norm", out)
    for name in GATED[:2]:
        groups += parts.linear(f"visual.merger.{name}", "tower", width, out, "column", fused="gate_up_proj")
    groups += parts.linear("visual.merger.down_proj", "tower", out, width, "row")
    return [tower_of("vision", size, depth, groups, heads)], groups
