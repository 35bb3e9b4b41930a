"""What if a model were stored in another weight format: its inventory as publishers quantise models of its kind.

Engine formats follow the recipe that most repositories of the catalogue show for the architecture, or for models with
the same traits; where none shows the format, the matrices of attention, state layers, feed-forward blocks and experts
are quantised, and embeddings, head, norms, routers and towers left alone. GGUF recipes follow llama.cpp's own; rotary
tables that some files carry (256 bytes in Llama 3.1's) are left out. Dynamic mixes are as large as published ones are
against the nearest recipe, with that recipe's tensors scaled.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate
from types import MappingProxyType
from typing import Final

from kvplanner.errors import NotModelled, UnknownName
from kvplanner.estimate import Estimate, Input, banded, exact
from kvplanner.model import dynamic, formats
from kvplanner.model.formats import WeightFormat
from kvplanner.model.gguf_names import gguf_name, outside_name
from kvplanner.model.gguf_recipes import RECIPES, Place, by_layer, is_value, recipe_format
from kvplanner.model.gguf_recipes import Recipe as MixRecipe
from kvplanner.model.quantisation import published
from kvplanner.model.quantisation.published import Recipe
from kvplanner.model.spec import Attention, Mla, ModelSpec
from kvplanner.model.tensors import Inventory, TensorGroup
from kvplanner.record import NamedTuple

_LINEAR: Final = ("attention", "state", "mlp", "dense block", "shared experts", "experts")
_BAND: Final = 0.02
_MADE: Final = (
    "A few matrices get another type with an importance matrix than without one, or from a llama.cpp before 2026"
)
_DYNAMIC: Final = "A dynamic mix is chosen model by model: open the file, or name its size, to be sure"
_OWN_CONFIG: Final = "Publishers leave different parts in 16 bits: choose a repository by its own name to see it"
# The part of recipes, by how many repositories show them, that a band leaves out at either end.
_RARE: Final = 0.05
# Hybrids whose files state one number of heads for all layers; others state it layer by layer, and have none where a
# recurrent layer stands first.
_ALIKE: Final = frozenset({"qwen3_next", "qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text"})
_LAYERS_OF_70B: Final = 80
_LARGE: Final = frozenset({"qwen2", "olmo", "deci", "nemotron_nas"})
# Architectures whose converter has always kept the layers that predict further tokens, and counts them.
_PREDICTING: Final = frozenset({"glm4_moe", "glm4_moe_lite", "ernie4_5_moe", "mimo"})


class _Rule(NamedTuple):
    """An engine format: how matrices are stored, what engines call the method, and what it says in one line."""

    format: WeightFormat
    method: str
    about: str
    experts_only: bool = False


_ENGINE: Final[dict[str, _Rule]] = {
    "FP8": _Rule(formats.fp8_tensor(True), "fp8", "8-bit floats, one scale per matrix: half of bfloat16"),
    "FP8 block": _Rule(formats.fp8_block(128, 128), "fp8", "8-bit floats, one scale per 128 × 128 block"),
    "INT8": _Rule(formats.INT8_CHANNEL, "compressed-tensors", "8-bit integers, one scale per row"),
    "AWQ 4-bit": _Rule(formats.awq(4, 128, True), "awq", "4-bit integers in groups of 128, zeros stored"),
    "GPTQ 4-bit": _Rule(formats.gptq(4, 128), "gptq", "4-bit integers in groups of 128, with an order index"),
    "NVFP4": _Rule(formats.NVFP4, "modelopt_fp4", "4-bit floats in groups of 16 with 8-bit scales (Blackwell)"),
    "MXFP4": _Rule(formats.MXFP4, "mxfp4", "4-bit floats in groups of 32; only the experts, where there are any", True),
    "bitsandbytes 4-bit": _Rule(formats.bnb4(double=False), "bitsandbytes", "4-bit table look-up, a scale per 64"),
}
_GGUF_ABOUT: Final[dict[str, str]] = {
    "BF16": "16-bit floats, as most models are published",
    "F16": "16-bit floats",
    "Q8_0": "8-bit blocks of 32: nearly lossless",
    "Q6_K": "6-bit blocks",
    "Q5_K_M": "5-bit blocks, 6-bit where it matters most",
    "Q5_K_S": "5-bit blocks",
    "Q5_1": "5-bit blocks of 32 with minimums: an old type",
    "Q5_0": "5-bit blocks of 32: an old type",
    "Q4_K_M": "4-bit blocks, 6-bit where it matters most: the usual choice",
    "Q4_K_S": "4-bit blocks, 5-bit in the first layers",
    "Q4_1": "4-bit blocks of 32 with minimums: an old type",
    "Q4_0": "4-bit blocks of 32: an old type, fast on processors",
    "IQ4_NL": "4-bit blocks of 32 by a table",
    "IQ4_XS": "4-bit blocks without minimums: the smallest 4-bit",
    "MXFP4": "4-bit floats for experts, 8-bit blocks for the rest",
    "Q3_K_L": "3-bit blocks, 5-bit where it matters most",
    "Q3_K_M": "3-bit blocks, 4- and 5-bit where it matters most",
    "IQ3_M": "3-bit blocks by a table, 4-bit where it matters most",
    "Q3_K_S": "3-bit blocks",
    "IQ3_S": "3-bit blocks by a table",
    "IQ3_XS": "3-bit blocks by a table, fewer bits in the middle layers",
    "IQ3_XXS": "3-bit blocks by a table: the smallest 3-bit",
    "Q2_K": "2-bit blocks, 3-bit where it matters most",
    "Q2_K_S": "2-bit blocks",
    "IQ2_M": "2-bit blocks by a table, 3-bit where it matters most",
    "IQ2_S": "2-bit blocks by a table, 3-bit where it matters most, smaller",
    "IQ2_XS": "2-bit blocks by a table",
    "IQ2_XXS": "2-bit blocks by a table: the smallest 2-bit",
    "IQ1_M": "under 2 bits",
    "IQ1_S": "under 2 bits: the smallest of all",
}
WHATIF_FORMATS: Final[Mapping[str, str]] = MappingProxyType(
    {name: rule.about for name, rule in _ENGINE.items()}
    | {f"GGUF {name}": about for name, about in _GGUF_ABOUT.items()}
    | {f"GGUF {mix}": f"a dynamic mix near {like}: sized by published files" for mix, like in dynamic.LIKE.items()}
)


def reformat(inventory: Inventory, spec: ModelSpec, format_name: str) -> Inventory:
    """The same tensors in another format; a model that is quantised already is taken from its logical shapes.

    Raises UnknownName for a name that is not in WHATIF_FORMATS, and NotModelled where it has no known size.
    """
    _known(format_name)
    plain, mix = published.plain(inventory, spec), format_name.removeprefix("GGUF ")
    if dynamic.is_dynamic(format_name):
        if why := dynamic.cannot_make(mix, spec.quantization):
            raise NotModelled(why, format_name, "Name another weight format")
        return _scaled(_as_gguf(plain, spec, dynamic.LIKE[mix]), dynamic.ratio(mix, plain.parameters()).usual)
    if format_name.startswith("GGUF "):
        return _as_gguf(plain, spec, mix)
    return published.quantised(plain, _parts(plain, spec, format_name))


def text_bytes(inventory: Inventory, spec: ModelSpec, recipe: str) -> int:
    """What a model file of one of llama.cpp's recipes takes: without towers, which have a file of their own."""
    made = _as_gguf(published.plain(inventory, spec), spec, recipe)
    return sum(group.stored_bytes * count for group, count in made.groups() if group.place not in ("mtp", "tower"))


def _scaled(made: Inventory, factor: float) -> Inventory:
    """The same tensors with the quantised ones' bits scaled, so that all together take `factor` as much."""
    sizes = [(g, g.stored_bytes * n) for g, n in made.groups() if g.place not in ("mtp", "tower")]
    total = sum(size for _, size in sizes)
    packed = sum(size for group, size in sizes if published.is_packed(group.format))
    bits = 1 + total * (factor - 1) / max(packed, 1)

    def change(group: TensorGroup) -> TensorGroup:
        if not published.is_packed(group.format):
            return group
        return group._replace(format=group.format._replace(bits=group.format.bits * bits))

    blocks = tuple(tuple(change(group) for group in block) for block in made.blocks)
    return made._replace(blocks=blocks, outside=tuple(change(group) for group in made.outside), exact=False)


def _parts(plain: Inventory, spec: ModelSpec, format_name: str) -> Mapping[str, WeightFormat | None]:
    """The format of each part, as the likeliest recipe has it."""
    recipe = _recipe(spec, format_name)
    if recipe is not None:
        return recipe.parts
    rule = _ENGINE[format_name]
    only = rule.experts_only and published.has_experts(plain)
    return dict.fromkeys(("experts",) if only else _LINEAR, rule.format)


def _recipe(spec: ModelSpec, format_name: str) -> Recipe | None:
    """The likeliest recipe of an engine format for a model, None where no repository shows one."""
    found = published.alike((format_name,), spec, published.traits_of(spec))
    return found[0] if found else None


def respec(spec: ModelSpec, format_name: str) -> ModelSpec:
    """The spec of the same model in another format: the method's name as engines call it."""
    _known(format_name)
    method = "gguf" if format_name.startswith("GGUF ") else _method(spec, format_name)
    return spec._replace(quantization=method, kv_cache_dtype=None, quantization_traits=())


def _method(spec: ModelSpec, format_name: str) -> str:
    """What engines call the format: the usual method, or a recipe's own where it takes several formats."""
    recipe = _recipe(spec, format_name)
    several = recipe is not None and len({form.name for form in recipe.parts.values() if form is not None}) > 1
    return recipe.method if recipe is not None and several else _ENGINE[format_name].method


def stored(inventory: Inventory, spec: ModelSpec, format_name: str, made: Inventory | None = None) -> Estimate:
    """The size of the model in another format, with the recipe that it follows and what others would give.

    made: its tensors in that format, where they are known.

    The band goes over the recipes that publishers take for models of its kind, half a percent downwards (narrower
    scales) and 2 % upwards (a few more matrices left in 16 bits).
    """
    changed = reformat(inventory, spec, format_name) if made is None else made
    total = changed.stored_bytes(mtp=False)
    packed = sum(g.stored_bytes * n for g, n in changed.groups() if published.is_packed(g.format) and g.place != "mtp")
    recipe = None if format_name.startswith("GGUF ") else _recipe(spec, format_name)
    shown = f"; as in {recipe.ids[0]}" if recipe is not None else ""
    inputs = (
        Input("quantised", packed, "B", f"{format_name}: {WHATIF_FORMATS[format_name]}{shown}"),
        Input("kept", total - packed, "B", f"embeddings, norms, routers and the like in {spec.dtype}"),
    )
    formula = "{quantised} + {kept}"
    if dynamic.is_dynamic(format_name):
        return _as_seen(changed, total, format_name, formula, inputs)
    if format_name.startswith("GGUF ") and inventory.exact:
        others = _made_otherwise(inventory, spec, format_name.removeprefix("GGUF "))
        if all(other == total for other in others):
            return exact(total, formula, *inputs)
        found = banded(total, min(total, *others), max(total, *others), "analytic", formula, *inputs)
        return found.with_notes(_MADE)
    least, most = total, total
    if not format_name.startswith("GGUF "):
        least, most = _range(inventory, spec, format_name, total)
    found = banded(total, least - least // 200, most + int(most * _BAND), "analytic", formula, *inputs)
    return found.with_notes(_OWN_CONFIG)


def _as_seen(changed: Inventory, total: int, name: str, formula: str, inputs: tuple[Input, ...]) -> Estimate:
    """The size of a dynamic mix, as wide as published files lie."""
    mix = name.removeprefix("GGUF ")
    seen = dynamic.ratio(mix, changed.parameters())
    text = total - sum(group.stored_bytes * count for group, count in changed.groups() if group.place == "tower")
    low, high = (total + round(text * (bound / seen.usual - 1)) for bound in (seen.low, seen.high))
    of_files = Input("files", seen.files, "files", f"published with {mix}: {seen.low:g} to {seen.high:g} times "
                     f"{dynamic.LIKE[mix]}, usually {seen.usual:g}")  # fmt: skip
    return banded(total, low, high, "assumed", formula, *inputs, of_files).with_notes(_DYNAMIC)


def _range(inventory: Inventory, spec: ModelSpec, format_name: str, total: int) -> tuple[int, int]:
    """The sizes by nine tenths of the recipes that publishers take for models of this kind, `total` among them."""
    parts = published.Parts(inventory, spec)
    sizes: dict[int, int] = {}
    for recipe in published.others(format_name, spec):
        size = parts.bytes_in(recipe)
        sizes[size] = sizes.get(size, 0) + len(recipe.ids)
    every = [size for size in sorted(sizes) for _ in range(sizes[size])] or [total]
    out = int(len(every) * _RARE)
    return min(every[out], total), max(every[-1 - out], total)


def _made_otherwise(inventory: Inventory, spec: ModelSpec, recipe: str) -> tuple[int, ...]:
    """The sizes with an importance matrix where there usually is none, or the reverse; and by an older llama.cpp."""
    plain = published.plain(inventory, spec)
    other = _as_gguf(plain, spec, recipe, matrix=not RECIPES[recipe].matrix)
    return other.stored_bytes(mtp=False), _as_gguf(plain, spec, recipe, older=True).stored_bytes(mtp=False)


def _known(format_name: str) -> None:
    if format_name not in WHATIF_FORMATS:
        raise UnknownName(
            f"{format_name!r} is no weight format to try", "weight format", tuple(WHATIF_FORMATS), "Name one of them"
        )


def _as_gguf(plain: Inventory, spec: ModelSpec, recipe: str, *, matrix: bool | None = None, older: bool = False
) -> Inventory:  # fmt: skip
    """llama.cpp's recipe: the type of a matrix depends on what it is and on how deep its layer lies.

    matrix: made with an importance matrix; None as files of the recipe usually are. older: as of Place.
    """
    mix = RECIPES[recipe]
    plain = _as_written(plain, spec)
    trunk = len(plain.block_of)
    predicts = spec.model_type in _PREDICTING and any(group.place == "mtp" for group in plain.outside)
    values = [any(is_value(gguf_name(group.path)) for group in plain.blocks[at]) for at in plain.block_of]
    plainly = [any(gguf_name(group.path) == "attn_v.weight" for group in plain.blocks[at]) for at in plain.block_of]
    value_of = list(accumulate(plainly if older else values, initial=0))
    down_of = list(accumulate((_downs(plain.blocks[at]) for at in plain.block_of), initial=0))
    first = spec.layers[spec.layer_of[0]] if spec.model_type not in _ALIKE else None
    mixers = [m for layer in (spec.layers if first is None else (first,)) for m in layer.mixers]
    heads = next((m.heads // m.kv_heads for m in mixers if isinstance(m, Attention)), 0)
    gqa = next((m.heads for m in mixers if isinstance(m, Mla)), heads)
    large = trunk == _LAYERS_OF_70B and (spec.model_type in _LARGE or (spec.model_type == "llama" and gqa > 1))
    place = Place(
        0, trunk + predicts, 0, sum(values) + predicts, 0, gqa, _expert_count(plain), spec.tied_embeddings, large, older
    )

    kinds = _Kinds(mix, mix.matrix if matrix is None else matrix)
    # Layers that predict further tokens follow the last one.
    after = place._replace(layer=trunk, value=value_of[trunk], down=down_of[trunk])
    outside = tuple(
        g if g.place == "tower" else
        kinds.changed(g, gguf_name(g.path), after) if g.place == "mtp" else kinds.changed(g, outside_name(g), place)
        for g in plain.outside
    )  # fmt: skip
    bodies = [kinds.body(block, place) for block in plain.blocks]
    made: dict[tuple[TensorGroup, ...], int] = {}
    known: dict[object, int] = {}  # by body and what differs in it
    block_of = []
    for layer, at in enumerate(plain.block_of):
        here = place._replace(layer=layer, value=value_of[layer], down=down_of[layer])
        varying = bodies[at].varying
        formats = tuple(kinds.format(group, name, here) for _, group, name in varying)
        key = at, formats
        if key not in known:
            block = list(bodies[at].groups)
            for (number, group, _), chosen in zip(varying, formats, strict=True):
                block[number] = group._replace(format=chosen)
            known[key] = made.setdefault(tuple(block), len(made))
        block_of.append(known[key])
    return plain._replace(blocks=tuple(made), block_of=tuple(block_of), outside=outside)


class _Body(NamedTuple):
    """A layer's tensors in a mix. varying: those whose type the layer decides, by number, with their GGUF names."""

    groups: tuple[TensorGroup, ...]
    varying: tuple[tuple[int, TensorGroup, str], ...]


class _Kinds(NamedTuple):
    """A mix as it is made, with an importance matrix or without."""

    mix: MixRecipe
    matrix: bool

    def changed(self, group: TensorGroup, name: str, here: Place) -> TensorGroup:
        """A group in the type that the mix has for its GGUF name at a place."""
        return group._replace(format=self.format(group, name, here))

    def format(self, group: TensorGroup, name: str, here: Place) -> WeightFormat:
        """The type that the mix has for a group's GGUF name at a place."""
        fixed = group.kind in ("norm", "router") or "norm" in group.path or group.path.endswith(_BERTS_TABLES)
        return recipe_format(self.mix, name, (1,) if fixed else group.shape, here, matrix=self.matrix)

    def body(self, block: tuple[TensorGroup, ...], here: Place) -> _Body:
        """A layer's groups, those that its depth decides still to be changed."""
        names = [gguf_name(group.path) for group in block]
        varying = tuple(
            (number, group, name) for number, (group, name) in enumerate(zip(block, names, strict=True))
            if by_layer(self.mix, name)
        )  # fmt: skip
        later = {number for number, _, _ in varying}
        groups = (g if i in later else self.changed(g, name, here)
                  for i, (g, name) in enumerate(zip(block, names, strict=True)))  # fmt: skip
        return _Body(tuple(groups), varying)


def _downs(block: tuple[TensorGroup, ...]) -> int:
    return sum("ffn_down" in gguf_name(group.path) and len(group.shape) == 2 for group in block)


# What GGUF files keep in 32 bits whatever the mix (convert_hf_to_gguf.py).
_BERTS_TABLES: Final = ("position_embeddings", "token_type_embeddings")
# Models whose files keep that projection whole (llama.cpp caches all of their heads).
_WHOLE_LATENT: Final = frozenset({"minicpm3", "plm"})


def _as_written(plain: Inventory, spec: ModelSpec) -> Inventory:
    """The tensors as GGUF files keep them: of latent attention's second projection the part for keys, by heads and
    transposed, and that for values."""
    mixer = next((m for layer in spec.layers for m in layer.mixers if isinstance(m, Mla)), None)
    if spec.model_type in _WHOLE_LATENT:
        mixer = None

    def split(group: TensorGroup) -> tuple[TensorGroup, ...]:
        # An activation's own numbers are written as metadata, and BERT's pooler is left out.
        if ".act_fn." in group.path or group.path.startswith("pooler."):
            return ()
        if mixer is None or gguf_name(group.path) != "attn_kv_b.weight" or len(group.shape) != 2:
            return (group,)
        rank = group.shape[1]
        keys = group._replace(path="attn_k_b", shape=(mixer.heads * rank, mixer.qk_nope), unit=1)
        return keys, group._replace(path="attn_v_b", shape=(mixer.heads * mixer.head_size_v, rank), unit=1)

    blocks = tuple(tuple(part for group in block for part in split(group)) for block in plain.blocks)
    outside = tuple(part for group in plain.outside for part in split(group))
    return plain._replace(blocks=blocks, outside=outside)


def _expert_count(inventory: Inventory) -> int:
    return max((g.count for g, _ in inventory.groups() if g.kind == "experts"), default=0)
