"""Phi-4 multimodal and Granite Speech: audio encoders of their own kind beside a language model.

Sources: vLLM 0.33 (phi4mm.py, phi4mm_audio.py, granite_speech.py), modelling classes of transformers 5.24 and the
element count of microsoft/Phi-4-multimodal-instruct.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kvplanner.model.config.fields import Fields
from kvplanner.model.config.parts import Parts
from kvplanner.model.config.reading import Draft, Reader, Reading
from kvplanner.model.families.dense import PHI3
from kvplanner.model.families.vision import Found, two_linear, with_encoder
from kvplanner.model.tensors import TensorGroup
from kvplanner.model.towers.kinds import Seen
from kvplanner.model.towers.vision import MAX_DEPTH, Encoder, conv, norm, table

# --- Phi-4 multimodal -----------------------------------------------------------------------------

_IMAGE: Final = "model.embed_tokens_extend.image_embed"
_AUDIO: Final = "model.embed_tokens_extend.audio_embed"


def _plain(holder: Fields, name: str) -> Fields | None:
    """A dictionary whose words and numbers change no size; objects in it are left to whoever reads them."""
    found = holder.sub(name)
    if found is not None:
        found.skip(*(str(key) for key, value in found.values.items() if not isinstance(value, Mapping | list)))
    return found


def _phi4mm_text(reading: Reading) -> Draft:
    """Phi-4-mini, with the adapters for images and speech that the file holds and an engine leaves to --enable-lora."""
    text, parts = reading.text, reading.parts
    text.skip("img_processor", "audio_processor", "vision_lora", "speech_lora", "full_attn_mod", "interpolate_factor",
              "lm_head_bias", "mlp_bias")  # fmt: skip
    layer = _plain(reading.top, "embd_layer")
    for name in ("audio_embd_layer", "image_embd_layer"):
        if layer is not None:
            _plain(layer, name)
    draft = PHI3._replace(tied=True)(reading)
    hidden, heads = draft.hidden, reading.heads(draft.hidden)
    width = text.need("intermediate_size")
    rows = (heads.heads + 2 * heads.kv_heads) * heads.head_size
    more: list[TensorGroup] = []
    for name in ("vision", "speech"):
        adapter = reading.top.sub(f"{name}_lora")
        if adapter is None:
            reading.top.noted(f"{name}_lora")
            continue
        rank = adapter.need("r", high=1 << 16)
        adapter.skip("layer")  # the modules, as an expression: those below in every release
        for path, out, inp in (("self_attn.qkv_proj", rows, hidden), ("self_attn.o_proj", hidden,
        rows - 2 * heads.kv_heads
                               * heads.head_size), ("mlp.gate_up_proj", 2 * width, hidden),
                               ("mlp.down_proj", hidden, width)):  # fmt: skip
            more.append(parts.tensor(f"{path}.lora_A.{name}", "other", (rank, inp)))
            more.append(parts.tensor(f"{path}.lora_B.{name}", "other", (out, rank)))
    bodies = tuple(body._replace(tensors=(*body.tensors, *more)) for body in draft.bodies)
    return draft._replace(bodies=bodies)


def _phi4mm_image(reading: Reading, hidden: int) -> Found:
    """SigLIP at 448 pixels, named but not described, with its head; two layers."""
    parts, size, depth, width, patch, patches = reading.parts.at("tower"), 1152, 27, 4304, 14, 1024
    path = f"{_IMAGE}.img_processor"
    groups = conv(parts, f"{path}.embeddings.patch_embedding", (size, 3, patch, patch), bias=True)
    groups.append(table(parts, f"{path}.embeddings.position_embedding", patches, size))
    groups += Encoder().layers(parts, f"{path}.encoder.layers", depth, size, width)
    groups += norm(parts, f"{path}.post_layernorm", size)
    groups.append(table(parts, f"{path}.head.probe", 1, size))
    groups += parts.linear(f"{path}.head.attention.in_proj", "tower", 3 * size, size, bias=True)
    groups += parts.linear(f"{path}.head.attention.out_proj", "tower", size, size, bias=True)
    groups += norm(parts, f"{path}.head.layernorm", size)
    groups += two_linear(parts, f"{path}.head.mlp", size, size, inner=width, names=("fc1", "fc2"))
    groups += [table(parts, f"{_IMAGE}.{name}", size) for name in ("glb_GN", "sub_GN")]
    groups += two_linear(parts, f"{_IMAGE}.img_projection", size, hidden, names=("0", "2"))
    return Seen(size, depth, 16, patches, groups).tower([], 256)


def _phi4mm_audio(reading: Reading, hidden: int) -> Found:
    """A conformer, and two layers for speech alone and two for speech with images."""
    outer = reading.top.sub("audio_processor")
    fields = outer.sub("config") if outer is not None else None
    if fields is None:
        raise reading.top.missing("audio_processor")
    size, depth = fields.need("attention_dim", high=1 << 20), fields.need("num_blocks", high=MAX_DEPTH)
    heads, width = fields.need("attention_heads", high=1 << 12), fields.need("linear_units")
    wide, kernel = fields.get("ext_pw_out_channel", default=1024), fields.get("kernel_size", default=3, high=256)
    nemo = fields.sub("nemo_conv_settings")
    channels = nemo.get("conv_channels", default=1024, high=1 << 16) if nemo is not None else 1024
    bias = fields.sub("relative_attention_bias_args")
    far = bias.get("t5_bias_max_distance", default=500, high=1 << 16) if bias is not None else 500
    for name, only in (("bias_in_glu", True), ("cnn_layer_norm", True), ("batch_norm", False), ("causal", True),
                       ("ext_pw_kernel_size", 1), ("depthwise_multiplier", 1), ("input_layer", "nemo_conv"),
                       ("depthwise_seperable_out_channel", size)):  # fmt: skip
        fields.expect(name, only)
    fields.skip("chunk_size", "left_chunk", "conv_activation", "conv_glu_type")
    for name in ("activation_checkpointing", "encoder_embedding_config"):
        _plain(fields, name)
    parts, path = reading.parts.at("tower"), f"{_AUDIO}.encoder"
    groups = conv(parts, f"{path}.embed.conv.0", (channels, 1, 3, 3), bias=True)
    for step in (2, 5):
        groups += conv(parts, f"{path}.embed.conv.{step}", (channels, 1, 3, 3), bias=True)
        groups += conv(parts, f"{path}.embed.conv.{step + 1}", (channels, channels, 1, 1), bias=True)
    groups += parts.linear(f"{path}.embed.out", "tower", size, channels * 10, bias=True)
    bins = fields.get("input_size", default=80, high=1 << 12)
    groups += [table(parts, f"{path}.encoder_embedding.{name}", bins) for name in ("global_mean", "global_invstd")]
    groups.append(table(parts, f"{path}.relative_attention_bias_layer.bias_values", 2 * far, heads))
    groups += _phi_conformer(parts, f"{path}.encoders", depth, size, width, wide, kernel)
    for name in ("speech", "vision"):
        groups += two_linear(parts, f"{_AUDIO}.audio_projection.{name}", size, hidden, names=("0", "2"))
    return Seen(size, depth, heads, None, groups).tower([], kind="audio")


def _phi_conformer(parts: Parts, path: str, depth: int, size: int, width: int, wide: int, kernel: int,
                   ) -> list[TensorGroup]:  # fmt: skip
    groups: list[TensorGroup] = []
    for name in ("feed_forward_in", "feed_forward_out"):
        groups += norm(parts, f"{path}.{name}.layer_norm", size, count=depth)
        groups += parts.linear(f"{path}.{name}.net.0", "tower", 2 * width, size, bias=True, count=depth)
        groups += parts.linear(f"{path}.{name}.net.2", "tower", size, width, bias=True, count=depth)
    for name in ("linear_q", "linear_k", "linear_v", "linear_out"):
        groups += parts.linear(f"{path}.self_attn.{name}", "tower", size, size, bias=True, count=depth)
    groups += norm(parts, f"{path}.conv.layer_norm", size, count=depth)
    groups += [parts.tensor(f"{path}.conv.glu.{name}", "tower", (wide,), count=depth) for name in ("b1", "b2")]
    for name, rows, inp in (("glu.ext_pw_conv_1d", 2 * wide, size), ("dw_sep_conv_1d.pw_conv", size, size),
                            ("ext_pw_conv_1d", wide, size)):  # fmt: skip
        groups.append(parts.tensor(f"{path}.conv.{name}", "tower", (rows, inp, 1), count=depth))
        groups.append(parts.tensor(f"{path}.conv.{name}.bias", "tower", (rows,), count=depth))
    groups.append(parts.tensor(f"{path}.conv.dw_sep_conv_1d.dw_conv", "tower", (size, 1, kernel), count=depth))
    groups.append(parts.tensor(f"{path}.conv.dw_sep_conv_1d.dw_conv.bias", "tower", (size,), count=depth))
    for name in ("layer_norm_att", "layer_norm"):
        groups += norm(parts, f"{path}.{name}", size, count=depth)
    return groups


# --- Granite Speech -------------------------------------------------------------------------------


def _granite_speech(reading: Reading, hidden: int) -> Found:
    """A conformer with a table of distances in each layer, and a Q-Former that makes a few tokens of a window."""
    top, parts = reading.top, reading.parts.at("tower")
    top.skip("has_lora_adapter", "downsample_rate", "window_size")
    fields = top.sub("encoder_config")
    projector = top.sub("projector_config")
    if fields is None or projector is None:
        raise top.missing("encoder_config", "projector_config")
    size, depth = fields.get("hidden_dim", default=1024), fields.get("num_layers", default=10, high=MAX_DEPTH)
    heads, head = fields.get("num_heads", default=8), fields.get("dim_head", default=128)
    width = size * fields.get("feedforward_mult", default=4, high=64)
    out, inp = fields.get("output_dim", default=42), fields.get("input_dim", default=160)
    kernel = fields.get("conv_kernel_size", default=15, high=256)
    wide = size * fields.get("conv_expansion_factor", default=2, high=64)
    rows = 2 * fields.get("max_pos_emb", default=512) + 1
    fields.skip("context_size")
    fields.close()
    inner, path = heads * head, "encoder.layers"
    groups = parts.linear("encoder.input_linear", "tower", size, inp, bias=True)
    for name in ("ff1", "ff2"):
        groups += norm(parts, f"{path}.{name}.pre_norm", size, count=depth)
        groups += parts.linear(f"{path}.{name}.up_proj", "tower", width, size, bias=True, count=depth)
        groups += parts.linear(f"{path}.{name}.down_proj", "tower", size, width, bias=True, count=depth)
    groups += norm(parts, f"{path}.attn.pre_norm", size, count=depth)
    groups += parts.linear(f"{path}.attn.to_q", "tower", inner, size, count=depth)
    groups += parts.linear(f"{path}.attn.to_kv", "tower", 2 * inner, size, count=depth)
    groups += parts.linear(f"{path}.attn.to_out", "tower", size, inner, bias=True, count=depth)
    groups.append(parts.tensor(f"{path}.attn.rel_pos_emb", "tower", (1, rows, head), count=depth))
    groups += norm(parts, f"{path}.conv.norm", size, count=depth)
    for name, shape in (("up_conv", (2 * wide, size, 1)), ("down_conv", (size, wide, 1))):
        groups.append(parts.tensor(f"{path}.conv.{name}", "tower", shape, count=depth))
        groups.append(parts.tensor(f"{path}.conv.{name}.bias", "tower", (shape[0],), count=depth))
    groups.append(parts.tensor(f"{path}.conv.depth_conv.conv", "tower", (wide, 1, kernel), count=depth))
    groups += norm(parts, f"{path}.conv.batch_norm", wide, count=depth)
    groups += norm(parts, f"{path}.post_norm", size, count=depth)
    groups += parts.linear("encoder.out", "tower", out, size, bias=True)
    groups += parts.linear("encoder.out_mid", "tower", size, out, bias=True)
    window, rate = top.maybe("window_size", high=1 << 16) or 15, top.maybe("downsample_rate", high=64) or 5
    return Seen(size, depth, heads, None, groups + _qformer(parts, projector, hidden, window // rate)).tower(
        [], kind="audio"
    )


def _qformer(parts: Parts, fields: Fields, hidden: int, queries: int) -> list[TensorGroup]:
    """BLIP-2's Q-Former: every n-th layer also attends to the encoder."""
    size, depth = fields.get("hidden_size", default=768), fields.get("num_hidden_layers", default=12, high=MAX_DEPTH)
    width, step = fields.get("intermediate_size", default=3072), fields.get("cross_attention_frequency", default=2)
    seen = fields.get("encoder_hidden_size", default=1408)
    fields.skip("num_attention_heads", "use_qformer_text_input", "vocab_size", "position_embedding_type",
                "max_position_embeddings")  # fmt: skip
    fields.close()
    crossing = -(-depth // step)
    path = "projector.qformer.encoder.layer"
    groups = [table(parts, "projector.query", queries, size), *norm(parts, "projector.qformer.layernorm", size)]
    for name, inp, count in (("attention", size, depth), ("crossattention", seen, crossing)):
        for part, width_in in (("query", size), ("key", inp), ("value", inp)):
            groups += parts.linear(f"{path}.{name}.attention.{part}", "tower", size, width_in, bias=True, count=count)
        groups += parts.linear(f"{path}.{name}.output.dense", "tower", size, size, bias=True, count=count)
        groups += norm(parts, f"{path}.{name}.output.LayerNorm", size, count=count)
    groups += parts.linear(f"{path}.intermediate_query.dense", "tower", width, size, bias=True, count=depth)
    groups += parts.linear(f"{path}.output_query.dense", "tower", size, width, bias=True, count=depth)
    groups += norm(parts, f"{path}.output_query.LayerNorm", size, count=depth)
    return groups + parts.linear("projector.linear", "tower", hidden, size, bias=True)


READERS: Final[dict[str, Reader]] = {
    "Phi4MMForCausalLM": with_encoder(_phi4mm_image, _phi4mm_audio, text=_phi4mm_text),
    "GraniteSpeechForConditionalGeneration": with_encoder(_granite_speech),
}
