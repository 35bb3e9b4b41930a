"""llama.cpp's quantisation recipes: which ggml type each tensor of a mix gets.

Source: llama_tensor_get_type and tensor_type_fallback of llama.cpp 0.5.0-dev (October 2026). Checked: Q4_K_M of
Llama-3.1-8B comes to 4,912,898,048 bytes (the published file less its header and its rotary table of 256), and the
types that llama.cpp's own tests pin for ten models (tests/model/gguf_types.json.gz).
"""

from __future__ import annotations

from typing import Final

from kvplanner.model.formats import WeightFormat, dense, ggml
from kvplanner.model.ggml import BY_NAME
from kvplanner.record import NamedTuple

# What a type becomes for a matrix whose rows are no multiple of its block: a type of 32-wide blocks.
_FALLBACK: Final = {
    "Q6_K": "Q8_0", "Q5_K": "Q5_1", "Q4_K": "Q5_0", "Q3_K": "Q4_0", "Q2_K": "Q4_0",
    **dict.fromkeys(("IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ4_XS"), "IQ4_NL"),
}  # fmt: skip


class Recipe(NamedTuple):
    """A mix. base: of everything that no rule names; output: of the head, or of a tied embedding; table: of an
    embedding beside a head of its own. matrix: files of this mix are usually made with an importance matrix."""

    name: str
    base: str
    output: str
    table: str
    matrix: bool = False


class Place(NamedTuple):
    """What the recipes look at besides a tensor's name.

    layer of layers: by number, layers that predict further tokens among them. value of values: which of the value
    projections (joined projections and recurrent layers' among them) a tensor is, in order. down: which of the matrices
    down, in order. gqa: query heads per KV head in the first layer, 0 where it has no attention. experts: 0 for a dense
    model. tied: the head is the embedding. large: what llama.cpp calls a 70B.
    older: quantised by a llama.cpp that had rules of their own for joined projections (until early 2026).
    """

    layer: int
    layers: int
    value: int
    values: int
    down: int
    gqa: int
    experts: int
    tied: bool
    large: bool
    older: bool = False


def _recipes() -> dict[str, Recipe]:
    five = {"output": "Q5_K"}
    rows: tuple[tuple[str, str, dict[str, str | bool]], ...] = (
        ("F16", "F16", {"output": "F16"}), ("BF16", "BF16", {"output": "BF16"}), ("Q8_0", "Q8_0", {"output": "Q8_0"}),
        ("Q6_K", "Q6_K", {}), ("Q5_K_M", "Q5_K", {}), ("Q5_K_S", "Q5_K", {}), ("Q5_1", "Q5_1", {}),
        ("Q5_0", "Q5_0", {}), ("Q4_K_M", "Q4_K", {}), ("Q4_K_S", "Q4_K", {}), ("Q4_1", "Q4_1", {}),
        ("Q4_0", "Q4_0", {}), ("IQ4_NL", "IQ4_NL", {"matrix": True}), ("IQ4_XS", "IQ4_XS", {"matrix": True}),
        ("MXFP4", "Q8_0", {"output": "Q8_0"}), ("Q3_K_L", "Q3_K", {}), ("Q3_K_M", "Q3_K", {}),
        ("IQ3_M", "IQ3_S", {"matrix": True}), ("Q3_K_S", "Q3_K", {}), ("IQ3_S", "IQ3_S", {"matrix": True}),
        ("IQ3_XS", "IQ3_S", {"matrix": True}), ("IQ3_XXS", "IQ3_XXS", {**five, "table": "IQ3_S", "matrix": True}),
        ("Q2_K", "Q2_K", {}), ("Q2_K_S", "Q2_K", {"matrix": True}),
        ("IQ2_M", "IQ2_S", {**five, "table": "IQ3_S", "matrix": True}),
        ("IQ2_S", "IQ2_XS", {**five, "table": "IQ3_S", "matrix": True}),
        ("IQ2_XS", "IQ2_XS", {**five, "table": "Q2_K", "matrix": True}),
        ("IQ2_XXS", "IQ2_XXS", {**five, "table": "Q2_K", "matrix": True}),
        ("IQ1_M", "IQ1_M", {**five, "table": "Q2_K", "matrix": True}),
        ("IQ1_S", "IQ1_S", {**five, "table": "Q2_K", "matrix": True}),
    )  # fmt: skip
    return {
        name: Recipe(
            name, base, str(more.get("output", "Q6_K")), str(more.get("table", base)), bool(more.get("matrix"))
        )
        for name, base, more in rows
    }


RECIPES: Final = _recipes()
_SMALLEST: Final = frozenset({"IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ2_M", "IQ1_S", "IQ1_M"})
_WHOLE: Final = frozenset({"F16", "BF16", "Q8_0", "Q6_K"})
# Output projections that get another type than the rest.
_OUTPUT_PROJECTION: Final = {
    "Q3_K_M": "Q4_K", "Q3_K_L": "Q5_K", "Q2_K": "Q3_K", "IQ3_M": "Q4_K", "IQ3_XXS": "IQ3_S", "IQ2_S": "IQ3_S",
    "IQ2_M": "IQ3_S", "IQ1_S": "IQ2_XXS", "IQ1_M": "IQ2_XXS",
}  # fmt: skip
_JOINED: Final = {
    "Q3_K_M": "Q4_K", "Q3_K_L": "Q4_K", "IQ3_M": "Q4_K", "Q4_K_M": "Q5_K", "Q5_K_M": "Q6_K",
}  # fmt: skip
# Where eight experts share a model's attention (Mixtral), its projections are few and get more bits.
_OUTPUT_OF_EIGHT: Final = frozenset(
    {"Q2_K", "IQ3_XS", "IQ3_XXS", "Q3_K_S", "Q3_K_M", "IQ4_NL", "Q4_K_S", "Q4_K_M", "IQ3_S", "IQ3_M", "IQ4_XS"}
) | _SMALLEST  # fmt: skip
_KEPT: Final = ("_norm.", "ffn_gate_inp", "conv1d", "shortconv.conv")
# Kept in 16 bits by their names, and never quantised.
_SIXTEEN: Final = ("laurel.linear", "altup_proj", "altup_unembed", "per_layer_model_proj")


def recipe_format(recipe: Recipe, name: str, shape: tuple[int, ...], place: Place, *, matrix: bool) -> WeightFormat:
    """The format of a tensor by its GGUF name and its shape (rows, columns); of vectors, routers and convolutions fp32.

    matrix: the file is made with an importance matrix.
    """
    if len(shape) != 2 or _is_kept(name):
        return dense("float32")
    if any(part in name for part in _SIXTEEN):
        return dense("float16")
    type_ = _type(recipe, name, place, matrix)
    if type_ in ("F16", "BF16"):
        return dense("float16" if type_ == "F16" else "bfloat16")
    if shape[-1] % BY_NAME[type_].block:
        type_ = "Q8_0" if _is_output(name, place) else _FALLBACK.get(type_, type_)
        if shape[-1] % BY_NAME[type_].block:
            return dense("float16")
    return ggml(type_)


def by_layer(recipe: Recipe, name: str) -> bool:
    """Whether a tensor's type may differ from layer to layer."""
    middle = recipe.name == "IQ3_XS" and name.startswith(("ffn_gate", "ffn_up"))
    return is_value(name) or "ffn_down" in name or middle


def more_bits(layer: int, layers: int) -> bool:
    """The first and the last eighth of the layers, and every third between."""
    return layer < layers // 8 or layer >= 7 * layers // 8 or (layer - layers // 8) % 3 == 2


def is_value(name: str) -> bool:
    """Whether the recipes take a tensor for a value projection: joined projections, also of recurrent layers, too."""
    return name in ("attn_v.weight", "attn_qkv.weight", "attn_kv_b.weight")


def _is_kept(name: str) -> bool:
    return not name.endswith(".weight") or any(part in name for part in _KEPT) or (
        "altup" in name and not any(part in name for part in _SIXTEEN)
    )  # fmt: skip


def _is_output(name: str, place: Place) -> bool:
    return name == "output.weight" or (place.tied and name in ("token_embd.weight", "per_layer_token_embd.weight"))


def _type(recipe: Recipe, name: str, place: Place, matrix: bool) -> str:
    mix = recipe.name
    if _is_output(name, place):
        return recipe.output
    if mix == "MXFP4":
        stacked = "_exps" in name or name in ("attn_k_b.weight", "attn_v_b.weight")
        return "MXFP4" if stacked else recipe.base
    if name in ("token_embd.weight", "per_layer_token_embd.weight"):
        return recipe.table
    if mix in _WHOLE:
        return recipe.base
    if place.older and name == "attn_qkv.weight":
        return _JOINED.get(mix, recipe.base)
    if is_value(name):
        return _value(recipe, place, matrix)
    if "ffn_down" in name:
        return _down(recipe, place, matrix)
    if name == "attn_output.weight":
        if place.experts == 8:
            return "Q5_K" if mix in _OUTPUT_OF_EIGHT else recipe.base
        return _OUTPUT_PROJECTION.get(mix, recipe.base)
    if name == "attn_k.weight" and place.experts == 8:
        return "Q4_K" if mix in _SMALLEST else "Q8_0"
    if name in ("attn_k.weight", "attn_q.weight"):
        return {"IQ3_XS": "IQ3_XXS", "IQ3_XXS": "IQ2_S"}.get(mix, recipe.base)
    middle = place.layers // 8 <= place.layer < 7 * place.layers // 8
    return "IQ3_XXS" if mix == "IQ3_XS" and middle and name.startswith(("ffn_gate", "ffn_up")) else recipe.base


def _value(recipe: Recipe, place: Place, matrix: bool) -> str:
    """Value projections: small where heads share them, and worth more bits."""
    mix, found = recipe.name, recipe.base
    shared = place.gqa >= 4
    if mix in _SMALLEST:
        less = "IQ3_S" if mix in ("IQ2_S", "IQ2_M") else "Q2_K"
        return "Q4_K" if shared or place.experts >= 4 else less
    if mix == "Q2_K":
        found = "Q4_K" if shared else "Q3_K"
    elif mix == "IQ3_XXS" and not matrix and not shared:
        found = "IQ3_S"
    elif mix in ("Q2_K_S", "IQ3_XXS", "IQ3_XS", "IQ3_S") and shared:
        found = "Q4_K"
    elif mix in ("IQ3_M", "Q3_K_M"):
        found = "Q5_K" if mix == "Q3_K_M" and place.value < 2 else "Q4_K"
    elif mix == "Q3_K_L" or (mix in ("IQ4_NL", "IQ4_XS") and shared) or (mix == "Q4_K_S" and place.value < 4):
        found = "Q5_K"
    elif mix in ("Q4_K_M", "Q5_K_M") and more_bits(place.value, place.values):
        found = "Q6_K"
    if place.large and found in ("Q3_K", "Q4_K"):
        found = "Q5_K"
    return "Q8_0" if place.experts == 8 else found


def _down(recipe: Recipe, place: Place, matrix: bool) -> str:
    """The second matrix of feed-forward blocks and experts."""
    mix, layers = recipe.name, place.layers
    layer = place.layer if place.experts > 1 else place.down
    first = layer < layers // 8
    if mix in _SMALLEST:
        return ("IQ3_S" if mix in ("IQ2_S", "IQ2_M") else "Q2_K") if place.down < layers // 8 else recipe.base
    if mix in ("Q4_K_M", "Q5_K_M"):
        return "Q6_K" if more_bits(layer, layers) else recipe.base
    if mix == "Q3_K_M":
        return "Q5_K" if layer < layers // 16 else "Q4_K"
    if mix == "IQ3_XXS" and not matrix:
        return "Q4_K" if first else "Q3_K"
    if mix == "IQ3_M" and (first or (place.experts == 8 and more_bits(layer, layers))):
        return "Q4_K"
    if first and (mix == "Q4_K_S" or (mix in ("IQ4_NL", "IQ4_XS") and not matrix)):
        return "Q5_K"
    if first and matrix and mix in ("Q4_0", "Q5_0"):
        return "Q4_1" if mix == "Q4_0" else "Q5_1"
    if first and mix == "Q2_K_S":
        return "Q4_K"
    return {"Q2_K": "Q3_K", "Q3_K_L": "Q5_K"}.get(mix, recipe.base)
