"""Language models with an encoder of a common kind before them: LLaVA's line, SmolVLM, InternVL, MiniCPM-V, PaliGemma.

Each is a decoder that the config names, an encoder of a known kind, and a small projector of its own. Sources:
modelling classes of transformers 5.24 and of vLLM 0.33.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kvplanner.model.config.fields import Fields
from kvplanner.model.config.parts import Parts
from kvplanner.model.config.reading import Draft, Reader, Reading
from kvplanner.model.families.wrapped import wrapped_text
from kvplanner.model.spec import Tower
from kvplanner.model.tensors import TensorGroup
from kvplanner.model.towers.kinds import FUSED, Seen, encoder_in
from kvplanner.model.towers.vision import Encoder, conv, norm, table, with_towers

Found = tuple[list[Tower], list[TensorGroup]]
_PROJECTOR: Final = "multi_modal_projector"
_TOWER: Final = "vision_tower"


def two_linear(parts: Parts, path: str, inp: int, out: int, *, bias: bool = True, inner: int | None = None,
               names: tuple[str, str] = ("linear_1", "linear_2")) -> list[TensorGroup]:  # fmt: skip
    """A projector of two layers; inner: the width between them where it is not the last's."""
    wide = inner or out
    groups = parts.linear(f"{path}.{names[0]}", "tower", wide, inp, "column", bias=bias)
    return groups + parts.linear(f"{path}.{names[1]}", "tower", out, wide, "row", bias=bias)


def _llava_next(reading: Reading, hidden: int) -> Found:
    """LLaVA 1.6 and OneVision: LLaVA, with an image in tiles between learnt line breaks."""
    top, parts = reading.top, reading.parts.at("tower")
    _llava_next_fields(reading)
    seen = encoder_in(reading, _TOWER)
    bias = top.flag("multimodal_projector_bias", default=True)
    groups = [table(parts, "image_newline", hidden)]
    return seen.tower(groups + two_linear(parts, _PROJECTOR, seen.size, hidden, bias=bias))


def llava(reading: Reading, hidden: int) -> Found:
    """LLaVA with an encoder of any kind, and Mantis, which is one: two layers."""
    top, parts = reading.top, reading.parts.at("tower")
    top.skip("vision_feature_layer", "image_seq_length", "num_vision_tokens", "vision_feature_select_strategy")
    seen = encoder_in(reading, _TOWER)
    bias = top.flag("multimodal_projector_bias", default=True)
    return seen.tower(two_linear(parts, _PROJECTOR, seen.size, hidden, bias=bias), seen.patches)


def _normed(factor: int) -> Callable[[Reading, int], Found]:
    """Bee and R-4B: LLaVA-OneVision with a norm before the projector, which is `factor` times as wide inside."""

    def read(reading: Reading, hidden: int) -> Found:
        _llava_next_fields(reading)
        parts, seen = reading.parts.at("tower"), encoder_in(reading, _TOWER)
        proj = [table(parts, "image_newline", hidden), *norm(parts, f"{_PROJECTOR}.pre_norm", seen.size)]
        return seen.tower(proj + two_linear(parts, _PROJECTOR, seen.size, hidden, inner=factor * hidden))

    return read


def _llava_next_fields(reading: Reading) -> None:
    reading.top.skip("image_grid_pinpoints", "vision_feature_layer", "use_image_newline_parameter",
                     "vision_aspect_ratio", "spatial_pool_stride", "spatial_pool_out_channels", "spatial_pool_mode",
                     "video_seq_length")  # fmt: skip


def _shuffled(reading: Reading, hidden: int) -> Found:
    """Idefics 3 and SmolVLM: pixels shuffled into one matrix."""
    factor = reading.top.get("scale_factor", default=2, high=64)
    reading.top.skip("image_seq_len", "pixel_shuffle_factor", "text_model_id")
    # The first files still describe the resampler of Idefics 2, which they do not use.
    reading.text.expect("use_resampler", False)
    reading.text.expect("qk_layer_norms", False)
    reading.text.skip("perceiver_config", "pixel_shuffle_factor", "neftune_noise_alpha", "is_llama_config")
    seen = encoder_in(reading, "model.vision_model")
    proj = reading.parts.at("tower").linear("model.connector.modality_projection.proj", "tower", hidden,
                                            seen.size * factor * factor)  # fmt: skip
    tokens = seen.patches // (factor * factor) if seen.patches else None
    return seen.tower(proj, tokens)


def _paligemma(reading: Reading, hidden: int) -> Found:
    """PaliGemma: one matrix."""
    reading.top.skip("projection_dim", "hidden_size", "image_token_index", "num_hidden_layers", "num_image_tokens")
    fields = visual_fields(reading, "vision_config")
    out = fields.maybe("projection_dim", high=1 << 20) or reading.top.get("projection_dim", default=hidden)
    seen = encoder_in(reading, _TOWER)
    proj = reading.parts.at("tower").linear(f"{_PROJECTOR}.linear", "tower", out, seen.size, bias=True)
    return seen.tower(proj, seen.patches)


def _joined(reading: Reading, ratio_name: str = "downsample_ratio") -> int:
    """Patches that become one token: the reciprocal of the squared ratio."""
    ratio = reading.top.number(ratio_name)
    if ratio is None:
        reading.top.took_default(ratio_name)
        ratio = 0.5
    if not 0 < ratio <= 1:
        raise reading.top.bad(ratio_name, "a number above 0 and up to 1")
    return round(1 / ratio) ** 2


def _internvl_chat(reading: Reading, hidden: int) -> Found:
    """InternVL in its first form, and what was made of it: pixels shuffled, a norm and two layers."""
    top, parts = reading.top, reading.parts.at("tower")
    top.skip("select_layer", "use_backbone_lora", "use_llm_lora", "max_dynamic_patch", "min_dynamic_patch",
             "hidden_size", "force_image_size", "pad2square", "ps_version", "use_thumbnail", "mlp_checkpoint",
             "use_msac",
             "pre_feature_reduction", "loss_version", "vision_select_layer", "template")  # fmt: skip
    joined = _joined(reading)
    seen = encoder_in(reading, "vision_model", default="intern_vit_6b")
    wide = seen.size * joined
    proj = norm(parts, "mlp1.0", wide) + two_linear(parts, "mlp1", wide, hidden, names=("1", "3"))
    return seen.tower(proj, seen.patches // joined if seen.patches else None)


def _nvlm(reading: Reading, hidden: int) -> Found:
    """NVLM-D: as InternVL, between the layers as wide as the language model's feed-forward, without biases."""
    parts, joined = reading.parts.at("tower"), _joined(reading)
    reading.top.skip("select_layer", "use_backbone_lora", "use_llm_lora", "max_dynamic_patch", "min_dynamic_patch",
                     "force_image_size", "use_thumbnail", "ps_version", "template")  # fmt: skip
    seen = encoder_in(reading, "vision_model", default="intern_vit_6b")
    wide, inner = seen.size * joined, reading.text.need("intermediate_size")
    proj = norm(parts, "mlp1.0", wide)
    proj += two_linear(parts, "mlp1", wide, hidden, bias=False, inner=inner, names=("1", "3"))
    return seen.tower(proj, seen.patches // joined if seen.patches else None)


def resampler(parts: Parts, path: str, queries: int, hidden: int, size: int) -> list[TensorGroup]:
    """A fixed number of queries that attend to all patches."""
    groups = [table(parts, f"{path}.query", queries, hidden), table(parts, f"{path}.proj", hidden, hidden)]
    if size != hidden:
        groups += parts.linear(f"{path}.kv_proj", "tower", hidden, size)
    groups += parts.linear(f"{path}.attn.in_proj", "tower", 3 * hidden, hidden, bias=True)
    groups += parts.linear(f"{path}.attn.out_proj", "tower", hidden, hidden, bias=True)
    for name in ("ln_q", "ln_kv", "ln_post"):
        groups += norm(parts, f"{path}.{name}", hidden)
    return groups


# The language model of each MiniCPM-V release, by the version that its config states.
_MINICPM: Final = {
    2.0: "MiniCPMForCausalLM", 2.5: "LlamaForCausalLM", 2.6: "Qwen2ForCausalLM", 4.0: "LlamaForCausalLM",
    4.5: "Qwen3ForCausalLM",
}  # fmt: skip


_TIMM_SIGLIP: Final = "vit_so400m_patch14_siglip_384.webli"


def _minicpmv_text(reading: Reading) -> Draft:
    """The decoder that a MiniCPM-V release is built on; MiniCPM-o's is Qwen2, or Qwen3 from 4.5 on."""
    text = reading.text
    text.skip("query_num", "image_size", "patch_size", "drop_vision_last_layer", "batch_vision_input", "slice_mode",
              "slice_config", "use_image_id", "audio_chunk_length", "audio_pool_step", "chunk_input", "init_audio",
              "init_tts", "init_vision", "stream_input", "vision_batch_size", "dim_model_base", "scale_depth",
              "scale_emb", "mm_use_im_start_end", "rope_scaling", "vision_encoder", "auto_chunk")  # fmt: skip
    stated = text.number("version")
    # What vLLM takes a file without a version for (minicpmv.py), the first by its width.
    first = text.values.get("hidden_size") == 2304 and text.values.get("query_num") == 64
    default = 2.0 if first else 2.5
    if reading.architecture == "MiniCPMO":
        default = 4.5 if text.has("head_dim") else 2.6
    version = stated if stated is not None else default
    if stated is None:
        text.took_default("version")
    if version not in _MINICPM:
        raise text.bad("version", f"one of {', '.join(map(str, _MINICPM))}")
    name = _MINICPM[version]
    return reading.as_another(name, text)


def _minicpmv(reading: Reading, hidden: int) -> Found:
    """MiniCPM-V: SigLIP and a resampler."""
    top, parts = reading.top, reading.parts.at("tower")
    queries = top.get("query_num", default=64, high=1 << 16)
    named = top.text("vision_encoder", allowed=(_TIMM_SIGLIP,)) if not top.has("vision_config") else None
    seen = _timm_siglip(parts) if named else encoder_in(reading, "vpm", default="siglip_vision_model")
    if top.flag("drop_vision_last_layer", default=False):
        seen = seen._replace(groups=[_without_last(g, seen.depth) for g in seen.groups])
    proj = resampler(parts, "resampler", queries, hidden, seen.size)
    if named:
        proj.append(table(parts, "resampler.pos_embed", queries, hidden))
    return seen.tower(proj, queries)


def _timm_siglip(parts: Parts) -> Seen:
    """SigLIP So400m of timm, which MiniCPM-V 2.0 names and does not describe; its pooling head is left out."""
    size, depth, width, patches = 1152, 27, 4304, 27 * 27
    groups = conv(parts, "vpm.patch_embed.proj", (size, 3, 14, 14), bias=True)
    groups.append(table(parts, "vpm.pos_embed", patches, size))
    layer = Encoder("attn", FUSED, "proj", ("norm1", "norm2"), mlp_names=("", "fc1", "fc2"))
    groups += layer.layers(parts, "vpm.blocks", depth, size, width)
    return Seen(size, depth, 16, patches, [*groups, *norm(parts, "vpm.norm", size)])


def _without_last(group: TensorGroup, depth: int) -> TensorGroup:
    return group._replace(count=depth - 1) if group.count == depth and depth > 1 else group


def _minicpmo_audio(reading: Reading, hidden: int) -> Found:
    """MiniCPM-o: Whisper's encoder and two layers; its speech generator is loaded by no engine."""
    parts = reading.parts.at("tower")
    reading.top.skip("tts_config")
    if not reading.top.has("audio_config"):
        return [], []
    seen = encoder_in(reading, "apm", name="audio_config", default="whisper")
    proj = two_linear(parts, "audio_projection_layer", seen.size, hidden, names=("linear1", "linear2"))
    return seen.tower(proj, kind="audio")


def _aya(reading: Reading, hidden: int) -> Found:
    """Aya Vision and Command A Vision: pixels shuffled, a gated projector."""
    top, parts = reading.top, reading.parts.at("tower")
    top.skip("vision_feature_layer", "adapter_layer_norm_eps")
    factor = top.get("downsample_factor", default=2, high=64)
    size = reading.text.get("hidden_size", default=hidden)
    wide = top.maybe("alignment_intermediate_size") or size
    seen = encoder_in(reading, _TOWER)
    joined = seen.size * factor * factor
    proj: list[TensorGroup] = []
    if reading.architecture.startswith("Aya"):
        proj += norm(parts, f"{_PROJECTOR}.layernorm", joined)
    proj += parts.linear(f"{_PROJECTOR}.linear_1", "tower", wide, joined, bias=True)
    proj += parts.linear(f"{_PROJECTOR}.linear_2", "tower", hidden, wide // 2, bias=True)
    return seen.tower(proj, seen.patches // (factor * factor) if seen.patches else None)


def _lfm2_vl(reading: Reading, hidden: int) -> Found:
    """LFM2-VL: SigLIP 2 and a small projector over shuffled pixels."""
    top, parts = reading.top, reading.parts.at("tower")
    factor, inner = top.get("downsample_factor", default=2, high=64), top.get("projector_hidden_size", default=2560)
    bias, normed = top.flag("projector_bias", default=True), top.flag("projector_use_layernorm", default=True)
    top.skip("do_image_splitting", "encoder_patch_size", "max_image_tokens", "min_image_tokens", "max_tiles",
             "min_tiles", "max_num_patches", "tile_size", "use_thumbnail", "vision_feature_layer",
             "use_image_special_tokens",
             "max_pixels_tolerance")  # fmt: skip
    seen = encoder_in(reading, _TOWER)
    wide = seen.size * factor * factor
    proj = norm(parts, f"{_PROJECTOR}.layer_norm", wide) if normed else []
    proj += two_linear(parts, _PROJECTOR, wide, hidden, bias=bias, inner=inner)
    return seen.tower(proj)


def _by(text: str) -> Reader:
    """A wrapper whose language model is always of one architecture."""

    def read(reading: Reading) -> Draft:
        return reading.as_another(text)

    return read


def with_encoder(*towers: Callable[[Reading, int], Found], text: Reader = wrapped_text) -> Reader:
    """A language model with encoders before it."""
    return with_towers(text, *towers)


def visual_fields(reading: Reading, name: str) -> Fields:
    """The dictionary of an encoder under a name of its own."""
    found = reading.top.sub(name)
    if found is None:
        raise reading.top.missing(name)
    return found


def qwen_vl(reading: Reading, hidden: int) -> Found:
    """Qwen-VL: ViT-bigG and a resampler; plain Qwen has no `visual` dictionary."""
    if not reading.top.has("visual"):
        return [], []
    fields, parts, path = visual_fields(reading, "visual"), reading.parts.at("tower"), "transformer.visual"
    size, depth = fields.need("width", high=1 << 20), fields.need("layers", high=1 << 10)
    heads, out = fields.need("heads", high=1 << 12), fields.need("output_dim", high=1 << 20)
    patch, image = fields.need("patch_size", high=1 << 12), fields.need("image_size", high=1 << 16)
    ratio = fields.number("mlp_ratio") or 4.0
    queries, patches = fields.get("n_queries", default=256, high=1 << 16), (image // patch) ** 2
    fields.skip("image_start_id")
    fields.close()
    groups = conv(parts, f"{path}.conv1", (size, 3, patch, patch), bias=False)
    groups.append(table(parts, f"{path}.positional_embedding", 256, size))
    groups += norm(parts, f"{path}.ln_pre", size)
    width, block = int(size * ratio), f"{path}.transformer.resblocks"
    for name, rows, inp in (("attn.in_proj", 3 * size, size), ("attn.out_proj", size, size),
                            ("mlp.c_fc", width, size), ("mlp.c_proj", size, width)):  # fmt: skip
        groups += parts.linear(f"{block}.{name}", "tower", rows, inp, bias=True, count=depth)
    groups += norm(parts, f"{block}.ln_1", size, count=depth) + norm(parts, f"{block}.ln_2", size, count=depth)
    pool = resampler(parts, f"{path}.attn_pool", queries, out, size)
    groups += [g for g in pool if "ln_post" not in g.path and not g.path.endswith("attn_pool.proj")]
    groups += [table(parts, f"{path}.proj", out, out), table(parts, f"{path}.attn_pool.pos_embed", queries, out)]
    groups += norm(parts, f"{path}.ln_post", out)
    return Seen(size, depth, heads, patches, groups).tower([], queries)


def glm_4v(reading: Reading, hidden: int) -> Found:
    """GLM-4V: EVA-CLIP, four patches joined by a convolution, a gated projector; plain GLM-4 has no encoder."""
    if not reading.top.has("vision_config"):
        return [], []
    fields, parts, path = visual_fields(reading, "vision_config"), reading.parts.at("tower"), "transformer.vision"
    size, depth = fields.need("hidden_size", high=1 << 20), fields.need("num_hidden_layers", high=1 << 10)
    heads, width = fields.need("num_heads", high=1 << 12), fields.need("intermediate_size")
    patch, image = fields.need("patch_size", high=1 << 12), fields.need("image_size", high=1 << 16)
    positions = fields.get("num_positions", default=(image // patch) ** 2 + 1, high=1 << 24)
    channels = fields.get("in_channels", default=3, high=64)
    fields.skip("scaling_factor", "dropout_prob", "hidden_act", "layer_norm_eps")
    fields.close()
    inner = reading.text.need("ffn_hidden_size")
    groups = conv(parts, f"{path}.patch_embedding.proj", (size, channels, patch, patch), bias=True)
    groups += [table(parts, f"{path}.patch_embedding.cls_embedding", 1, size),
               table(parts, f"{path}.patch_embedding.position_embedding", positions, size)]  # fmt: skip
    layer = f"{path}.transformer.layers"
    for name, rows, inp in (("attention.query_key_value", 3 * size, size), ("attention.dense", size, size),
                            ("mlp.fc1", width, size), ("mlp.fc2", size, width)):  # fmt: skip
        groups += parts.linear(f"{layer}.{name}", "tower", rows, inp, bias=True, count=depth)
    for name in ("input_layernorm", "post_attention_layernorm"):
        groups += norm(parts, f"{layer}.{name}", size, count=depth)
    groups += conv(parts, f"{path}.conv", (hidden, size, 2, 2), bias=True)
    proj = f"{path}.linear_proj"
    groups += parts.linear(f"{proj}.linear_proj", "tower", hidden, hidden) + norm(parts, f"{proj}.norm1", hidden)
    for name in ("gate_proj", "dense_h_to_4h"):
        groups += parts.linear(f"{proj}.{name}", "tower", inner, hidden, "column", fused="gate_up_proj")
    groups += parts.linear(f"{proj}.dense_4h_to_h", "tower", hidden, inner, "row")
    groups += [table(parts, f"{path}.{name}", 1, hidden) for name in ("boi", "eoi")]
    return Seen(size, depth, heads, positions - 1, groups).tower([], (positions - 1) // 4)


READERS: Final[dict[str, Reader]] = {
    **dict.fromkeys(
        ("LlavaNextForConditionalGeneration", "LlavaOnevisionForConditionalGeneration",
         "LlavaNextVideoForConditionalGeneration"), with_encoder(_llava_next)
    ),
    "MantisForConditionalGeneration": with_encoder(llava),
    "BeeForConditionalGeneration": with_encoder(_normed(4)),
    "RForConditionalGeneration": with_encoder(_normed(1)),
    **dict.fromkeys(("Idefics3ForConditionalGeneration", "SmolVLMForConditionalGeneration"), with_encoder(_shuffled)),
    "PaliGemmaForConditionalGeneration": with_encoder(_paligemma),
    **dict.fromkeys(
        ("InternVLChatModel", "H2OVLChatModel", "SkyworkR1VChatModel", "Eagle2_5_VLForConditionalGeneration"),
        with_encoder(_internvl_chat),
    ),
    "NVLM_D": with_encoder(_nvlm),
    "MiniCPMV": with_encoder(_minicpmv, text=_minicpmv_text),
    "MiniCPMO": with_encoder(_minicpmv, _minicpmo_audio, text=_minicpmv_text),
    **dict.fromkeys(("AyaVisionForConditionalGeneration", "Cohere2VisionForConditionalGeneration"), with_encoder(_aya)),
    "Lfm2VlForConditionalGeneration": with_encoder(_lfm2_vl),
    "GLM4VForCausalLM": with_encoder(glm_4v, text=_by("ChatGLMModel")),
    "QwenVLForConditionalGeneration": with_encoder(qwen_vl, text=_by("QWenLMHeadModel")),
}  # fmt: skip
