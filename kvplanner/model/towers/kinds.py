"""Encoders by their kind, without what leads into the language model: SigLIP, CLIP, InternViT, Whisper and their kin.

Sources: modelling classes of transformers 5.24 and of vLLM 0.33. A wrapper adds its projector (families/vision.py,
families/audio.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kvplanner.errors import NotModelled
from kvplanner.model.config.fields import Fields, shown
from kvplanner.model.config.parts import Parts
from kvplanner.model.config.reading import Reading
from kvplanner.model.spec import Tower, TowerKind
from kvplanner.model.tensors import TensorGroup
from kvplanner.model.towers.vision import GATED, MAX_DEPTH, Encoder, clip, conv, norm, square, table, tower_of
from kvplanner.record import NamedTuple

FUSED: Final = ("qkv", "qkv", "qkv")


class Seen(NamedTuple):
    """An encoder: its width, depth, heads and patches (or frames) an item, and its tensors."""

    size: int
    depth: int
    heads: int
    patches: int | None
    groups: list[TensorGroup]

    def tower(self, projector: list[TensorGroup], tokens: int | None = None, kind: TowerKind = "vision",
              ) -> tuple[list[Tower], list[TensorGroup]]:  # fmt: skip
        """The tower with the projector behind it; tokens: most that one item makes."""
        groups = [*self.groups, *projector]
        return [tower_of(kind, self.size, self.depth, groups, self.heads, self.patches, tokens)], groups


EncoderReader = Callable[[Fields, Parts, str], Seen]


def usual_sizes(fields: Fields) -> tuple[int, int, int, int]:
    """Width, depth, heads and feed-forward width under their usual names."""
    size, depth = fields.need("hidden_size", high=1 << 20), fields.need("num_hidden_layers", high=MAX_DEPTH)
    return size, depth, fields.need("num_attention_heads", high=1 << 12), fields.need("intermediate_size")


def siglip_encoder(fields: Fields, parts: Parts, path: str) -> Seen:
    """SigLIP, with its pooling head where the config keeps one."""
    size, depth, heads, width = usual_sizes(fields)
    patch, image = square(fields, "patch_size"), square(fields, "image_size")
    channels = fields.get("num_channels", default=3, high=64)
    fields.skip("projection_dim", "vocab_size", "projector_hidden_act", "out_hidden_size", "num_image_tokens")
    head = fields.flag("vision_use_head", default=False)
    patches = (image // patch) ** 2
    groups = conv(parts, f"{path}.embeddings.patch_embedding", (size, channels, patch, patch), bias=True)
    groups.append(table(parts, f"{path}.embeddings.position_embedding", patches, size))
    groups += Encoder().layers(parts, f"{path}.encoder.layers", depth, size, width)
    groups += norm(parts, f"{path}.post_layernorm", size)
    if head:
        groups += pooling_head(parts, f"{path}.head", size, width)
    return Seen(size, depth, heads, patches, groups)


def pooling_head(parts: Parts, path: str, size: int, width: int) -> list[TensorGroup]:
    """SigLIP's attention over all patches into one vector."""
    groups = [table(parts, f"{path}.probe", 1, size)]
    groups += parts.linear(f"{path}.attention.in_proj", "tower", 3 * size, size, bias=True)
    groups += parts.linear(f"{path}.attention.out_proj", "tower", size, size, bias=True)
    groups += norm(parts, f"{path}.layernorm", size)
    groups += parts.linear(f"{path}.mlp.fc1", "tower", width, size, bias=True)
    return groups + parts.linear(f"{path}.mlp.fc2", "tower", size, width, bias=True)


def siglip2_encoder(fields: Fields, parts: Parts, path: str) -> Seen:
    """SigLIP 2 of any shape: patches as vectors, a table of positions that is resized."""
    size, depth, heads, width = usual_sizes(fields)
    patch, channels = square(fields, "patch_size"), fields.get("num_channels", default=3, high=64)
    patches = fields.get("num_patches", default=256, high=1 << 20)
    head = fields.flag("vision_use_head", default=False)
    groups = parts.linear(f"{path}.embeddings.patch_embedding", "tower", size, channels * patch * patch, bias=True)
    groups.append(table(parts, f"{path}.embeddings.position_embedding", patches, size))
    groups += Encoder().layers(parts, f"{path}.encoder.layers", depth, size, width)
    groups += norm(parts, f"{path}.post_layernorm", size)
    if head:
        groups += pooling_head(parts, f"{path}.head", size, width)
    return Seen(size, depth, heads, patches, groups)


def idefics3_encoder(fields: Fields, parts: Parts, path: str) -> Seen:
    """Idefics 3 and SmolVLM: SigLIP without a head."""
    fields.skip("size", "max_image_size", "use_base_siglip", "tie_word_embeddings")
    return siglip_encoder(fields, parts, path)


def clip_encoder(fields: Fields, parts: Parts, path: str) -> Seen:
    """CLIP."""
    size, depth, heads, width = usual_sizes(fields)
    patch, image = square(fields, "patch_size"), square(fields, "image_size")
    fields.skip("projection_dim", "vocab_size", "num_channels")
    patches = (image // patch) ** 2
    return Seen(size, depth, heads, patches, clip(parts, path, size, depth, width, patch, patches))


def intern_vit(fields: Fields, parts: Parts, path: str) -> Seen:
    """InternViT in its first form: one matrix for query, key and value, layer scales, norms over query and key."""
    size, depth, heads, width = usual_sizes(fields)
    patch, image = square(fields, "patch_size"), square(fields, "image_size")
    channels, bias = fields.get("num_channels", default=3, high=64), fields.flag("qkv_bias", default=False)
    kind = fields.text("norm_type", allowed=("rms_norm", "layer_norm")) or "rms_norm"
    normed = fields.flag("qk_normalization", default=True)
    fields.skip("capacity_factor", "eval_capacity_factor", "laux_allreduce", "moe_coeff_ratio", "moe_intermediate_size",
                "moe_output_scale", "noisy_gate_policy", "num_experts", "num_routed_experts", "num_shared_experts",
                "shared_expert_intermediate_size", "use_moe", "use_residual", "use_rts", "use_weighted_residual",
                "ep_size", "use_flash_attn", "num_hidden_layers_override")  # fmt: skip
    patches = (image // patch) ** 2
    groups = [table(parts, f"{path}.embeddings.class_embedding", size)]
    groups += conv(parts, f"{path}.embeddings.patch_embedding", (size, channels, patch, patch), bias=True)
    groups.append(table(parts, f"{path}.embeddings.position_embedding", patches + 1, size))
    layer = Encoder("attn", FUSED, "proj", ("norm1", "norm2"), norm_bias=kind == "layer_norm", qkv_bias=bias)
    groups += layer.layers(parts, f"{path}.encoder.layers", depth, size, width)
    names = ("ls1", "ls2", "attn.q_norm", "attn.k_norm") if normed else ("ls1", "ls2")
    groups += [parts.tensor(f"{path}.encoder.layers.{name}", "tower", (size,), count=depth) for name in names]
    return Seen(size, depth, heads, patches, groups)


def whisper_encoder(fields: Fields, parts: Parts, path: str) -> Seen:
    """Whisper's encoder under its own names or the usual ones: two convolutions over time, keys without bias."""
    fields.skip("decoder_layers", "decoder_attention_heads", "decoder_ffn_dim", "decoder_layerdrop", "is_causal",
                "block_pool_size", "sliding_window", "downsample_factor", "encoder_head_dim", "vocab_size",
                "max_target_positions", "mask_feature_length", "mask_time_length")  # fmt: skip
    size = fields.need("d_model", "hidden_size", high=1 << 20)
    depth = fields.need("encoder_layers", "num_hidden_layers", high=MAX_DEPTH)
    heads = fields.need("encoder_attention_heads", "num_attention_heads", high=1 << 12)
    width = fields.need("encoder_ffn_dim", "intermediate_size")
    bins, frames = fields.get("num_mel_bins", default=80, high=1 << 12), fields.get("max_source_positions",
    default=1500,
                                                                                    high=1 << 24)  # fmt: skip
    groups = conv(parts, f"{path}.conv1", (size, bins, 3), bias=True)
    groups += conv(parts, f"{path}.conv2", (size, size, 3), bias=True)
    groups.append(table(parts, f"{path}.embed_positions", frames, size))
    groups += audio_layers(parts, f"{path}.layers", depth, size, width, key_bias=False)
    groups += norm(parts, f"{path}.layer_norm", size)
    return Seen(size, depth, heads, frames, groups)


def audio_layers(parts: Parts, path: str, depth: int, size: int, width: int, *, key_bias: bool) -> list[TensorGroup]:
    """The layers of a Whisper-like encoder."""
    layer = Encoder(norms=("self_attn_layer_norm", "final_layer_norm"), mlp="mlp")
    groups = [
        g for g in layer.layers(parts, path, depth, size, width) if key_bias or not g.path.endswith("k_proj.bias")
    ]
    return [g._replace(path=g.path.replace(".mlp.", ".")) for g in groups]


def omni_audio(fields: Fields, parts: Parts, path: str) -> Seen:
    """Qwen3-Omni and Qwen3-ASR: three convolutions over time and frequency, positions by rule."""
    size, depth = fields.need("d_model", high=1 << 20), fields.need("encoder_layers", high=MAX_DEPTH)
    heads, width = fields.need("encoder_attention_heads", high=1 << 12), fields.need("encoder_ffn_dim")
    wide, bins = fields.need("downsample_hidden_size", high=1 << 16), fields.get("num_mel_bins", default=128,
                                                                                 high=1 << 12)  # fmt: skip
    fields.skip("n_window", "n_window_infer", "conv_chunksize", "max_source_positions", "max_position_embeddings",
                "num_hidden_layers")  # fmt: skip
    groups: list[TensorGroup] = []
    for name, before in (("conv2d1", 1), ("conv2d2", wide), ("conv2d3", wide)):
        groups += conv(parts, f"{path}.{name}", (wide, before, 3, 3), bias=True)
    left = bins
    for _ in range(3):
        left = (left + 1) // 2
    groups += parts.linear(f"{path}.conv_out", "tower", size, wide * left)
    groups += audio_layers(parts, f"{path}.layers", depth, size, width, key_bias=True)
    groups += norm(parts, f"{path}.ln_post", size)
    return Seen(size, depth, heads, None, groups)


def pixtral_encoder(fields: Fields, parts: Parts, path: str) -> Seen:
    """Pixtral's tower without a projector."""
    size, depth, heads, width = usual_sizes(fields)
    patch, image = square(fields, "patch_size"), square(fields, "image_size", 1024)
    channels = fields.get("num_channels", default=3, high=64)
    fields.skip("head_dim", "vocab_size")
    layer = Encoder("attention", out="o_proj", norms=("attention_norm", "ffn_norm"), norm_bias=False, qkv_bias=False,
                    out_bias=False, mlp="feed_forward", mlp_names=GATED, mlp_bias=False, gated=True)  # fmt: skip
    groups = conv(parts, f"{path}.patch_conv", (size, channels, patch, patch), bias=False)
    groups += norm(parts, f"{path}.ln_pre", size, bias=False)
    groups += layer.layers(parts, f"{path}.transformer.layers", depth, size, width)
    return Seen(size, depth, heads, (image // patch) ** 2, groups)


# By the `model_type` of the encoder's dictionary.
KINDS: Final[dict[str, EncoderReader]] = {
    **dict.fromkeys(("siglip_vision_model", "siglip", "siglip_vision"), siglip_encoder),
    **dict.fromkeys(("siglip2_vision_model", "siglip2"), siglip2_encoder),
    **dict.fromkeys(("idefics3", "idefics3_vision", "smolvlm", "smolvlm_vision"), idefics3_encoder),
    "clip_vision_model": clip_encoder,
    "intern_vit_6b": intern_vit,
    "pixtral": pixtral_encoder,
    **dict.fromkeys(("whisper", "qwen2_audio_encoder", "voxtral_encoder", "glmasr_encoder"), whisper_encoder),
}  # fmt: skip


def encoder_in(reading: Reading, path: str, *, name: str = "vision_config", default: str = "") -> Seen:
    """The encoder that a dictionary of the config describes, by its kind; default: the kind of one that states none.

    Raises BadInput when it is missing, NotModelled for an unknown kind or a field that nothing read.
    """
    fields = reading.top.sub(name)
    if fields is None:
        raise reading.top.missing(name)
    stated = fields.text("model_type") or ""
    kind = default if default and stated not in KINDS else stated or fields.kind
    if kind not in KINDS:
        raise NotModelled(
            f"is {shown(kind)}, which is none of {', '.join(KINDS)}",
            fields.named("model_type"),
            "Plan from file headers",
        )
    seen = KINDS[kind](fields, reading.parts.at("tower"), path)
    fields.close()
    return seen
