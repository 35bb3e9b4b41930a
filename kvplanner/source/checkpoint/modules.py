"""Stored modules: the tensors of a checkpoint gathered as (module, what it stores, how often), per layer.

A quantised matrix is several tensors (packed values, scales, zero points): one module with its logical shape and
a weight format that gives exactly the file's bytes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from kvplanner.errors import BadInput
from kvplanner.model.formats import WeightFormat
from kvplanner.record import NamedTuple
from kvplanner.source.checkpoint.names import SCALE_PARTS, Place, from_mistrals, is_mistrals, take_apart
from kvplanner.source.checkpoint.safetensors import DTYPE_BITS, Tensor


class Part(NamedTuple):
    """One stored tensor of a module."""

    part: str
    dtype: str
    shape: tuple[int, ...]
    bytes: int


class Module(NamedTuple):
    """`number` modules of one path and content (experts of a layer count as one path)."""

    path: str
    parts: tuple[Part, ...]
    number: int

    @property
    def bytes(self) -> int:
        """Bytes of all `number` modules."""
        return self.number * sum(part.bytes for part in self.parts)


class Stored(NamedTuple):
    """All modules of a checkpoint.

    bodies: the distinct layer bodies; body_of: layer number → body. outside: by place ("outside", "tower", "mtp").
    """

    bodies: tuple[tuple[Module, ...], ...]
    body_of: dict[int, int]
    outside: dict[Place, tuple[Module, ...]]


MAX_LAYERS: Final = 4096
# Layers and the modules in them, experts counted once: the largest models have some thousands.
MAX_MODULES: Final = 20_000
# Tensors of different names within their modules, dtypes or shapes: a model pruned layer by layer has some hundreds.
MAX_KINDS: Final = 8192


def gather(tensors: Sequence[Tensor], layers: int, where: str, predicting: int = 0) -> Stored:
    """The modules of a checkpoint; `layers`: decoder layers by the config, 0 when unknown; `predicting`: its
    multi-token-prediction blocks.

    Raises BadInput (naming `where`) for more layers or modules than any model has.
    """
    bodies: dict[tuple[Module, ...], int] = {}
    body_of: dict[int, int] = {}
    outside: dict[Place, tuple[Module, ...]] = {}
    for (place, layer), contents in _counted(_parts(tensors, layers, predicting, where), where).items():
        body = tuple(sorted(Module(path, parts, count) for (path, parts), count in contents.items()))
        if place == "layer":
            body_of[layer] = bodies.setdefault(body, len(bodies))
        else:
            outside[place] = body
    return Stored(tuple(bodies), body_of, outside)


# Place, layer (−1 outside), module path.
_Key = tuple[Place, int, str]


def _parts(
    tensors: Sequence[Tensor], layers: int, predicting: int, where: str
) -> dict[_Key, dict[int | None, list[Part]]]:
    """The parts of every module: by module, then by expert (None where there are none)."""
    modules: defaultdict[_Key, dict[int | None, list[Part]]] = defaultdict(dict)
    known: dict[tuple[str, str, tuple[int, ...]], Part] = {}
    numbers: set[int] = set()
    mistrals = is_mistrals(tensor.name for tensor in tensors)
    for tensor in tensors:
        name = take_apart(tensor.name, layers, predicting)
        if mistrals:
            name = from_mistrals(name)
        content = (name.part, tensor.dtype, tensor.shape)
        part = known.get(content)
        if part is None:
            part = known[content] = Part(*content, tensor.bytes)
            if len(known) > MAX_KINDS:
                raise _too_many(where)
        modules[name[:3]].setdefault(name.expert, []).append(part)
        numbers.add(name.layer)
        if len(numbers) > MAX_LAYERS or len(modules) > MAX_MODULES:
            raise _too_many(where)
    return modules


def _too_many(where: str) -> BadInput:
    return BadInput(
        f"has more than {MAX_LAYERS:,} layers, {MAX_MODULES:,} different modules or {MAX_KINDS:,} kinds of tensors",
        where,
        "It is no model",
    )


def _counted(
    modules: dict[_Key, dict[int | None, list[Part]]], where: str
) -> dict[tuple[Place, int], Counter[tuple[str, tuple[Part, ...]]]]:
    """How often each module with the same content occurs, by place and layer."""
    counted: defaultdict[tuple[Place, int], Counter[tuple[str, tuple[Part, ...]]]] = defaultdict(Counter)
    different = 0
    for (place, layer, path), experts in modules.items():
        contents = counted[(place, layer if place == "layer" else -1)]
        before = len(contents)
        for parts in experts.values():
            contents[(path, tuple(sorted(parts)) if len(parts) > 1 else (parts[0],))] += 1
        different += len(contents) - before
        if different > MAX_MODULES:
            raise _too_many(where)
    return counted


# Names of dtypes as configs and engines spell them.
_DTYPE_NAMES: Final[dict[str, str]] = {
    "F64": "float64", "F32": "float32", "BF16": "bfloat16", "F16": "float16", "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2", "I8": "int8", "U8": "uint8", "I16": "int16", "U16": "uint16", "I32": "int32",
    "U32": "uint32", "I64": "int64", "U64": "uint64", "BOOL": "bool", "F8_E8M0": "float8_e8m0fnu",
}  # fmt: skip


def dtype_name(dtype: str) -> str:
    """A header's dtype in the spelling of configs ("BF16" → "bfloat16")."""
    return _DTYPE_NAMES.get(dtype, dtype.lower())


@lru_cache(maxsize=8192)
def content_of(parts: tuple[Part, ...]) -> tuple[tuple[int, ...], WeightFormat]:
    """Logical shape and format of what a module stores; format.bytes_of(shape) is exactly the parts' bytes.

    Layouts: AutoAWQ (columns packed), GPTQ (rows packed, transposed), compressed-tensors, ModelOpt NVFP4, MXFP4
    blocks, block and channel FP8, bitsandbytes, MLX; anything else is its payload with the rest as bytes per matrix.
    """
    main = max(parts, key=lambda part: (part.part not in SCALE_PARTS, part.bytes))
    rest = sum(part.bytes for part in parts) - main.bytes
    by_name = {part.part: part for part in parts}
    shape, bits = _unpacked(main, by_name)
    if not rest and bits == DTYPE_BITS[main.dtype]:
        return shape, WeightFormat(dtype_name(main.dtype), bits)
    found = _with_scales(shape, bits, main, by_name)
    if found is not None and found.bytes_of(shape) == main.bytes + rest:
        return shape, found
    return _as_matrix(shape), WeightFormat(_format_name(main, bits, by_name), bits, "tensor", extra_bytes=rest)


def _as_matrix(shape: tuple[int, ...]) -> tuple[int, ...]:
    return shape if len(shape) >= 2 else (*((1,) * (2 - len(shape))), *shape)


def _format_name(main: Part, bits: float, parts: dict[str, Part]) -> str:
    """The format's name as engines call it, told by what is stored beside the payload."""
    if "absmax" in parts or "SCB" in parts:
        return "bnb4" if bits == 4 else "bnb8"
    if bits == DTYPE_BITS[main.dtype]:
        return {"F8_E4M3": "fp8", "F8_E5M2": "fp8_e5m2", "I8": "int8"}.get(main.dtype, dtype_name(main.dtype))
    if main.part == "qweight":
        rows_packed = "g_idx" in parts or ("scales" in parts and main.shape[1] == parts["scales"].shape[1])
        return "gptq" if rows_packed else "awq"
    if main.dtype in ("U8", "F4"):
        scale = parts.get("weight_scale") or parts.get("scales")
        return "nvfp4" if scale is not None and scale.dtype == "F8_E4M3" else "mxfp4"
    return f"int{bits:g}"


def _unpacked(main: Part, parts: dict[str, Part]) -> tuple[tuple[int, ...], float]:
    """Logical shape (out, in) and bits per weight of the payload."""
    scales = parts.get("scales") or parts.get("weight_scale")
    words = DTYPE_BITS[main.dtype] == 32  # what both pack into
    if main.part == "qweight" and words and len(main.shape) == 2 and scales and len(scales.shape) == 2:
        return _unpacked_qweight(main, scales, parts.get("qzeros"))
    if main.dtype == "F4":
        return main.shape, 4
    if main.part == "blocks" and len(main.shape) >= 3 and main.dtype == "U8":
        return (*main.shape[:-2], main.shape[-2] * main.shape[-1] * 2), 4
    if "absmax" in parts and main.dtype == "U8":
        # bitsandbytes stores two values a byte and no shape: the number of elements alone is known.
        return (2 * main.bytes, 1), 4
    if len(main.shape) < 2:
        return main.shape, DTYPE_BITS[main.dtype]
    if main.part == "weight_packed" and main.dtype in ("I32", "U32"):
        return _unpacked_by_scale(main, scales, 32)
    if main.dtype == "U8" and scales is not None and scales.dtype in ("F8_E4M3", "F8_E8M0", "U8"):
        return (*main.shape[:-1], main.shape[-1] * 2), 4
    if main.dtype == "U32" and scales is not None:
        return _unpacked_by_scale(main, scales, 32)
    return main.shape, DTYPE_BITS[main.dtype]


def _unpacked_qweight(main: Part, scales: Part, zeros: Part | None) -> tuple[tuple[int, ...], float]:
    """AutoAWQ packs columns: (in, out/8); GPTQ packs rows: (in/8, out). The scales' width is `out` in both.

    Both keep zero points of shape (groups, out/pack), which tells the packing.
    """
    out, width = scales.shape[1], main.shape[1]
    packed = zeros.shape[1] if zeros is not None and len(zeros.shape) == 2 else width
    pack = out // packed if packed else 0
    if pack not in (4, 8, 16) or width not in (out, packed):
        return main.shape, DTYPE_BITS[main.dtype]
    columns = main.shape[0] * pack if width == out else main.shape[0]
    return (out, columns), 32 / pack


def _usual_group(columns: int, groups: int) -> bool:
    return groups <= 1 or (columns % groups == 0 and columns // groups in (16, 32, 64, 128))


def _unpacked_by_scale(main: Part, scales: Part | None, word: int) -> tuple[tuple[int, ...], float]:
    for pack in (8, 4):
        columns = main.shape[-1] * pack
        if scales is None or len(scales.shape) < 2 or _usual_group(columns, scales.shape[-1]):
            return (*main.shape[:-1], columns), word / pack
    return main.shape, DTYPE_BITS[main.dtype]


def _with_scales(shape: tuple[int, ...], bits: float, main: Part, parts: dict[str, Part]) -> WeightFormat | None:
    """A format whose scales follow the matrix's shape, when one explains them."""
    scale = next(
        (parts[name] for name in ("weight_scale_inv", "weight_scale", "scales", "scale_inv", "SCB") if name in parts),
        None,
    )
    if scale is None or len(shape) < 2 or not shape[-1]:
        return None
    each = DTYPE_BITS[scale.dtype] // 8
    rows = 1
    for size in shape[:-1]:
        rows *= size
    number = scale.bytes // each if each else 0
    zeros = next((parts[name] for name in ("qzeros", "weight_zero_point", "biases") if name in parts), None)
    index = next((parts[name] for name in ("g_idx", "weight_g_idx") if name in parts), None)
    extra = sum(p.bytes for p in parts.values()) - sum(p.bytes for p in (main, scale, zeros, index) if p is not None)
    name = _format_name(main, bits, parts)
    if number == 1:
        return WeightFormat(name, bits, "tensor", each, extra_bytes=extra)
    if number == rows and zeros is None:
        return WeightFormat(name, bits, "channel", each, extra_bytes=extra)
    if main.part == "weight" and bits == 8 and len(scale.shape) == len(shape):
        block_rows, block_columns = (_block(a, b) for a, b in zip(shape[-2:], scale.shape[-2:], strict=True))
        return WeightFormat(name, bits, "block", each, block_rows, block_columns, extra_bytes=extra)
    if number % rows or not number:
        return None
    group = _block(shape[-1], number // rows)
    zero_bits = 8 * zeros.bytes // number if zeros is not None else 0
    index_bytes = index.bytes // shape[-1] if index is not None else 0
    return WeightFormat(
        name, bits, "group", each, group=group, zero_bits=zero_bits, index_bytes=index_bytes, extra_bytes=extra
    )


def _block(size: int, blocks: int) -> int:
    """Elements per block: 128 where that gives the number of blocks, else the smallest even split."""
    if not blocks:
        return size
    return 128 if -(-size // 128) == blocks else -(-size // blocks)
