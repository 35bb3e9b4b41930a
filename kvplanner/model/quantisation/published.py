"""How publishers quantise: which parts of a model get which format, as their repositories show.

A publisher's recipe for one architecture leaves some parts in 16 bits (linear attention, latent attention, shared
experts, the head), and another's leaves others. Rows are made by packaging/build_catalogue.py from the catalogue's
quantised repositories; each names the repositories that show it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, lru_cache
from itertools import chain
from typing import Any, Final

from kvplanner.files import shipped
from kvplanner.model.formats import DTYPE_BYTES, WeightFormat, dense
from kvplanner.model.spec import Mla, ModelSpec, Moe, State
from kvplanner.model.tensors import Inventory, TensorGroup
from kvplanner.record import NamedTuple

# Small projections of state layers that every recipe leaves alone.
_SMALL: Final = frozenset(
    {"in_proj_a", "in_proj_b", "in_proj_ba", "conv1d", "dt_proj", "x_proj", "f_a_proj", "g_a_proj", "b_proj"}
)


class Recipe(NamedTuple):
    """One way to quantise.

    key: the format that most bytes are in, by the names of WHATIF_FORMATS and more. publisher: the first part of ids.
    traits: see `traits_of`. method: as engines call it; kv_cache: what it asks of the cache.
    parts: the format of each part that these models have, None for 16 bits.
    twice: a tied head is stored once more (None: these models' heads are their own).
    predicts: multi-token-prediction blocks are kept (None: there are none).
    seen: how many of `ids` had their own settings read.
    """

    key: str
    publisher: str
    architecture: str
    traits: str
    method: str
    kv_cache: str | None
    parts: Mapping[str, WeightFormat | None]
    twice: bool | None
    predicts: bool | None
    seen: int
    ids: tuple[str, ...]


def part_of(group: TensorGroup, experts: bool) -> str:
    """The part of a model that a group belongs to, by which recipes tell tensors apart; "" for one they never touch.

    experts: whether the model has routed experts, beside which a dense block is a part of its own.
    """
    last = group.path.rpartition(".")[2]
    if len(group.shape) != 2 or group.kind == "norm" or (group.kind == "state" and last in _SMALL):
        return ""
    if group.place == "mtp":
        return "" if last in ("eh_proj", "fc", "gate") or group.shard == "vocab" else "mtp"
    if group.kind == "mlp":
        return "shared experts" if "shared" in group.path else "dense block" if experts else "mlp"
    return group.kind if group.kind in ("attention", "state", "experts", "head", "embedding") else ""


def traits_of(spec: ModelSpec) -> str:
    """What decides how a model is quantised: state layers, latent attention, experts."""
    mixers = [mixer for layer in spec.layers for mixer in layer.mixers]
    mlps = [mlp for layer in spec.layers for mlp in layer.mlps]
    found = (
        ("state", any(isinstance(mixer, State) for mixer in mixers)),
        ("latent", any(isinstance(mixer, Mla) for mixer in mixers)),
        ("experts", any(isinstance(mlp, Moe) for mlp in mlps)),
    )
    return "+".join(name for name, there in found if there)


def has_experts(inventory: Inventory) -> bool:
    """Whether a model has routed experts."""
    return any(group.kind == "experts" for group, _ in inventory.groups())


@cache
def recipes() -> tuple[Recipe, ...]:
    """All recipes that were seen, those of most repositories first."""
    return tuple(recipe_of(row) for row in _data()["recipes"])


def spread(key: str, near: bool) -> tuple[float, float]:
    """By what factors published sizes of a format differ from what other repositories' recipes give (low, high).

    near: the recipe is the publisher's own for this architecture.
    """
    rows = _data()["spread"]
    low, high = rows["near"] if near else rows.get(key) or rows["any"]
    return low, high


def is_near(recipe: Recipe, spec: ModelSpec, publisher: str) -> bool:
    """Whether a recipe is the publisher's own for a model of this kind."""
    own = recipe.publisher.lower() == publisher.lower() and bool(recipe.ids)
    return own and recipe.architecture == spec.architecture and recipe.traits == traits_of(spec)


@cache
def _data() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(shipped("models", "recipes.json").read_bytes())
    return loaded


def recipe_of(row: Mapping[str, Any]) -> Recipe:
    """A row of recipes.json."""
    formats = {name: WeightFormat(*fields) if fields else None for name, fields in row["parts"].items()}
    return Recipe(
        row["key"], row["publisher"], row["architecture"], row["traits"], row["method"], row.get("kv_cache"), formats,
        row.get("twice"), row.get("predicts"), row["seen"], tuple(row["ids"]),
    )  # fmt: skip


def alike(
    keys: Sequence[str], spec: ModelSpec, traits: str, publisher: str = "", known: Sequence[Recipe] | None = None
) -> list[Recipe]:
    """Recipes of some formats that may apply to a model, the likeliest first.

    By its publisher before others; of models with the same traits and architecture, with the same traits, of the same
    architecture, and of those that have state layers or latent attention as it has; earlier keys before later ones;
    what more repositories show first.
    known: the recipes to choose from.
    """
    if known is None:
        return list(_alike(tuple(keys), spec.architecture, traits, publisher))
    return _likeliest(keys, spec.architecture, traits, publisher, known)


@lru_cache(256)
def _alike(keys: tuple[str, ...], architecture: str, traits: str, publisher: str) -> tuple[Recipe, ...]:
    return tuple(_likeliest(keys, architecture, traits, publisher, recipes()))


def _likeliest(
    keys: Sequence[str], architecture: str, traits: str, publisher: str, known: Sequence[Recipe]
) -> list[Recipe]:
    mixers = _mixers(traits)
    ranked = []
    for at, recipe in enumerate(known):
        if recipe.key not in keys or _mixers(recipe.traits) != mixers:
            continue
        same = recipe.architecture == architecture
        near = (0 if same else 1) if recipe.traits == traits else 2 if same else 3
        foreign = int(bool(publisher) and recipe.publisher.lower() != publisher.lower())
        ranked.append((foreign, near, keys.index(recipe.key), -recipe.seen, -len(recipe.ids), at, recipe))
    ranked.sort(key=lambda item: item[:-1])
    return [item[-1] for item in ranked]


def _mixers(traits: str) -> set[str]:
    return set(traits.split("+")) - {"experts", ""}


def others(key: str, spec: ModelSpec) -> list[Recipe]:
    """Recipes of a format that publishers might have taken for a model instead of the likeliest.

    Those of its architecture, or of models with the same traits; with state layers or latent attention, where habits
    differ most, those of all models that have them too.
    """
    traits = traits_of(spec)
    found = alike((key,), spec, traits)
    if _mixers(traits):
        return found
    same = [recipe for recipe in found if recipe.architecture == spec.architecture]
    return same or [recipe for recipe in found if recipe.traits == traits]


def stored_twice(recipe: Recipe, known: Sequence[Recipe] | None = None) -> bool:
    """Whether a tied head is stored once more: as the recipe shows, or most of its publisher's, or of its method's."""
    if recipe.twice is not None:
        return recipe.twice
    same = [r for r in (recipes() if known is None else known) if r.method == recipe.method and r.twice is not None]
    own = [r for r in same if r.publisher == recipe.publisher] or same
    return 2 * sum(len(r.ids) for r in own if r.twice) > sum(len(r.ids) for r in own)


# Where a part that a recipe's models do not have takes its format from.
_STANDS_FOR: Final[dict[str, tuple[str, ...]]] = {
    "mlp": ("experts", "dense block", "shared experts"), "dense block": ("mlp", "shared experts", "experts"),
    "experts": ("mlp", "dense block"), "shared experts": ("dense block", "mlp", "experts"),
    "attention": ("mlp", "experts"), "state": ("attention", "mlp"), "mtp": (), "head": (), "embedding": (),
}  # fmt: skip


def _format_of(part: str, parts: Mapping[str, WeightFormat | None]) -> WeightFormat | None:
    """The format of a part, by a part like it where the recipe's models have none."""
    for name in (part, *_STANDS_FOR.get(part, ())):
        if name in parts:
            return parts[name]
    return None


def quantised(inventory: Inventory, parts: Mapping[str, WeightFormat | None]) -> Inventory:
    """A 16-bit inventory with each part in its format."""
    experts = has_experts(inventory)

    known: dict[str, WeightFormat | None] = {}

    def change(group: TensorGroup) -> TensorGroup:
        part = part_of(group, experts)
        if part not in known:
            known[part] = _format_of(part, parts)
        form = known[part]
        return group if form is None else group._replace(format=form)

    return changed(inventory, change)._replace(exact=False)


class Parts:
    """The bytes of a model's 16-bit tensors, multi-token-prediction blocks left out, by the part that each belongs to.

    So that many recipes are weighed without an inventory for each: what a part takes in a format is counted once.
    """

    def __init__(self, inventory: Inventory, spec: ModelSpec) -> None:
        own, experts = _own_format(spec), has_experts(inventory)
        self._groups: dict[str, list[tuple[TensorGroup, int]]] = {}
        for group, layers in inventory.groups():
            if group.place != "mtp":
                there = group._replace(format=own) if _is_retyped(group.format) else group
                self._groups.setdefault(part_of(group, experts), []).append((there, layers))
        self._bytes: dict[tuple[str, WeightFormat | None], int] = {}

    def bytes_in(self, recipe: Recipe) -> int:
        """Bytes of all parts in a recipe's formats."""
        return sum(self._of(part, _format_of(part, recipe.parts)) for part in self._groups)

    def _of(self, part: str, form: WeightFormat | None) -> int:
        found = self._bytes.get((part, form))
        if found is None:
            found = self._bytes[part, form] = sum(
                layers * (group.stored_bytes if form is None else group.count * form.bytes_of(group.shape))
                for group, layers in self._groups[part]
            )
        return found


def changed(inventory: Inventory, change: Callable[[TensorGroup], TensorGroup]) -> Inventory:
    """The inventory with each group changed; layers that are then alike share one block."""
    made: dict[tuple[TensorGroup, ...], int] = {}
    of_block = [made.setdefault(tuple(map(change, block)), len(made)) for block in inventory.blocks]
    block_of = tuple(of_block[at] for at in inventory.block_of)
    return inventory._replace(blocks=tuple(made), block_of=block_of, outside=tuple(map(change, inventory.outside)))


def is_packed(form: WeightFormat) -> bool:
    """Whether a format is a quantised one."""
    return form.layout != "dense" or form.name not in DTYPE_BYTES


def plain(inventory: Inventory, spec: ModelSpec) -> Inventory:
    """Every quantised matrix in the model's own dtype."""
    own = _own_format(spec)
    if not any(_is_retyped(group.format) for group in chain(*inventory.blocks, inventory.outside)):
        return inventory

    def change(group: TensorGroup) -> TensorGroup:
        return group._replace(format=own) if _is_retyped(group.format) else group

    return changed(inventory, change)


def _own_format(spec: ModelSpec) -> WeightFormat:
    return dense(spec.dtype if spec.dtype in ("bfloat16", "float16") else "bfloat16")


def _is_retyped(form: WeightFormat) -> bool:
    """Whether a matrix in this format is taken for one of the model's own dtype."""
    return is_packed(form) or form.name == "float64"


def parts_in(inventory: Inventory) -> dict[str, WeightFormat | None]:
    """The format that most elements of each part are in."""
    experts = has_experts(inventory)
    elements: dict[str, dict[WeightFormat | None, int]] = {}
    for group, layers in inventory.groups():
        part = part_of(group, experts)
        if part:
            form = group.format if is_packed(group.format) else None
            held = elements.setdefault(part, {})
            held[form] = held.get(form, 0) + group.elements * layers
    return {part: max(held, key=lambda form: held[form]) for part, held in elements.items()}


def key_of(parts: Iterable[WeightFormat | None], elements: Iterable[int]) -> str:
    """The format that most quantised elements are in, by the name it is offered under."""
    counted: dict[str, int] = {}
    for form, number in zip(parts, elements, strict=True):
        if form is not None:
            name = key_of_format(form)
            counted[name] = counted.get(name, 0) + number
    return max(counted, key=lambda name: counted[name], default="")


def key_of_format(form: WeightFormat) -> str:
    """The name that a format is offered under."""
    if form.name == "fp8":
        return {"block": "FP8 block", "channel": "FP8 dynamic"}.get(form.layout, "FP8")
    if form.name.startswith("int") and form.layout == "group":
        return f"INT{form.bits:g}"
    bits = f"{form.bits:g}-bit"
    known = {"int8": "INT8", "nvfp4": "NVFP4", "mxfp4": "MXFP4", "mxfp8": "MXFP8", "bnb4": "bitsandbytes 4-bit",
             "awq": f"AWQ {bits}", "gptq": f"GPTQ {bits}", "mlx": f"MLX {bits}"}  # fmt: skip
    return known.get(form.name, form.name)
