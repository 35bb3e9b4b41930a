"""More models that see: Nemotron VL, ERNIE 4.5 VL, Hunyuan VL, Intern-S1, HyperCLOVA X Vision, and their rankers.

Sources: vLLM 0.33 (nano_nemotron_vl.py, nemotron_vl.py, radio.py, ernie45_vl.py, interns1.py, colqwen3.py, colpali.py)
and the modelling classes of transformers 5.24.
"""

from __future__ import annotations

from typing import Final

from kvplanner.errors import NotModelled
from kvplanner.model.config.fields import Fields, shown
from kvplanner.model.config.parts import Parts
from kvplanner.model.config.patterns import DENSE, SPARSE, interval
from kvplanner.model.config.reading import Body, Draft, MixerPart, Reader, Reading, body, stack
from kvplanner.model.families.conversions import pooled
from kvplanner.model.families.latent import dense_mlp, layer_norms
from kvplanner.model.families.vision import Found, two_linear, visual_fields, with_encoder
from kvplanner.model.families.wrapped import wrapped_text
from kvplanner.model.spec import Attention, LayerSpec, Moe
from kvplanner.model.towers.kinds import FUSED, Seen, encoder_in, usual_sizes
from kvplanner.model.towers.qwen import qwen2_5_vl
from kvplanner.model.towers.vision import MAX_DEPTH, Encoder, conv, internvl, norm, table

# --- NVIDIA's RADIO -------------------------------------------------------------------------------

# Width, depth, heads and feed-forward width of the encoders that RADIO's configs name.
_RADIO: Final = {
    "vit_small_patch16_224": (384, 12, 6, 1536), "vit_base_patch16_224": (768, 12, 12, 3072),
    "vit_large_patch16_224": (1024, 24, 16, 4096), "vit_huge_patch16_224": (1280, 32, 16, 5120),
    "vit_so400m_patch16_224": (1152, 27, 16, 4304),
}  # fmt: skip
_REGISTERS: Final = 10


def _radio(fields: Fields, parts: Parts, path: str) -> Seen:
    """RADIO: a plain encoder with class and register words and a large table of positions."""
    args = fields.sub("args")
    name = args.values.get("model") if args is not None else None
    if args is not None:
        args.skip(*map(str, args.values))  # how it was trained, but for the model's name
    if name is None:
        size, depth = (
            fields.get("hidden_size", default=1280),
            fields.get("num_hidden_layers", default=32, high=MAX_DEPTH),
        )
        heads, width = fields.get("num_attention_heads", default=16), fields.get("intermediate_size", default=4 * size)
    elif isinstance(name, str) and name in _RADIO:
        size, depth, heads, width = _RADIO[name]
    else:
        raise NotModelled(f"is {shown(name)}, none of {', '.join(_RADIO)}", fields.named("args.model"),
                          "Plan from file headers")  # fmt: skip
    patch, side = fields.get("patch_size", default=16), fields.get("max_resolution", "max_img_size", default=2048)
    fields.skip(*map(str, fields.values))
    rows = (side // patch) ** 2
    groups = parts.linear(f"{path}.patch_generator.embedder", "tower", size, 3 * patch * patch)
    groups += [table(parts, f"{path}.patch_generator.pos_embed", rows, size),
               table(parts, f"{path}.patch_generator.cls_token", _REGISTERS, size)]  # fmt: skip
    layer = Encoder("attn", FUSED, "proj", ("norm1", "norm2"))
    groups += layer.layers(parts, f"{path}.blocks", depth, size, width)
    return Seen(size, depth, heads, rows, groups)


_NEMOTRON_FIELDS: Final = (
    "vit_hidden_size", "projector_hidden_size", "force_image_size", "norm_mean", "norm_std", "ps_version",
    "use_thumbnail", "video_pruning_rate", "image_tag_type", "max_sequence_length", "img_context_token",
    "template", "vocab_size", "attn_implementation", "sound_context_token", "video_context_token", "select_layer",
    "dynamic_image_size", "max_dynamic_patch", "min_dynamic_patch", "hidden_size", "max_num_tiles",
)  # fmt: skip


def _nemotron_nano(reading: Reading, hidden: int) -> Found:
    """Nemotron Nano VL: RADIO, pixels shuffled, an RMS norm and two layers without biases."""
    top, parts = reading.top, reading.parts.at("tower")
    if top.has("sound_config"):
        raise NotModelled(
            "is an audio encoder that is not modelled", top.named("sound_config"), "Plan from file headers"
        )
    ratio = top.number("downsample_ratio") or 0.5
    inner = top.get("projector_hidden_size", default=hidden, high=1 << 24)
    top.skip(*_NEMOTRON_FIELDS)
    seen = _radio(visual_fields(reading, "vision_config"), parts, "vision_model.radio_model.model")
    joined = seen.size * round(1 / ratio) ** 2
    proj = norm(parts, "mlp1.0", joined, bias=False)
    proj += two_linear(parts, "mlp1", joined, hidden, bias=False, inner=inner, names=("1", "3"))
    return seen.tower(proj)


def _nemotron_llama(reading: Reading, hidden: int) -> Found:
    """Llama Nemotron Nano VL and its embedders: RADIO or SigLIP, a norm and two layers with biases."""
    top, parts = reading.top, reading.parts.at("tower")
    ratio = top.number("downsample_ratio") or 0.5
    inner = top.get("projector_hidden_size", default=hidden, high=1 << 24)
    top.skip(*_NEMOTRON_FIELDS, "use_backbone_lora", "use_llm_lora", "pooling", "bidirectional_attention", "num_labels",
             "image_size", "mlp_connector_layers", "use_pixel_shuffle", "keep_aspect_ratio", "pad2square")  # fmt: skip
    fields = visual_fields(reading, "vision_config")
    if "siglip" in str(fields.values.get("model_type", "")):
        seen = encoder_in(reading, "vision_model")
    else:
        seen = _radio(fields, parts, "vision_model.radio_model.model")
    joined = seen.size * int(1 / ratio) ** 2
    proj = norm(parts, "mlp1.0", joined)
    return seen.tower(proj + two_linear(parts, "mlp1", joined, hidden, inner=inner, names=("1", "3")))


# --- ERNIE 4.5 VL ---------------------------------------------------------------------------------


def _ernie_text(reading: Reading) -> Draft:
    """ERNIE 4.5 VL: each sparse layer has experts for words, narrower ones for images, and shared ones for both."""
    text, parts = reading.text, reading.parts
    text.skip("num_nextn_predict_layers", "moe_group", "moe_capacity", "moe_layer_feed_fwd_dropout", "use_moe",
              "moe_group_experts", "moe_reverse_token_drop", "moe_gate_act", "moe_multimodal_paired_experts",
              "moe_orthogonal_loss_lambda", "moe_use_aux_free", "moe_norm_min", "moe_dense_experts_token_type_id",
              "compression_ratio", "freq_allocation", "multimodal", "use_correction_bias", "token_balance_loss",
              "moe_gate", "enable_mtp_magic_send", "sinkhorn_2gate", "im_patch_id", "pixel_hidden_size",
              "modality_detach", "moe_use_hard_gate", "moe_all_to_all_dropout", "moe_layer_start_index",
              "moe_layer_end_index", "moe_layer_interval")  # fmt: skip
    bias = text.flag("use_bias", default=False)
    hidden, vocab, layers = reading.hidden(), reading.vocab(), reading.layer_count()
    heads = reading.heads(hidden)
    counts = _pair(text, "moe_num_experts")
    widths = _pair(text, "moe_intermediate_size")
    top_k = text.need("moe_k", high=1 << 12)
    shared = text.get("moe_num_shared_experts", default=0, low=0, high=64) * widths[0]

    def make(kind: str) -> Body:
        groups = parts.qkv("self_attn", hidden, *heads, bias=bias)
        groups += parts.linear("self_attn.o_proj", "attention", hidden, heads.heads * heads.head_size, "row", bias=bias,
                               unit=heads.head_size)  # fmt: skip
        mixer, norms = MixerPart(Attention(*heads, heads.head_size), groups), layer_norms(reading, hidden)
        if kind == DENSE:
            return body(mixer, dense_mlp(reading, hidden), norms)
        moes: list[Moe] = []
        for name, count, width in zip(("text_moe", "vision_moe"), counts, widths, strict=True):
            groups += parts.router(f"mlp.{name}.gate", count, hidden)
            groups.append(parts.correction(f"mlp.{name}.gate.moe_statics.e_score_correction_bias", count))
            groups += parts.experts(f"mlp.{name}.experts", count, hidden, width)
            moes.append(Moe(count, top_k, width, shared if name == "text_moe" else 0))
        if shared:
            groups += parts.mlp("mlp.shared_experts", hidden, shared)
        return Body(LayerSpec((mixer.mixer,), tuple(moes)), (*groups, *norms))

    bodies, body_of = stack(_ernie_layers(text, layers), make)
    tied = reading.tied(True)
    return Draft(hidden, vocab, bodies, body_of, reading.vocabulary(vocab, hidden, tied), tied)


def _pair(text: Fields, name: str) -> tuple[int, int]:
    """A number for words and one for images; one number stands for both."""
    value = text.values.get(name)
    if isinstance(value, list | tuple):
        items = text.ints(name, low=1, high=1 << 24) or ()
        if len(items) != 2:
            raise text.bad(name, "a number for words and one for images")
        return items[0], items[1]
    both = text.need(name, high=1 << 24)
    return both, both


def _ernie_layers(text: Fields, layers: int) -> tuple[str, ...]:
    typed = text.texts("mlp_layer_types", allowed=(DENSE, SPARSE))
    if typed is not None:
        return typed[:layers]
    first = text.values.get("moe_layer_start_index")
    if isinstance(first, list | tuple):
        at = min(text.ints("moe_layer_start_index") or (1,))
        return tuple(SPARSE if i >= at else DENSE for i in range(layers))
    return interval(text, layers)


def _ernie_vision(reading: Reading, hidden: int) -> Found:
    """A plain encoder, then a resampler that joins patches in space and frames in time."""
    fields, parts, path = visual_fields(reading, "vision_config"), reading.parts.at("tower"), "vision_model"
    size, depth = fields.get("hidden_size", "embed_dim", default=1280), fields.get("depth", default=32, high=MAX_DEPTH)
    heads, ratio = fields.get("num_heads", default=16), fields.maybe("mlp_ratio", high=64)
    width = fields.maybe("intermediate_size") or size * (ratio or 4)
    patch, merge = fields.get("patch_size", default=14), fields.get("spatial_merge_size", default=2, high=64)
    frames = fields.get("temporal_merge_size", default=2, high=64)
    channels = fields.get("in_channels", "in_chans", default=3, high=64)
    fields.skip("attn_sep", "vit_first_fwd_bsz", "vit_num_recompute_layers", "attn_implementation", "embed_dim")
    fields.close()
    reading.top.skip(
        "spatial_conv_size", "temporal_conv_size", "use_temporal_conv", "pixel_hidden_size", "modality_detach"
    )
    groups = parts.linear(f"{path}.patch_embed.proj", "tower", size, channels * patch * patch)
    layer = Encoder("attn", FUSED, "proj", ("norm1", "norm2"))
    groups += layer.layers(parts, f"{path}.blocks", depth, size, width) + norm(parts, f"{path}.ln", size)
    wide, proj = size * merge * merge, "resampler_model"
    for name, inp in (("spatial_linear", wide), ("temporal_linear", wide * frames)):
        groups += parts.linear(f"{proj}.{name}.0", "tower", wide, inp, bias=True)
        groups += parts.linear(f"{proj}.{name}.2", "tower", wide, wide, bias=True)
        groups += norm(parts, f"{proj}.{name}.3", wide)
    groups += parts.linear(f"{proj}.mlp", "tower", hidden, wide, bias=True)
    groups += norm(parts, f"{proj}.after_norm", hidden, bias=False)
    return Seen(size, depth, heads, None, groups).tower([])


# --- others ---------------------------------------------------------------------------------------


def _hunyuan_vl(reading: Reading, hidden: int) -> Found:
    """HunyuanOCR: a SigLIP-like tower, two convolutions, words for begin, end and line breaks."""
    fields, parts, path = visual_fields(reading, "vision_config"), reading.parts.at("tower"), "vit"
    size, depth, heads, width = usual_sizes(fields)
    patch, side = fields.need("patch_size"), fields.get("max_image_size", default=2048, high=1 << 16)
    merge, channels = (
        fields.get("spatial_merge_size", default=2, high=64),
        fields.get("num_channels", default=3, high=64),
    )
    fields.skip(*map(str, fields.values))
    rows, wide, proj = (side // patch) ** 2, size * merge * merge, f"{path}.perceive"
    groups = conv(parts, f"{path}.embeddings.patch_embedding", (size, channels, patch, patch), bias=True)
    groups.append(table(parts, f"{path}.embeddings.position_embedding", rows + 1, size))
    groups += Encoder(out="o_proj").layers(parts, f"{path}.layers", depth, size, width)
    groups += conv(parts, f"{proj}.proj.0", (2 * size, size, merge, merge), bias=True)
    groups += conv(parts, f"{proj}.proj.2", (wide, 2 * size, 1, 1), bias=True)
    groups += parts.linear(f"{proj}.mlp", "tower", hidden, wide, bias=True)
    groups.append(table(parts, f"{proj}.image_newline", wide))
    groups += [table(parts, f"{proj}.image_{name}", hidden) for name in ("begin", "end", "sep")]
    groups += norm(parts, f"{proj}.before_rms", size, bias=False) + norm(parts, f"{proj}.after_rms", hidden, bias=False)
    return Seen(size, depth, heads, rows, groups).tower([])


def _hunyuan_text(reading: Reading) -> Draft:
    name = "HunYuanDenseV1ForCausalLM"
    return reading.as_another(name)


def _late_interaction(text: Reader, field: tuple[str, ...], default: int, path: str, *, bias: bool = True) -> Reader:
    """A ranker that compares all tokens: the model without its head, and a projection into a narrow space."""

    def read(reading: Reading) -> Draft:
        draft = text(reading)
        size = reading.top.get(*field, default=default, high=1 << 20)
        outside = [g for g in draft.outside if g.kind != "head"]
        outside += reading.parts.at("last").linear(path, "other", size, draft.hidden, bias=bias)
        return draft._replace(outside=outside, task="embed", tied=False)

    return read


def _of(name: str) -> Reader:
    """The reader of another architecture."""

    def read(reading: Reading) -> Draft:
        return reading.as_another(name)

    return read


def _interns1(reading: Reading, hidden: int) -> Found:
    """Intern-S1: InternVL's converted form."""
    reading.top.skip("vision_feature_select_strategy", "projector_hidden_act", "image_seq_length")
    return internvl(reading, hidden)


def _hyperclovax_vision(reading: Reading, hidden: int) -> Found:
    """HyperCLOVA X Vision 2: Qwen2.5-VL's tower and one matrix; of the file's other encoders none is loaded."""
    top, parts = reading.top, reading.parts.at("tower")
    top.skip("audio_config", "discrete_audio_config", "discrete_vision_config", "mm_projector_type", "audio_model_name",
             "vision_model_name_or_path", "text_model_name_or_path", "possible_resolutions", "num_queries_vis",
             "audio_projector_type", "audio_start_id", "freeze_encoder", "freeze_decoder", "use_nth_layer")  # fmt: skip
    towers, groups = qwen2_5_vl(reading, hidden)
    fields = visual_fields(reading, "vision_config")
    out = fields.maybe("out_hidden_size", high=1 << 20) or fields.need("hidden_size", high=1 << 20)
    proj = parts.linear("mm_projector", "tower", hidden, out, bias=True)
    whole = [towers[0]._replace(params=towers[0].params + sum(g.elements for g in proj))]
    return whole, groups + proj


_NARROW: Final = ("embed_dim", "embedding_dim", "dim", "colbert_dim")
READERS: Final[dict[str, Reader]] = {
    "NemotronH_Nano_VL_V2": with_encoder(_nemotron_nano),
    "Llama_Nemotron_Nano_VL": with_encoder(_nemotron_llama),
    "LlamaNemotronVLModel": pooled(with_encoder(_nemotron_llama), "embed"),
    "LlamaNemotronVLForSequenceClassification": pooled(with_encoder(_nemotron_llama), "classify"),
    "Ernie4_5_VLMoeForConditionalGeneration": with_encoder(_ernie_vision, text=_ernie_text),
    "OpenCUAForConditionalGeneration": with_encoder(qwen2_5_vl, text=_of("Qwen2ForCausalLM")),
    "HCXVisionV2ForCausalLM": with_encoder(_hyperclovax_vision),
    "HunYuanVLForConditionalGeneration": with_encoder(_hunyuan_vl, text=_hunyuan_text),
    "InternS1ForConditionalGeneration": with_encoder(_interns1, text=wrapped_text),
    "ColPaliForRetrieval": _late_interaction(_of("PaliGemmaForConditionalGeneration"), _NARROW, 128,
    "custom_text_proj"),
    "ColQwen3": _late_interaction(_of("Qwen3VLForConditionalGeneration"), _NARROW, 128, "custom_text_proj"),
    "HF_ColBERT": _late_interaction(_of("BertModel"), _NARROW, 128, "linear", bias=False),
    "ColBERTModernBertModel": _late_interaction(_of("ModernBertModel"), _NARROW, 128, "linear", bias=False),
}  # fmt: skip
