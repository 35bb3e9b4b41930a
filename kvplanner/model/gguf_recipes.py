"""llama.cpp's quantisation recipes: which ggml type each tensor of a mix gets.

Source: llama_tensor_get_type of llama.cpp (October 2026), without importance matrix. Checked: Q4_K_M of
Llama-3.1-8B comes to 4,912,898,048 bytes: the published file less its header and its rotary table of 256.
"""

from __future__ import annotations

from typing import Final

from kvplanner.model.formats import WeightFormat, dense, ggml
from kvplanner.model.ggml import BY_NAME
from kvplanner.model.tensors import TensorGroup
from kvplanner.record import NamedTuple

# What a type becomes for a matrix whose rows are no multiple of its block.
_FALLBACK: Final = {
    "Q6_K": "Q8_0", "Q5_K": "Q5_1", "Q4_K": "Q5_0", "Q3_K": "IQ4_NL", "Q2_K": "IQ4_NL", "IQ4_XS": "IQ4_NL",
}  # fmt: skip
_GGUF_FLOAT: Final = dense("float32")


class Recipe(NamedTuple):
    """A mix. base: of everything that no rule names; output: of the head, or of a tied embedding."""

    name: str
    base: str
    output: str


class Place(NamedTuple):
    """Where a tensor is: its layer of `layers`, query heads per KV head, experts, and whether the head is tied."""

    layer: int
    layers: int
    gqa: int
    experts: int
    tied: bool


RECIPES: Final[dict[str, Recipe]] = {
    name: Recipe(name, base, output)
    for name, base, output in (
        ("Q8_0", "Q8_0", "Q8_0"), ("Q6_K", "Q6_K", "Q6_K"), ("Q5_K_M", "Q5_K", "Q6_K"), ("Q4_K_M", "Q4_K", "Q6_K"),
        ("IQ4_XS", "IQ4_XS", "Q6_K"), ("Q3_K_M", "Q3_K", "Q6_K"), ("Q2_K", "Q2_K", "Q6_K"),
    )
}  # fmt: skip


def recipe_format(recipe: Recipe, group: TensorGroup, place: Place) -> WeightFormat:
    """The format of a tensor: fp32 for vectors, routers and convolutions, else a ggml type."""
    if len(group.shape) != 2 or group.kind in ("norm", "router", "other"):
        return _GGUF_FLOAT
    name = _type(recipe, group, place)
    if group.shape[-1] % BY_NAME[name].block:
        name = _FALLBACK.get(name, "F16")
        if name == "F16" or group.shape[-1] % BY_NAME[name].block:
            return dense("float16")
    return ggml(name)


def more_bits(layer: int, layers: int) -> bool:
    """The first and the last eighth of the layers, and every third between."""
    return layer < layers // 8 or layer >= 7 * layers // 8 or (layer - layers // 8) % 3 == 2


def _type(recipe: Recipe, group: TensorGroup, place: Place) -> str:
    if group.kind == "head" or (group.kind == "embedding" and place.tied and group.place == "first+last"):
        return recipe.output
    if group.kind == "embedding" or recipe.name in ("Q8_0", "Q6_K"):
        return recipe.base
    role = _role(group)
    if role == "v" and place.experts != 8:
        return _value(recipe, place)
    if role in ("k", "v") and place.experts == 8:
        return "Q8_0"
    if role == "down":
        return _down(recipe, place)
    if role == "o":
        return {"Q3_K_M": "Q4_K", "Q2_K": "Q3_K"}.get(recipe.name, recipe.base)
    if role == "qkv":
        return {"Q3_K_M": "Q4_K", "Q4_K_M": "Q5_K", "Q5_K_M": "Q6_K"}.get(recipe.name, recipe.base)
    return recipe.base


def _role(group: TensorGroup) -> str:
    """What the recipes tell apart: value, key, output and fused projections, and the way down."""
    last = group.path.rpartition(".")[2]
    if group.kind == "attention" or (group.kind == "mtp" and "attn" in group.path):
        if last in ("qkv_proj", "W_pack", "query_key_value", "c_attn", "wqkv"):
            return "qkv"
        return {"v_proj": "v", "k_proj": "k", "value": "v", "key": "k", "o_proj": "o", "out_proj": "o"}.get(last, "")
    return "down" if last in ("down_proj", "w2", "c_proj", "output_linear", "dense_4h_to_h") else ""


def _value(recipe: Recipe, place: Place) -> str:
    """Value projections: small where heads share them, and worth more bits."""
    if recipe.name == "Q2_K":
        return "Q4_K" if place.gqa >= 4 else "Q3_K"
    if recipe.name == "Q3_K_M":
        return "Q5_K" if place.layer < 2 else "Q4_K"
    if recipe.name == "IQ4_XS":
        return "Q5_K" if place.gqa >= 4 else recipe.base
    if recipe.name in ("Q4_K_M", "Q5_K_M") and more_bits(place.layer, place.layers):
        return "Q6_K"
    return "Q5_K" if place.layers == 80 and place.gqa == 8 and recipe.base == "Q4_K" else recipe.base


def _down(recipe: Recipe, place: Place) -> str:
    """The second matrix of feed-forward blocks and experts."""
    if recipe.name == "Q2_K":
        return "Q3_K"
    if recipe.name == "Q3_K_M":
        return "Q5_K" if place.layer < place.layers // 16 else "Q4_K"
    if recipe.name == "IQ4_XS":
        return "Q5_K" if place.layer < place.layers // 8 else recipe.base
    if recipe.name in ("Q4_K_M", "Q5_K_M") and more_bits(place.layer, place.layers):
        return "Q6_K"
    return recipe.base
