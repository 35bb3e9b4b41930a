"""Models with encoders of their own: DeepSeek-VL2 and -OCR, dots.ocr, Kimi-VL, Ovis, Molmo and others.

Sources: the classes of vLLM 0.33 (deepseek_vl2.py, deepencoder.py, dots_ocr.py, kimi_vl.py, ovis.py, keye.py, molmo.py,
step3_vl.py, ernie45_vl.py, glm_ocr.py, paddleocr_vl.py) and of transformers 5.24; element counts of public files.
"""

from __future__ import annotations

from typing import Final

from kvplanner.errors import NotModelled
from kvplanner.model.config.decoder import Decoder
from kvplanner.model.config.fields import Fields
from kvplanner.model.config.parts import Parts
from kvplanner.model.config.reading import Draft, Reader, Reading
from kvplanner.model.families.dense import GLM4
from kvplanner.model.families.vision import Found, two_linear, visual_fields, with_encoder
from kvplanner.model.tensors import TensorGroup
from kvplanner.model.towers.kinds import (
    FUSED,
    Seen,
    pixtral_encoder,
    pooling_head,
    siglip2_encoder,
    siglip_encoder,
    usual_sizes,
)
from kvplanner.model.towers.vision import GATED, MAX_DEPTH, Encoder, clip, conv, norm, square, table


def _as(reading: Reading, name: str) -> Draft:
    return reading.as_another(name)


# --- DeepSeek-VL2 and DeepSeek-OCR ----------------------------------------------------------------


def _deepseek_text(reading: Reading) -> Draft:
    """The decoder, by what the nested config says: latent attention, or the first DeepSeek's without it."""
    text = reading.text
    text.skip("lm_head", "rm_head", "topk_method", "use_mla")
    if text.values.get("topk_method") == "noaux_tc":
        return reading.as_another("DeepseekV3ForCausalLM")
    if text.values.get("use_mla") is False or not text.has("kv_lora_rank"):
        text.skip("kv_lora_rank", "q_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "n_group",
                  "topk_group", "ep_size")  # fmt: skip
        return reading.as_another("DeepseekForCausalLM")
    return reading.as_another("DeepseekV2ForCausalLM")


def _separators(parts: Parts, width: int, *names: str) -> list[TensorGroup]:
    return [table(parts, name, width) for name in names]


def _deepseek_vl2(reading: Reading, hidden: int) -> Found:
    """DeepSeek-VL2: timm's SigLIP, patches joined two by two, a feed-forward projector."""
    top, parts, path = reading.top, reading.parts.at("tower"), "vision.blocks"
    fields = visual_fields(reading, "vision_config")
    fields.expect("model_name", "siglip_so400m_patch14_384")
    size, depth = fields.get("width", default=1152, high=1 << 20), fields.get("layers", default=27, high=MAX_DEPTH)
    ratio, image = fields.number("mlp_ratio") or 3.7362, fields.get("image_size", default=384, high=1 << 16)
    patch, heads = fields.get("patch_size", default=14, high=1 << 12), fields.get("heads", default=16, high=1 << 12)
    fields.close()
    patches, width = (image // patch) ** 2, int(size * ratio)
    groups = conv(parts, "vision.patch_embed.proj", (size, 3, patch, patch), bias=True)
    groups.append(table(parts, "vision.pos_embed", patches, size))
    layer = Encoder("attn", FUSED, "proj", ("norm1", "norm2"), mlp_names=("", "fc1", "fc2"))
    groups += layer.layers(parts, path, depth, size, width)
    groups += norm(parts, "vision.norm", size)
    # The stored tower has its pooling head, which the engine leaves out.
    proj = visual_fields(reading, "projector_config")
    out, down = proj.get("n_embed", default=hidden, high=1 << 20), proj.get("downsample_ratio", default=2, high=64)
    inp, wide = proj.get("input_dim", default=size, high=1 << 20), proj.get("mlp_ratio", default=1, high=64)
    layers = proj.get("depth", default=2, high=64)
    proj.expect("projector_type", "downsample_mlp_gelu")
    proj.close()
    top.skip("candidate_resolutions", "tile_tag", "global_view_pos")
    groups += parts.linear("projector.layers.0", "tower", out * wide, inp * down * down, bias=True)
    for i in range(1, layers - 1):
        groups += parts.linear(f"projector.layers.{2 * i}", "tower", out * wide, out * wide, bias=True)
    groups += parts.linear(f"projector.layers.{2 * (layers - 1)}", "tower", out, out * wide, bias=True)
    groups += _separators(parts, out, "image_newline", "view_seperator")
    return Seen(size, depth, heads, patches, groups).tower([], patches // (down * down))


def _sam(parts: Parts, out: int) -> list[TensorGroup]:
    """SAM's ViT-B: windows in eight of twelve layers, relative positions, three convolutions behind it."""
    size, path = 768, "sam_model"
    groups = conv(parts, f"{path}.patch_embed.proj", (size, 3, 16, 16), bias=True)
    groups.append(parts.tensor(f"{path}.pos_embed", "tower", (1, 64, 64, size)))
    layer = Encoder("attn", FUSED, "proj", ("norm1", "norm2"), mlp_names=("", "lin1", "lin2"))
    groups += layer.layers(parts, f"{path}.blocks", 12, size, 4 * size)
    for rows, count in ((27, 8), (127, 4)):
        for axis in ("h", "w"):
            groups.append(parts.tensor(f"{path}.blocks.attn.rel_pos_{axis}", "tower", (1, rows, 64), count=count))
    groups += conv(parts, f"{path}.neck.0", (256, size, 1, 1), bias=False) + norm(parts, f"{path}.neck.1", 256)
    groups += conv(parts, f"{path}.neck.2", (256, 256, 3, 3), bias=False) + norm(parts, f"{path}.neck.3", 256)
    groups += conv(parts, f"{path}.net_2", (512, 256, 3, 3), bias=False)
    return groups + conv(parts, f"{path}.net_3", (out, 512, 3, 3), bias=False)


# The encoders of DeepSeek-OCR and -OCR 2 by the names that `width` gives them, with the sizes of their classes.
_OCR_ENCODERS: Final[dict[str, dict[str, object]]] = {
    "clip-l-14-224": {"layers": 24, "width": 1024}, "sam_vit_b": {"layers": 12, "width": 768},
    "qwen2-0-5b": {"dim": 896},
}  # fmt: skip


def _ocr_projector(reading: Reading, hidden: int, seen: int) -> tuple[list[TensorGroup], int]:
    """One matrix from the encoder's width."""
    proj = visual_fields(reading, "projector_config")
    out, inp = proj.get("n_embed", default=hidden, high=1 << 20), proj.get("input_dim", default=seen, high=1 << 20)
    proj.expect("projector_type", "linear")
    proj.close()
    reading.top.skip("candidate_resolutions", "tile_tag", "global_view_pos")
    # The dictionary of the encoder names it; its sizes are those of its class.
    vision = visual_fields(reading, "vision_config")
    vision.skip("mlp_ratio", "image_size", "model_name")
    widths = vision.sub("width")
    for name, sizes in _OCR_ENCODERS.items():
        inner = widths.sub(name) if widths is not None else None
        if inner is not None:
            for field, only in sizes.items():
                inner.expect(field, only)
            inner.skip("heads", "image_size", "patch_size", "downsample_channels", "global_attn_indexes")
    return reading.parts.at("tower").linear("projector.layers", "tower", out, inp, bias=True), out


def _deepseek_ocr(reading: Reading, hidden: int) -> Found:
    """DeepSeek-OCR: SAM, then CLIP-L over its output."""
    parts = reading.parts.at("tower")
    groups = _sam(parts, 1024)
    made = clip(parts, "vision_model", 1024, 24, 4096, 14, 256)
    groups += [g for g in made if "post_layernorm" not in g.path]
    proj, out = _ocr_projector(reading, hidden, 2048)
    groups += proj + _separators(parts, out, "image_newline", "view_seperator")
    return Seen(1024, 24, 16, 4096, groups).tower([], 256)


def _deepseek_ocr2(reading: Reading, hidden: int) -> Found:
    """DeepSeek-OCR 2: SAM, then a small Qwen2 that sees all of its output and asks with learnt queries."""
    parts, size, path = reading.parts.at("tower"), 896, "qwen2_model.model"
    groups = _sam(parts, 896)
    for name, rows, bias in (("q_proj", size, True), ("k_proj", 128, True), ("v_proj", 128, True),
                             ("o_proj", size, False)):  # fmt: skip
        groups += parts.linear(f"{path}.layers.self_attn.{name}", "tower", rows, size, bias=bias, count=24)
    for name, rows, inp in (("gate_proj", 4864, size), ("up_proj", 4864, size), ("down_proj", size, 4864)):
        groups += parts.linear(f"{path}.layers.mlp.{name}", "tower", rows, inp, count=24)
    for name in ("input_layernorm", "post_attention_layernorm"):
        groups += norm(parts, f"{path}.layers.{name}", size, bias=False, count=24)
    groups += norm(parts, f"{path}.norm", size, bias=False)
    groups += [table(parts, "qwen2_model.query_768", 144, size), table(parts, "qwen2_model.query_1024", 256, size)]
    proj, out = _ocr_projector(reading, hidden, size)
    return Seen(size, 24, 14, 4096, groups).tower(proj + _separators(parts, out, "view_seperator"), 256)


# --- others ---------------------------------------------------------------------------------------


def _dots_ocr(reading: Reading, hidden: int) -> Found:
    """dots.ocr: RMS norms, a gated feed-forward, patches merged two by two."""
    fields, parts, path = visual_fields(reading, "vision_config"), reading.parts.at("tower"), "vision_tower"
    fields.skip("hidden_size", "init_merger_std", "temporal_patch_size", "attn_implementation", "is_causal",
                "gradient_checkpointing", "initializer_range", "rms_norm_eps")  # fmt: skip
    size, depth = fields.get("embed_dim", default=1536, high=1 << 20), fields.get("num_hidden_layers", default=42,
                                                                                  high=MAX_DEPTH)  # fmt: skip
    heads, width = fields.get("num_attention_heads", default=12), fields.get("intermediate_size", default=4224)
    patch, merge = fields.get("patch_size", default=14), fields.get("spatial_merge_size", default=2, high=64)
    bias, post = fields.flag("use_bias", default=False), fields.flag("post_norm", default=True)
    channels = fields.get("num_channels", default=3, high=64)
    fields.close()
    groups = conv(parts, f"{path}.patch_embed.patchifier.proj", (size, channels, patch, patch), bias=True)
    groups += norm(parts, f"{path}.patch_embed.patchifier.norm", size, bias=False)
    layer = Encoder("attn", FUSED, "proj", ("norm1", "norm2"), norm_bias=False, qkv_bias=bias, out_bias=bias,
                    mlp_names=("fc1", "fc3", "fc2"), mlp_bias=bias, gated=True)  # fmt: skip
    groups += layer.layers(parts, f"{path}.blocks", depth, size, width)
    if post:
        groups += norm(parts, f"{path}.post_trunk_norm", size, bias=False)
    wide = size * merge * merge
    groups += norm(parts, f"{path}.merger.ln_q", size)
    groups += two_linear(parts, f"{path}.merger.mlp", wide, hidden, inner=wide, names=("0", "2"))
    return Seen(size, depth, heads, None, groups).tower([])


def _glm_ocr(reading: Reading, hidden: int) -> Found:
    """GLM-OCR: norms over query and key, biases everywhere, no positions, GLM-V's merger."""
    fields, parts, path = visual_fields(reading, "vision_config"), reading.parts.at("tower"), "visual"
    size, depth = fields.need("hidden_size", high=1 << 20), fields.need("depth", high=MAX_DEPTH)
    heads, width = fields.need("num_heads"), fields.need("intermediate_size")
    out = fields.get("out_hidden_size", default=hidden)
    bias, merge = fields.flag("attention_bias", default=True), fields.get("spatial_merge_size", default=2, high=64)
    patch, frames = fields.need("patch_size"), fields.get("temporal_patch_size", default=2, high=64)
    channels = fields.get("in_channels", default=3, high=64)
    fields.skip("image_size")
    fields.close()
    groups = conv(parts, f"{path}.patch_embed.proj", (size, channels, frames, patch, patch), bias=True)
    layer = Encoder("attn", FUSED, "proj", ("norm1", "norm2"), norm_bias=False, qkv_bias=bias, out_bias=bias,
                    mlp_names=GATED, mlp_bias=bias, gated=True)  # fmt: skip
    groups += layer.layers(parts, f"{path}.blocks", depth, size, width)
    for name in ("q_norm", "k_norm"):
        groups += norm(parts, f"{path}.blocks.attn.{name}", size // heads, bias=False, count=depth)
    groups += norm(parts, f"{path}.post_layernorm", size, bias=False)
    groups += conv(parts, f"{path}.downsample", (out, size, merge, merge), bias=True)
    inner = out * channels
    groups += parts.linear(f"{path}.merger.proj", "tower", out, out)
    groups += norm(parts, f"{path}.merger.post_projection_norm", out)
    for name in GATED[:2]:
        groups += parts.linear(f"{path}.merger.{name}", "tower", inner, out, "column", fused="gate_up_proj")
    groups += parts.linear(f"{path}.merger.down_proj", "tower", out, inner, "row")
    return Seen(size, depth, heads, None, groups).tower([])


def _paddle(reading: Reading, hidden: int) -> Found:
    """PaddleOCR-VL and Keye: SigLIP, a norm before the patches are joined, a projector as wide as the joined ones."""
    fields, parts = visual_fields(reading, "vision_config"), reading.parts.at("tower")
    merge = fields.get("spatial_merge_size", default=2, high=64)
    fields.skip("temporal_patch_size", "tokens_per_second", "has_learnable_position_embedding", "rope_mode")
    reading.text.skip("weight_share_add_bias", "use_3d_rope", "compression_ratio", "use_flash_attention")
    seen = siglip_encoder(fields, parts, "visual.vision_model")
    width = fields.need("intermediate_size")
    fields.close()
    wide = seen.size * merge * merge
    # Files of their own classes, with the text's fields at the top, hold SigLIP's head and a second table of positions.
    if reading.text is reading.top:
        seen.groups.append(table(parts, "visual.vision_model.embeddings.packing_position_embedding", 32_768, seen.size))
        seen.groups.extend(pooling_head(parts, "visual.vision_model.head", seen.size, width))
    first = wide if reading.architecture.startswith("KeyeVL1_5") else seen.size
    proj = norm(parts, "mlp_AR.pre_norm", first)
    return seen.tower(proj + two_linear(parts, "mlp_AR", wide, hidden, inner=wide))


def _lighton(reading: Reading, hidden: int) -> Found:
    """LightOnOCR: Pixtral's tower and Mistral 3's projector without biases."""
    top, parts, path = reading.top, reading.parts.at("tower"), "vision_projection"
    merge = top.get("spatial_merge_size", default=2, high=64)
    top.skip("vision_feature_layer", "multimodal_projector_bias", "projector_hidden_act")
    fields = visual_fields(reading, "vision_config")
    seen = pixtral_encoder(fields, parts, "vision_encoder")
    fields.close()
    proj = norm(parts, f"{path}.norm", seen.size, bias=False)
    proj += parts.linear(f"{path}.patch_merger.merging_layer", "tower", seen.size, seen.size * merge * merge)
    return seen.tower(proj + two_linear(parts, path, seen.size, hidden, bias=False))


def _pixtral_params(reading: Reading, hidden: int) -> Found:
    """Mistral's own format: its names, and an adapter that merges patches where the config says so."""
    fields, parts, path = visual_fields(reading, "vision_config"), reading.parts.at("tower"), "vision_encoder"
    size, depth = fields.need("hidden_size", high=1 << 20), fields.need("num_hidden_layers", high=MAX_DEPTH)
    heads, width = fields.need("num_attention_heads"), fields.need("intermediate_size")
    patch, channels = fields.need("patch_size"), fields.get("num_channels", default=3, high=64)
    merge, image = fields.get("spatial_merge_size", default=1, high=64), fields.need("image_size", high=1 << 16)
    bias, normed = (
        fields.flag("adapter_bias", default=True),
        fields.flag("add_pre_mm_projector_layer_norm", default=False),
    )
    kind = fields.text("mm_projector_id", allowed=("patch_merge", ""))
    if kind is None:
        fields.took_default("mm_projector_id")
    fields.skip("max_image_size", "rope_theta", "image_token_id", "image_break_token_id", "image_end_token_id")
    fields.close()
    groups = conv(parts, f"{path}.patch_conv", (size, channels, patch, patch), bias=False)
    groups += norm(parts, f"{path}.ln_pre", size, bias=False)
    layer = Encoder("attention", ("wq", "wk", "wv"), "wo", ("attention_norm", "ffn_norm"), norm_bias=False,
                    qkv_bias=False, out_bias=False, mlp="feed_forward", mlp_names=("w1", "w3", "w2"), mlp_bias=False,
                    gated=True)  # fmt: skip
    groups += layer.layers(parts, f"{path}.transformer.layers", depth, size, width)
    if normed:
        groups += norm(parts, "pre_mm_projector_norm", size, bias=False)
    if kind:
        groups += parts.linear("patch_merger.merging_layer", "tower", size, size * merge * merge)
    groups += two_linear(parts, "vision_language_adapter", size, hidden, bias=bias, names=("w_in", "w_out"))
    patches = (image // patch) ** 2
    return Seen(size, depth, heads, patches, groups).tower([], patches // (merge * merge))


def _kimi_vl(reading: Reading, hidden: int) -> Found:
    """Kimi-VL: MoonViT, patches joined two by two."""
    fields, parts, path = visual_fields(reading, "vision_config"), reading.parts.at("tower"), "vision_tower"
    size, depth, heads, width = usual_sizes(fields)
    patch, merge = fields.need("patch_size"), fields.ints("merge_kernel_size", low=1, high=64) or (2, 2)
    high, wide = fields.get("init_pos_emb_height", default=64), fields.get("init_pos_emb_width", default=64)
    fields.close()
    groups = conv(parts, f"{path}.patch_embed.proj", (size, 3, patch, patch), bias=True)
    groups.append(parts.tensor(f"{path}.patch_embed.pos_emb.weight", "tower", (high, wide, size)))
    layer = Encoder("", ("wqkv",) * 3, "wo", ("norm0", "norm1"), mlp_names=("", "fc0", "fc1"))
    groups += layer.layers(parts, f"{path}.encoder.blocks", depth, size, width)
    groups += norm(parts, f"{path}.encoder.final_layernorm", size)
    joined, proj = size * merge[0] * merge[-1], "multi_modal_projector"
    groups += norm(parts, f"{proj}.pre_norm", size) + two_linear(parts, proj, joined, hidden, inner=joined)
    return Seen(size, depth, heads, None, groups).tower([])


def _ovis(reading: Reading, hidden: int) -> Found:
    """Ovis 2.5: SigLIP 2, and a table of visual words that an image's patches are likened to."""
    top, parts, fields = reading.top, reading.parts.at("tower"), visual_fields(reading, "vit_config")
    stride, words = fields.get("hidden_stride", default=2, high=64), top.need("visual_vocab_size", high=1 << 24)
    keep, patches = fields.flag("preserve_original_pe", default=True), fields.maybe("num_patches", low=-1, high=1 << 20)
    fields.skip("use_rope", "window_size", "fullatt_block_indexes", "temporal_patch_size", "disable_rope")
    if patches is not None and patches > 0:
        seen = siglip2_encoder(fields, parts, "visual_tokenizer.vit.vision_model")
    else:
        seen = siglip_encoder(fields, parts, "visual_tokenizer.vit.vision_model")
    fields.close()
    kept = [g for g in seen.groups if keep or "position_embedding" not in g.path]
    head = words - 4
    proj = parts.linear("visual_tokenizer.head.0", "tower", head, seen.size * stride * stride)
    proj += norm(parts, "visual_tokenizer.head.1", head)
    proj.append(table(parts, "vte", words, hidden))
    top.skip("conversation_formatter_class")
    return seen._replace(groups=kept).tower(proj)


def _molmo_text(reading: Reading) -> Draft:
    """Molmo: gate and up in one width, words beyond the vocabulary, norms over whole query and key."""
    text, parts = reading.text, reading.parts
    text.skip("clip_qkv", "norm_after", "use_position_ids", "vocab_size", "weight_tying", "layer_norm_type")
    text.expect("norm_after", False, None)
    width = text.need("intermediate_size", low=2) // 2
    extra = text.get("additional_vocab_size", default=128, low=0, high=1 << 20)
    draft = Decoder(
        qkv_bias=("qkv_bias", False), o_bias=False, qk_norm="full", qk_norm_if=("attention_layer_norm", False),
        vocab_names=("embedding_size", "vocab_size"), width=lambda _: width, attention_path="self_attn",
        qkv=("att_proj",) * 3, o_name="attn_out", mlp_names=("ff_proj", "ff_proj", "ff_out"),
        norms=("attn_norm", "ff_norm"), embed="model.transformer.wte.embedding", final_norm="model.transformer.ln_f",
        head="model.transformer.ff_out",
    )(reading)  # fmt: skip
    more = parts.at("first").tensor("model.transformer.wte.new_embedding", "embedding", (extra, draft.hidden), "vocab")
    return draft._replace(outside=[*draft.outside, *([more] if extra else [])])


def _molmo(reading: Reading, hidden: int) -> Found:
    """CLIP-L without its last layer, outputs of two layers pooled by attention, a gated projector."""
    parts, path, size, width, depth = reading.parts.at("tower"), "vision_backbone.image_vit", 1024, 4096, 23
    inner = reading.text.need("intermediate_size", low=2) // 2
    groups = [table(parts, f"{path}.class_embedding", size), table(parts, f"{path}.positional_embedding", 577, size)]
    groups += parts.linear(f"{path}.patch_embedding", "tower", size, 588) + norm(parts, f"{path}.pre_ln", size)
    layer = Encoder("attention", ("wq", "wk", "wv"), "wo", ("attention_norm", "ffn_norm"), mlp="feed_forward",
                    mlp_names=("", "w1", "w2"))  # fmt: skip
    groups += layer.layers(parts, f"{path}.transformer.resblocks", depth, size, width)
    pool = "vision_backbone.image_pooling_2d"
    for name, inp in (("wq", 2 * size), ("wk", 2 * size), ("wv", 2 * size), ("wo", size)):
        groups += parts.linear(f"{pool}.{name}", "tower", size, inp, bias=True)
    for name in ("w1", "w3"):
        groups += parts.linear(f"vision_backbone.image_projector.{name}", "tower", inner, size, "column")
    groups += parts.linear("vision_backbone.image_projector.w2", "tower", hidden, inner, "row")
    groups.append(table(parts, "vision_backbone.pad_embed", 2, 2 * size))
    return Seen(size, depth, 16, 576, groups).tower([], 144)


def _step3_vl(reading: Reading, hidden: int) -> Found:
    """Step-3: a CLIP-like tower, two convolutions that halve its grid, one matrix."""
    top, fields, parts = reading.top, visual_fields(reading, "vision_config"), reading.parts.at("tower")
    size, depth, heads, width = usual_sizes(fields)
    patch, image = square(fields, "patch_size"), square(fields, "image_size")
    out, channels = fields.get("output_hidden_size", default=4096), fields.get("num_channels", default=3, high=64)
    fields.skip("hidden_act", "layer_norm_eps")
    fields.close()
    top.skip("projector_bias", "understand_projector_stride", "projector_hidden_act", "vision_select_layer")
    patches, path = (image // patch) ** 2, "vision_model"
    groups = [table(parts, f"{path}.embeddings.class_embedding", 1, size)]
    groups += conv(parts, f"{path}.embeddings.patch_embedding", (size, channels, patch, patch), bias=True)
    groups.append(table(parts, f"{path}.embeddings.position_embedding", patches + 1, size))
    groups += Encoder(qkv=("qkv_proj",) * 3).layers(parts, f"{path}.transformer.layers", depth, size, width)
    groups += conv(parts, "vit_downsampler", (out, size, 2, 2), bias=True)
    groups += conv(parts, "vit_downsampler2", (2 * out, out, 3, 3), bias=True)
    bias = bool(top.values.get("projector_bias", True))
    groups += parts.linear("vit_large_projector", "tower", hidden, 2 * out, bias=bias)
    return Seen(size, depth, heads, patches, groups).tower([], 169)


def _aimv2(fields: Fields, parts: Parts, path: str) -> Seen:
    """AIMv2: RMS norms, a gated feed-forward, a table of positions (vLLM's aimv2.py)."""
    size, depth = fields.need("hidden_size", high=1 << 20), fields.need("num_hidden_layers", high=MAX_DEPTH)
    heads, width = fields.need("num_attention_heads", high=1 << 12), fields.need("intermediate_size", high=1 << 20)
    image, patch = fields.get("image_size", default=224, high=1 << 16), fields.get("patch_size", default=14)
    bias, qkv = fields.flag("use_bias", "mlp_bias", default=False), fields.flag("qkv_bias", default=False)
    channels, patches = fields.get("num_channels", default=3, high=64), (image // patch) ** 2
    fields.skip("projection_dropout")
    groups = conv(parts, f"{path}.preprocessor.patchifier.proj", (size, channels, patch, patch), bias=True)
    groups += norm(parts, f"{path}.preprocessor.patchifier.norm", size, bias=False)
    groups.append(table(parts, f"{path}.preprocessor.pos_embed", patches, size))
    layer = Encoder("attn", FUSED, "proj", ("norm_1", "norm_2"), norm_bias=False, qkv_bias=qkv, out_bias=bias,
                    mlp_names=("fc1", "fc3", "fc2"), mlp_bias=bias, gated=True)  # fmt: skip
    groups += layer.layers(parts, f"{path}.trunk.blocks", depth, size, width)
    # The files hold a last norm, which the engine leaves out.
    groups += norm(parts, f"{path}.trunk.post_trunk_norm", size, bias=False)
    return Seen(size, depth, heads, patches, groups)


def _ovis_older(reading: Reading, hidden: int) -> Found:
    """Ovis 1 and 2: the encoder's own dictionary within that of the visual words."""
    parts, fields = reading.parts.at("tower"), visual_fields(reading, "visual_tokenizer_config")
    words, stride = fields.need("vocab_size", high=1 << 24), fields.get("hidden_stride", default=2, high=64)
    fields.skip("backbone_kwargs", "depths", "drop_cls_token", "tau", "tokenize_function", "use_indicators")
    inner = fields.sub("backbone_config")
    if inner is None:
        raise fields.missing("backbone_config")
    kind = inner.values.get("model_type")
    if kind in ("aimv2", "aimv2_vision_model"):
        seen = _aimv2(inner, parts, "visual_tokenizer.backbone")
    elif kind == "siglip_vision_model":
        seen = siglip_encoder(inner, parts, "visual_tokenizer.backbone.vision_model")
    else:
        raise NotModelled(f"is {kind!r}, modelled are AIMv2 and SigLIP", inner.named("model_type"),
                          "Plan from file headers")  # fmt: skip
    inner.close()
    fields.close()
    reading.top.skip("llm_attn_implementation", "multimodal_max_length", "conversation_formatter_class", "hidden_size")
    head = words - 4
    proj = parts.linear("visual_tokenizer.head.0", "tower", head, seen.size * stride * stride)
    proj += norm(parts, "visual_tokenizer.head.1", head)
    return seen.tower([*proj, table(parts, "vte", words, hidden)])


def _glm_ocr_text(reading: Reading) -> Draft:
    reading.text.skip("num_nextn_predict_layers")
    return GLM4(reading)


READERS: Final[dict[str, Reader]] = {
    "DeepseekVLV2ForCausalLM": with_encoder(_deepseek_vl2, text=_deepseek_text),
    **dict.fromkeys(("DeepseekOCRForCausalLM", "UnlimitedOCRForCausalLM"),
                    with_encoder(_deepseek_ocr, text=_deepseek_text)),
    "DeepseekOCR2ForCausalLM": with_encoder(_deepseek_ocr2, text=_deepseek_text),
    "DotsOCRForCausalLM": with_encoder(_dots_ocr, text=lambda r: r.as_another("Qwen2ForCausalLM")),
    "GlmOcrForConditionalGeneration": with_encoder(_glm_ocr, text=_glm_ocr_text),
    "PaddleOCRVLForConditionalGeneration": with_encoder(_paddle, text=lambda r: r.as_another("Ernie4_5ForCausalLM")),
    **dict.fromkeys(("KeyeForConditionalGeneration", "KeyeVL1_5ForConditionalGeneration"),
                    with_encoder(_paddle, text=lambda r: r.as_another("Qwen3ForCausalLM"))),
    **dict.fromkeys(("LightOnOCRForConditionalGeneration", "LightOnOcrForConditionalGeneration"),
    with_encoder(_lighton)),
    "PixtralForConditionalGeneration": with_encoder(_pixtral_params),
    "KimiVLForConditionalGeneration": with_encoder(_kimi_vl, text=lambda r: r.as_another("DeepseekV3ForCausalLM")),
    "Ovis2_5": with_encoder(_ovis),
    "Ovis": with_encoder(_ovis_older),
    "MolmoForCausalLM": with_encoder(_molmo, text=_molmo_text),
    "Step3VLForConditionalGeneration": with_encoder(_step3_vl, text=lambda r: r.as_another("Step3TextForCausalLM")),
}  # fmt: skip
