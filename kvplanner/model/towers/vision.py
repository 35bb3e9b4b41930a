"""Vision towers: encoders beside the language model, and the projectors that lead into it.

Sources: modelling classes of transformers 5.24 and element counts of public files; Kimi's tower from the byte
totals of Kimi-K2.5 to K2.7. Tower tensors stand once with `count` = depth; engines split their attention and
feed-forward over tensor-parallel ranks, the rest is whole on each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kvplanner.errors import NotModelled
from kvplanner.model.config.fields import Fields
from kvplanner.model.config.parts import Parts
from kvplanner.model.config.reading import Draft, Reader, Reading
from kvplanner.model.spec import Tower, TowerKind
from kvplanner.model.tensors import TensorGroup
from kvplanner.record import NamedTuple

TowerReader = Callable[[Reading, int], tuple[list[Tower], list[TensorGroup]]]
MAX_DEPTH: Final = 1024


def with_towers(text: Reader, *readers: TowerReader) -> Reader:
    """A language model with towers beside it."""

    def read(reading: Reading) -> Draft:
        draft = text(reading)
        for tower in readers:
            specs, groups = tower(reading, draft.hidden)
            draft = draft._replace(towers=(*draft.towers, *specs), outside=[*draft.outside, *groups])
        return draft

    return read


def vision_fields(reading: Reading, name: str = "vision_config") -> Fields:
    """The tower's dictionary. Raises BadInput when it is missing."""
    found = reading.top.sub(name)
    if found is None:
        raise reading.top.missing(name)
    return found


def tower_of(kind: TowerKind, hidden: int, depth: int, groups: list[TensorGroup], heads: int = 0,
             patches: int | None = None, tokens: int | None = None) -> Tower:  # fmt: skip
    """The tower's sizes, its parameters counted from its tensors."""
    return Tower(kind, hidden, depth, sum(g.elements for g in groups), heads, patches, tokens)


class Encoder(NamedTuple):
    """How a tower names the parts of its layers.

    qkv: three names, all equal for one stored matrix. norms: the layer's norms; norm_bias: LayerNorm.
    qkv_bias, out_bias, mlp_bias: whether they have biases; gated: gate_proj, up_proj and down_proj instead of two.
    """

    attention: str = "self_attn"
    qkv: tuple[str, str, str] = ("q_proj", "k_proj", "v_proj")
    out: str = "out_proj"
    norms: tuple[str, ...] = ("layer_norm1", "layer_norm2")
    norm_bias: bool = True
    qkv_bias: bool = True
    out_bias: bool = True
    mlp: str = "mlp"
    mlp_names: tuple[str, str, str] = ("", "fc1", "fc2")
    mlp_bias: bool = True
    gated: bool = False

    def layers(self, parts: Parts, path: str, depth: int, hidden: int, width: int,
               inner: int | None = None) -> list[TensorGroup]:  # fmt: skip
        """The tensors of `depth` equal layers; inner: width of the attention where it is not the tower's."""
        wide = inner or hidden
        groups: list[TensorGroup] = []
        for name in self.qkv:
            groups += parts.linear(f"{path}.{self.attention}.{name}", "tower", wide, hidden, "column",
                                   bias=self.qkv_bias, count=depth, fused="qkv")  # fmt: skip
        groups += parts.linear(f"{path}.{self.attention}.{self.out}", "tower", hidden, wide, "row",
                               bias=self.out_bias, count=depth)  # fmt: skip
        gate, up, down = self.mlp_names
        if self.gated:
            groups += parts.linear(f"{path}.{self.mlp}.{gate}", "tower", width, hidden, "column",
                                   bias=self.mlp_bias, count=depth, fused="gate_up_proj")  # fmt: skip
        fused = "gate_up_proj" if self.gated else ""
        groups += parts.linear(f"{path}.{self.mlp}.{up}", "tower", width, hidden, "column",
                               bias=self.mlp_bias, count=depth, fused=fused)  # fmt: skip
        groups += parts.linear(f"{path}.{self.mlp}.{down}", "tower", hidden, width, "row",
                               bias=self.mlp_bias, count=depth)  # fmt: skip
        for name in self.norms:
            groups += norm(parts, f"{path}.{name}", hidden, bias=self.norm_bias, count=depth)
        return groups


def norm(parts: Parts, path: str, size: int, *, bias: bool = True, count: int = 1) -> list[TensorGroup]:
    """A norm of a tower."""
    groups = [parts.tensor(path, "tower", (size,), count=count)]
    return [*groups, parts.tensor(f"{path}.bias", "tower", (size,), count=count)] if bias else groups


def conv(parts: Parts, path: str, shape: tuple[int, ...], *, bias: bool) -> list[TensorGroup]:
    """A convolution: whole on every rank."""
    groups = [parts.tensor(path, "tower", shape)]
    return [*groups, parts.tensor(f"{path}.bias", "tower", (shape[0],))] if bias else groups


def table(parts: Parts, path: str, *shape: int) -> TensorGroup:
    """A table of positions, classes or gates: never quantised, whole on every rank."""
    return parts.tensor(path, "tower", (1, *shape) if len(shape) == 2 else shape)


GATED: Final = ("gate_proj", "up_proj", "down_proj")


def square(fields: Fields, name: str, default: int | None = None) -> int:
    """A size given as a number or as two equal numbers."""
    value = fields.values.get(name)
    if isinstance(value, list | tuple):
        sides = fields.ints(name, low=1, high=1 << 16) or ()
        if len(sides) != 2 or sides[0] != sides[1]:
            raise fields.bad(name, "a number or two equal numbers")
        return sides[0]
    if value is None and default is not None:
        fields.took_default(name)
        return default
    return fields.need(name, high=1 << 16)


def siglip(reading: Reading, hidden: int) -> tuple[list[Tower], list[TensorGroup]]:
    """Gemma 3: SigLIP and a single projection."""
    fields, parts = vision_fields(reading), reading.parts.at("tower")
    fields.expect("vision_use_head", False)
    size, depth = fields.need("hidden_size", high=1 << 20), fields.need("num_hidden_layers", high=MAX_DEPTH)
    heads = fields.need("num_attention_heads", high=1 << 12)
    patch, image = square(fields, "patch_size"), square(fields, "image_size", 896)
    channels, width = fields.get("num_channels", default=3, high=64), fields.need("intermediate_size")
    fields.close()
    patches = (image // patch) ** 2
    groups = conv(parts, "vision_tower.embeddings.patch_embedding", (size, channels, patch, patch), bias=True)
    groups.append(table(parts, "vision_tower.embeddings.position_embedding", patches, size))
    groups += Encoder().layers(parts, "vision_tower.encoder.layers", depth, size, width)
    groups += norm(parts, "vision_tower.post_layernorm", size)
    tokens = reading.top.get("mm_tokens_per_image", default=256, high=1 << 20)
    projector = [table(parts, "multi_modal_projector.mm_input_projection_weight", size, hidden)]
    projector += norm(parts, "multi_modal_projector.mm_soft_emb_norm", size, bias=False)
    return [tower_of("vision", size, depth, groups + projector, heads, patches, tokens)], groups + projector


def llava(reading: Reading, hidden: int) -> tuple[list[Tower], list[TensorGroup]]:
    """LLaVA: CLIP or Pixtral, and two linear layers."""
    fields = vision_fields(reading)
    kind = fields.text("model_type", allowed=("clip_vision_model", "pixtral"))
    if kind is None:
        raise fields.missing("model_type")
    if kind == "pixtral":
        return pixtral(reading, hidden, fields, merged=False)
    parts = reading.parts.at("tower")
    size, depth = fields.need("hidden_size", high=1 << 20), fields.need("num_hidden_layers", high=MAX_DEPTH)
    heads, patch = fields.need("num_attention_heads", high=1 << 12), square(fields, "patch_size")
    image = square(fields, "image_size", 336)
    fields.skip("projection_dim", "vocab_size")
    patches = (image // patch) ** 2
    groups = clip(parts, "vision_tower", size, depth, fields.need("intermediate_size"), patch, patches)
    fields.close()
    projector = _two_linear(parts, size, hidden, reading.top.flag("multimodal_projector_bias", default=True))
    reading.top.skip("vision_feature_layer")
    return [tower_of("vision", size, depth, groups + projector, heads, patches, patches)], groups + projector


def clip(parts: Parts, path: str, size: int, depth: int, width: int, patch: int, patches: int) -> list[TensorGroup]:
    """CLIP's encoder, with both of its outer norms."""
    groups = [table(parts, f"{path}.embeddings.class_embedding", size)]
    groups += conv(parts, f"{path}.embeddings.patch_embedding", (size, 3, patch, patch), bias=False)
    groups.append(table(parts, f"{path}.embeddings.position_embedding", patches + 1, size))
    groups += norm(parts, f"{path}.pre_layrnorm", size) + norm(parts, f"{path}.post_layernorm", size)
    return groups + Encoder().layers(parts, f"{path}.encoder.layers", depth, size, width)


def _two_linear(parts: Parts, size: int, hidden: int, bias: bool) -> list[TensorGroup]:
    groups = parts.linear("multi_modal_projector.linear_1", "tower", hidden, size, "column", bias=bias)
    return groups + parts.linear("multi_modal_projector.linear_2", "tower", hidden, hidden, "row", bias=bias)


def pixtral(reading: Reading, hidden: int, fields: Fields, *, merged: bool) -> tuple[list[Tower], list[TensorGroup]]:
    """Pixtral's tower; merged: Mistral 3 joins patches two by two before its projector."""
    parts = reading.parts.at("tower")
    size, depth = fields.need("hidden_size", high=1 << 20), fields.need("num_hidden_layers", high=MAX_DEPTH)
    heads, patch = fields.need("num_attention_heads", high=1 << 12), square(fields, "patch_size")
    image, channels = square(fields, "image_size"), fields.get("num_channels", default=3, high=64)
    fields.skip("head_dim", "vocab_size")
    layer = Encoder("attention", out="o_proj", norms=("attention_norm", "ffn_norm"), norm_bias=False, qkv_bias=False,
                    out_bias=False, mlp="feed_forward", mlp_names=GATED, mlp_bias=False, gated=True)  # fmt: skip
    groups = conv(parts, "vision_tower.patch_conv", (size, channels, patch, patch), bias=False)
    groups += norm(parts, "vision_tower.ln_pre", size, bias=False)
    width = fields.need("intermediate_size")
    groups += layer.layers(parts, "vision_tower.transformer.layers", depth, size, width)
    fields.close()
    top, patches = reading.top, (image // patch) ** 2
    top.skip("vision_feature_layer", "image_token_index")
    bias = top.flag("multimodal_projector_bias", default=not merged)
    merge = top.get("spatial_merge_size", default=2, high=64) if merged else 1
    if merged:
        groups += norm(parts, "multi_modal_projector.norm", size, bias=False)
        groups += parts.linear("multi_modal_projector.patch_merger.merging_layer", "tower", size, size * merge * merge)
    groups += _two_linear(parts, size, hidden, bias)
    return [tower_of("vision", size, depth, groups, heads, patches, patches // (merge * merge))], groups


def mistral3(reading: Reading, hidden: int) -> tuple[list[Tower], list[TensorGroup]]:
    """Mistral Small 3.1 and later, Ministral 3, Devstral 2."""
    return pixtral(reading, hidden, vision_fields(reading), merged=True)


def internvl(reading: Reading, hidden: int) -> tuple[list[Tower], list[TensorGroup]]:
    """InternVL in its converted form: InternViT with layer scales, pixels shuffled two by two."""
    fields, parts, top = vision_fields(reading), reading.parts.at("tower"), reading.top
    fields.expect("use_qk_norm", False)
    fields.expect("norm_type", "layer_norm")
    bias = fields.flag("attention_bias", default=False)
    size, depth = fields.need("hidden_size", high=1 << 20), fields.need("num_hidden_layers", high=MAX_DEPTH)
    heads, patch = fields.need("num_attention_heads", high=1 << 12), square(fields, "patch_size")
    image, channels = square(fields, "image_size"), fields.get("num_channels", default=3, high=64)
    patches = (image // patch) ** 2
    path = "vision_tower"
    groups = [table(parts, f"{path}.embeddings.cls_token", size)]
    groups.append(table(parts, f"{path}.embeddings.position_embeddings", patches + 1, size))
    groups += conv(parts, f"{path}.embeddings.patch_embeddings.projection", (size, channels, patch, patch), bias=True)
    layer = Encoder("attention", out="projection_layer", norms=("layernorm_before", "layernorm_after"), qkv_bias=bias)
    groups += layer.layers(parts, f"{path}.encoder.layer", depth, size, fields.need("intermediate_size"))
    groups += [parts.tensor(f"{path}.encoder.layer.lambda_{n}", "tower", (size,), count=depth) for n in (1, 2)]
    fields.close()
    top.skip("vision_feature_layer")
    ratio = top.number("downsample_ratio")
    if ratio is not None and ratio != 0.5:
        raise NotModelled(f"is {ratio}, modelled is 0.5", top.named("downsample_ratio"),
                          "Other ratios cannot be planned")  # fmt: skip
    wide = size * 4
    groups += norm(parts, "multi_modal_projector.layer_norm", wide)
    groups += parts.linear("multi_modal_projector.linear_1", "tower", hidden, wide, bias=True)
    groups += parts.linear("multi_modal_projector.linear_2", "tower", hidden, hidden, bias=True)
    return [tower_of("vision", size, depth, groups, heads, patches, patches // 4)], groups
