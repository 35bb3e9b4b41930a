"""The vision towers of Llama 4, Llama 3.2 Vision, Kimi, MiniMax-M3, Muse and Phi-3 Vision.

Sources: modelling classes of transformers 5.24; for Kimi and Phi-3 Vision, which it lacks, the published byte and
element counts.
"""

from __future__ import annotations

from typing import Final

from kvplanner.model.config.reading import Reading
from kvplanner.model.spec import Tower
from kvplanner.model.tensors import TensorGroup
from kvplanner.model.towers.vision import MAX_DEPTH, Encoder, clip, conv, norm, square, table, tower_of, vision_fields

Found = tuple[list[Tower], list[TensorGroup]]
# Phi-3 Vision names its tower and states no sizes: width, depth, MLP, patch, patches of CLIP ViT-L/14 at 336 pixels.
_CLIP_L_336: Final = (1024, 24, 4096, 14, 576)


def llama4(reading: Reading, hidden: int) -> Found:
    """Llama 4: pixels shuffled two by two into an adapter, then one projection."""
    fields, parts = vision_fields(reading), reading.parts.at("tower")
    size, depth = fields.need("hidden_size", high=1 << 20), fields.need("num_hidden_layers", high=MAX_DEPTH)
    heads, patch = fields.need("num_attention_heads", high=1 << 12), square(fields, "patch_size")
    image, channels = square(fields, "image_size"), fields.get("num_channels", default=3, high=64)
    fields.skip("vision_output_dim", "projector_output_dim", "vision_feature_layer")
    adapter_in, ratio = fields.need("projector_input_dim", high=1 << 20), fields.number("pixel_shuffle_ratio") or 0.5
    if not 0.1 <= ratio <= 1:
        raise fields.bad("pixel_shuffle_ratio", "a share from 0.1 to 1")
    fields.expect("multi_modal_projector_bias", False)
    width = fields.need("intermediate_size")
    patches, tokens = (image // patch) ** 2, int((image // patch) ** 2 * ratio * ratio)
    path = "vision_model"
    groups = [table(parts, f"{path}.class_embedding", size)]
    groups.append(table(parts, f"{path}.positional_embedding_vlm", patches + 1, size))
    groups += parts.linear(f"{path}.patch_embedding.linear", "tower", size, channels * patch * patch, "column")
    groups += norm(parts, f"{path}.layernorm_pre", size) + norm(parts, f"{path}.layernorm_post", size)
    layer = Encoder(out="o_proj", norms=("input_layernorm", "post_attention_layernorm"))
    groups += layer.layers(parts, f"{path}.model.layers", depth, size, width)
    fields.close()
    shuffled = int(size / (ratio * ratio))
    groups += parts.linear(f"{path}.vision_adapter.mlp.fc1", "tower", adapter_in, shuffled, "column")
    groups += parts.linear(f"{path}.vision_adapter.mlp.fc2", "tower", adapter_in, adapter_in, "row")
    groups += parts.linear("multi_modal_projector.linear_1", "tower", hidden, adapter_in, "column")
    return [tower_of("vision", size, depth, groups, heads, patches, tokens)], groups


def mllama(reading: Reading, hidden: int) -> Found:
    """Llama 3.2 Vision: tiles with gated positions, a second stack of global layers, outputs of several layers."""
    fields, parts = vision_fields(reading), reading.parts.at("tower")
    size, depth = fields.need("hidden_size", high=1 << 20), fields.need("num_hidden_layers", high=MAX_DEPTH)
    deep = fields.need("num_global_layers", high=MAX_DEPTH)
    heads, patch = fields.need("attention_heads", "num_attention_heads", high=1 << 12), square(fields, "patch_size")
    image, channels = square(fields, "image_size"), fields.get("num_channels", default=3, high=64)
    tiles, width = fields.need("max_num_tiles", high=64), fields.need("intermediate_size")
    ratios = fields.values.get("supported_aspect_ratios")
    kinds = fields.maybe("max_aspect_ratio_id", high=1 << 10) or (len(ratios) if isinstance(ratios, list) else 8)
    taken = len(fields.ints("intermediate_layers_indices") or ())
    if not taken:
        raise fields.missing("intermediate_layers_indices")
    fields.skip("vision_output_dim", "supported_aspect_ratios")
    patches = (image // patch) ** 2 + 1
    path = "vision_model"
    groups = [table(parts, f"{path}.class_embedding", size)]
    groups += conv(parts, f"{path}.patch_embedding", (size, channels, patch, patch), bias=False)
    positions = f"{path}.gated_positional_embedding"
    groups += [table(parts, f"{positions}.gate", 1), table(parts, f"{positions}.embedding", patches, size)]
    groups.append(table(parts, f"{positions}.tile_embedding", kinds + 1, tiles * patches * size))
    for name in ("pre_tile", "post_tile"):
        groups.append(table(parts, f"{path}.{name}_positional_embedding.gate", 1))
        groups.append(table(parts, f"{path}.{name}_positional_embedding.embedding", kinds + 1, tiles * size))
    groups += norm(parts, f"{path}.layernorm_pre", size) + norm(parts, f"{path}.layernorm_post", size)
    layer = Encoder(out="o_proj", norms=("input_layernorm", "post_attention_layernorm"), qkv_bias=False, out_bias=False)
    groups += layer.layers(parts, f"{path}.transformer.layers", depth, size, width)
    groups += layer.layers(parts, f"{path}.global_transformer.layers", deep, size, width)
    for name in ("gate_attn", "gate_ffn"):
        groups.append(parts.tensor(f"{path}.global_transformer.layers.{name}", "tower", (1,), count=deep))
    fields.close()
    groups += parts.linear("multi_modal_projector", "tower", hidden, size * (taken + 1), "column", bias=True)
    return [tower_of("vision", size, depth + deep, groups, heads, tiles * patches, tiles * patches)], groups


def moonvit(reading: Reading, hidden: int) -> Found:
    """Kimi-K2.5 to K2.7: MoonViT with learnt two-dimensional positions and a patch merger."""
    fields, parts = vision_fields(reading), reading.parts.at("tower")
    size, depth = fields.need("vt_hidden_size", high=1 << 20), fields.need("vt_num_hidden_layers", high=MAX_DEPTH)
    heads, width = fields.need("vt_num_attention_heads", high=1 << 12), fields.need("vt_intermediate_size")
    patch, merge = fields.need("patch_size", high=1 << 12), fields.ints("merge_kernel_size", low=1, high=64) or (2, 2)
    high, wide = fields.need("init_pos_emb_height", high=1 << 12), fields.need("init_pos_emb_width", high=1 << 12)
    fields.skip("mm_hidden_size", "text_hidden_size")
    for name, only in (("mm_projector_type", "patchmerger"), ("pos_emb_type", "divided_fixed")):
        fields.expect(name, only)
    fields.close()
    groups = conv(parts, "vision_tower.patch_embed.proj", (size, 3, patch, patch), bias=True)
    groups.append(parts.tensor("vision_tower.patch_embed.pos_emb.weight", "tower", (high, wide, size)))
    layer = Encoder("", ("wqkv", "wqkv", "wqkv"), "wo", ("norm0", "norm1"), mlp_names=("", "fc0", "fc1"))
    groups += layer.layers(parts, "vision_tower.encoder.blocks", depth, size, width)
    groups += norm(parts, "vision_tower.encoder.final_layernorm", size)
    joined = size * merge[0] * merge[-1]
    groups += norm(parts, "mm_projector.pre_norm", size)
    groups += parts.linear("mm_projector.proj.0", "tower", joined, joined, bias=True)
    groups += parts.linear("mm_projector.proj.2", "tower", hidden, joined, bias=True)
    return [tower_of("vision", size, depth, groups, heads)], groups


def moonvit2(reading: Reading, hidden: int) -> Found:
    """Kimi-K3: the same tower without biases, with RMS norms and attention wider than itself."""
    fields, parts = vision_fields(reading), reading.parts.at("tower")
    size, depth = fields.need("vt_hidden_size", high=1 << 20), fields.need("vt_num_hidden_layers", high=MAX_DEPTH)
    heads, width = fields.need("vt_num_attention_heads", high=1 << 12), fields.need("vt_intermediate_size")
    inner, patch = fields.need("qkv_hidden_size", high=1 << 20), fields.need("patch_size", high=1 << 12)
    merge = fields.ints("merge_kernel_size", low=1, high=64) or (2, 2)
    high, wide = fields.need("init_pos_emb_height", high=1 << 12), fields.need("init_pos_emb_width", high=1 << 12)
    fields.skip("mm_hidden_size", "text_hidden_size")
    for name in ("attn_bias", "linear_bias", "patch_embed_proj_bias"):
        fields.expect(name, False)
    fields.expect("mm_projector_type", "patchmergerv2")
    fields.close()
    groups = conv(parts, "vision_tower.patch_embed.proj", (size, 3, patch, patch), bias=False)
    groups.append(parts.tensor("vision_tower.patch_embed.pos_emb.weight", "tower", (high, wide, size)))
    layer = Encoder("", ("wqkv", "wqkv", "wqkv"), "wo", ("norm0", "norm1"), norm_bias=False, qkv_bias=False,
                    out_bias=False, mlp_names=("", "fc0", "fc1"), mlp_bias=False)  # fmt: skip
    groups += layer.layers(parts, "vision_tower.encoder.blocks", depth, size, width, inner)
    groups += norm(parts, "vision_tower.encoder.final_layernorm", size, bias=False)
    joined = size * merge[0] * merge[-1]
    groups += norm(parts, "mm_projector.pre_norm", size, bias=False)
    groups += parts.linear("mm_projector.proj.0", "tower", joined, joined)
    groups += parts.linear("mm_projector.proj.2", "tower", hidden, joined)
    return [tower_of("vision", size, depth, groups, heads)], groups


def minimax_m3(reading: Reading, hidden: int) -> Found:
    """MiniMax-M3: a CLIP-like tower, a projector, and a merger of two by two patches."""
    fields, parts, top = vision_fields(reading), reading.parts.at("tower"), reading.top
    size, depth = fields.need("hidden_size", high=1 << 20), fields.need("num_hidden_layers", high=MAX_DEPTH)
    heads, width = fields.need("num_attention_heads", high=1 << 12), fields.need("intermediate_size")
    patch, channels = square(fields, "patch_size"), fields.get("num_channels", default=3, high=64)
    merging = fields.sub("img_token_compression_config")
    if merging is None:
        raise fields.missing("img_token_compression_config")
    merging.expect("image_token_compression_method", "patch_merge")
    frames, merge = merging.need("temporal_patch_size", high=64), merging.need("spatial_merge_size", high=64)
    fields.skip("projection_dim", "vocab_size", "vision_segment_max_frames", "position_embedding_type")
    top.skip("num_reward_heads", "vision_feature_layer")
    if top.values.get("img_token_compression_config") == merging.values:
        top.skip("img_token_compression_config")
    bias, wide = top.flag("multimodal_projector_bias", default=True), top.need("projector_hidden_size", high=1 << 20)
    fields.close()
    groups = conv(parts, "vision_tower.embeddings.proj", (size, channels, frames, patch, patch), bias=False)
    groups += norm(parts, "vision_tower.pre_layrnorm", size)
    groups += Encoder().layers(parts, "vision_tower.layers", depth, size, width)
    groups += parts.linear("multi_modal_projector.linear_1", "tower", wide, size, "column", bias=bias)
    groups += parts.linear("multi_modal_projector.linear_2", "tower", hidden, wide, "row", bias=bias)
    groups += parts.linear("patch_merge_mlp.linear_1", "tower", wide, hidden * merge * merge, "column", bias=bias)
    groups += parts.linear("patch_merge_mlp.linear_2", "tower", hidden, wide, "row", bias=bias)
    return [tower_of("vision", size, depth, groups, heads)], groups


def muse(reading: Reading, hidden: int) -> Found:
    """Muse Glimmer: a windowed tower, a two-layer adapter and a projection."""
    fields, parts, top = vision_fields(reading), reading.parts.at("tower"), reading.top
    size, depth = fields.need("hidden_size", high=1 << 20), fields.need("num_hidden_layers", high=MAX_DEPTH)
    heads, width = fields.need("num_attention_heads", high=1 << 12), fields.need("intermediate_size")
    patch, frames = square(fields, "patch_size"), fields.get("patch_temporal", default=2, high=64)
    merge = fields.get("merge_size", default=2, high=64)
    rows = fields.need("pos_emb_height", high=1 << 12) * fields.need("pos_emb_width", high=1 << 12)
    fields.skip("max_position_embeddings", "layer_types", "window_size")
    fields.close()
    path = "vision_tower"
    groups = parts.linear(f"{path}.patch_embedder.patch_embedding", "tower", size, 3 * frames * patch * patch)
    groups.append(table(parts, f"{path}.patch_embedder.position_embedding_table", rows, size))
    groups += norm(parts, f"{path}.ln_pre", size) + norm(parts, f"{path}.ln_post", size)
    layer = Encoder("attn", out="proj", norms=("norm1", "norm2"))
    groups += layer.layers(parts, f"{path}.layers", depth, size, width)
    inner = top.need("projector_hidden_size", high=1 << 20)
    joined = top.get("out_hidden_size", default=size * merge * merge, high=1 << 24)
    groups += parts.linear("vision_adapter.fc1", "tower", inner, joined, "column")
    groups += parts.linear("vision_adapter.fc2", "tower", inner, inner, "row")
    groups += parts.linear("vision_projection", "tower", hidden, inner)
    return [tower_of("vision", size, depth, groups, heads)], groups


def phi3_vision(reading: Reading, hidden: int) -> Found:
    """Phi-3 Vision: CLIP ViT-L/14 at 336 pixels, named but not described, and a two-layer projector."""
    top, parts = reading.top, reading.parts.at("tower")
    image, embed = top.sub("img_processor"), top.sub("embd_layer")
    if image is None or embed is None:
        raise top.missing("img_processor", "embd_layer")
    image.expect("model_name", "openai/clip-vit-large-patch14-336")
    image.expect("image_dim_out", 1024)
    embed.expect("projection_cls", "mlp")
    size, depth, width, patch, patches = _CLIP_L_336
    path = "model.vision_embed_tokens"
    groups = clip(parts, f"{path}.img_processor.vision_model", size, depth, width, patch, patches)
    groups += parts.linear(f"{path}.img_projection.0", "tower", hidden, size * 4, bias=True)
    groups += parts.linear(f"{path}.img_projection.2", "tower", hidden, hidden, bias=True)
    groups += [table(parts, f"{path}.{name}", size * 4) for name in ("glb_GN", "sub_GN")]
    return [tower_of("vision", size, depth, groups, 16, patches, 144)], groups
