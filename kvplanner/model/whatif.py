"""What if a model were stored in another weight format: its inventory by the usual rule of that format.

Engine formats quantise the matrices of attention, state layers, feed-forward blocks and experts, and leave
embeddings, head, norms, routers and towers alone; published repositories may leave out more. GGUF recipes follow
llama.cpp's own; rotary tables that some files carry (256 bytes in Llama 3.1's) are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from kvplanner.errors import UnknownName
from kvplanner.estimate import Estimate, Input, banded, exact
from kvplanner.model import formats
from kvplanner.model.formats import WeightFormat, dense
from kvplanner.model.gguf_recipes import RECIPES, Place, recipe_format
from kvplanner.model.spec import Attention, ModelSpec
from kvplanner.model.tensors import Inventory, TensorGroup

_LINEAR: Final = frozenset({"attention", "state", "mlp", "experts"})
_BAND: Final = 0.02
_OWN_CONFIG: Final = "A published repository may leave whole layers in 16 bits: choose it by its own name to see it"


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
    "Q8_0": "8-bit blocks of 32: nearly lossless",
    "Q6_K": "6-bit blocks",
    "Q5_K_M": "5-bit blocks, 6-bit where it matters most",
    "Q4_K_M": "4-bit blocks, 6-bit where it matters most: the usual choice",
    "IQ4_XS": "4-bit blocks without minimums: the smallest 4-bit",
    "Q3_K_M": "3-bit blocks, 4- and 5-bit where it matters most",
    "Q2_K": "2-bit blocks, 3-bit where it matters most",
}
WHATIF_FORMATS: Final[Mapping[str, str]] = MappingProxyType(
    {name: rule.about for name, rule in _ENGINE.items()}
    | {f"GGUF {name}": about for name, about in _GGUF_ABOUT.items()}
)


def reformat(inventory: Inventory, spec: ModelSpec, format_name: str) -> Inventory:
    """The same tensors in another format; a model that is quantised already is taken from its logical shapes.

    Raises UnknownName for a name that is not in WHATIF_FORMATS.
    """
    _known(format_name)
    plain = _unquantised(inventory, spec)
    if format_name.startswith("GGUF "):
        return _as_gguf(plain, spec, format_name.removeprefix("GGUF "))
    rule = _ENGINE[format_name]
    experts = any(group.kind == "experts" for group, _ in plain.groups())
    kinds = frozenset({"experts"}) if rule.experts_only and experts else _LINEAR

    def change(group: TensorGroup) -> TensorGroup:
        return group._replace(format=rule.format) if len(group.shape) == 2 and group.kind in kinds else group

    blocks = tuple(tuple(change(g) for g in block) for block in plain.blocks)
    return plain._replace(blocks=blocks, outside=tuple(change(g) for g in plain.outside), exact=False)


def respec(spec: ModelSpec, format_name: str) -> ModelSpec:
    """The spec of the same model in another format: the method's name as engines call it."""
    _known(format_name)
    method = "gguf" if format_name.startswith("GGUF ") else _ENGINE[format_name].method
    return spec._replace(quantization=method, kv_cache_dtype=None)


def stored(inventory: Inventory, spec: ModelSpec, format_name: str) -> Estimate:
    """The size of the model in another format, with the rule that it follows and what that rule leaves open.

    The band is half a percent downwards (narrower scales) and 2 % upwards (a few matrices left in 16 bits).
    """
    changed = reformat(inventory, spec, format_name)
    total = changed.stored_bytes(mtp=False)
    quantised = sum(g.stored_bytes * n for g, n in changed.groups() if _is_packed(g) and g.place != "mtp")
    inputs = (
        Input("quantised", quantised, "B", f"{format_name}: {WHATIF_FORMATS[format_name]}"),
        Input("kept", total - quantised, "B", f"embeddings, norms, routers and the like in {spec.dtype}"),
    )
    formula = "{quantised} + {kept}"
    if format_name.startswith("GGUF ") and inventory.exact:
        return exact(total, formula, *inputs)
    found = banded(total, total - total // 200, total + int(total * _BAND), "analytic", formula, *inputs)
    return found.with_notes(_OWN_CONFIG)


def _known(format_name: str) -> None:
    if format_name not in WHATIF_FORMATS:
        raise UnknownName(
            f"{format_name!r} is no weight format to try", "weight format", tuple(WHATIF_FORMATS), "Name one of them"
        )


def _is_packed(group: TensorGroup) -> bool:
    return group.format.layout != "dense" or group.format.name not in formats.DTYPE_BYTES


def _unquantised(inventory: Inventory, spec: ModelSpec) -> Inventory:
    """Every quantised matrix in the model's own dtype; layers that then are alike become one block."""
    plain = dense(spec.dtype if spec.dtype in ("bfloat16", "float16") else "bfloat16")

    def change(group: TensorGroup) -> TensorGroup:
        return group._replace(format=plain) if _is_packed(group) or group.format.name == "float64" else group

    return _merged(inventory, lambda _, group: change(group))


def _merged(inventory: Inventory, change: Callable[[int, TensorGroup], TensorGroup]) -> Inventory:
    """The inventory with each layer's groups changed (layer −1: outside the layers), equal blocks joined."""
    made: dict[tuple[TensorGroup, ...], int] = {}
    block_of = []
    for layer, at in enumerate(inventory.block_of):
        block = tuple(change(layer, group) for group in inventory.blocks[at])
        block_of.append(made.setdefault(block, len(made)))
    outside = tuple(change(-1, group) for group in inventory.outside)
    return inventory._replace(blocks=tuple(made), block_of=tuple(block_of), outside=outside)


def _as_gguf(plain: Inventory, spec: ModelSpec, recipe: str) -> Inventory:
    """llama.cpp's recipe: the type of a matrix depends on what it is and on how deep its layer lies."""
    layers = len(plain.block_of)
    heads = next((m for layer in spec.layers for m in layer.mixers if isinstance(m, Attention)), None)
    place = Place(0, layers, heads.heads // heads.kv_heads if heads else 1, _expert_count(plain), spec.tied_embeddings)

    def change(layer: int, group: TensorGroup) -> TensorGroup:
        if group.place in ("mtp", "tower"):
            return group
        return group._replace(format=recipe_format(RECIPES[recipe], group, place._replace(layer=layer)))

    return _merged(plain, change)._replace(exact=plain.exact)


def _expert_count(inventory: Inventory) -> int:
    return max((g.count for g, _ in inventory.groups() if g.kind == "experts"), default=0)
