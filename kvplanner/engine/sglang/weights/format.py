"""How many bytes a weight takes on the GPU after SGLang's post-processing (layers/quantization, 0.5.23)."""

from __future__ import annotations

from typing import Final

from kvplanner.engine.sglang.settings import Settings
from kvplanner.engine.sglang.weights import rules
from kvplanner.engine.shared.shard import Local
from kvplanner.model.formats import DTYPE_BYTES, WeightFormat
from kvplanner.model.spec import ModelSpec
from kvplanner.model.tensors import TensorGroup
from kvplanner.units import ceil_div, round_up

_FLOATS: Final = ("float64", "float32", "bfloat16", "float16", "int32", "int64")
_HEAD_SCALES: Final = 8
_NATIVE_FP8: Final = (8, 9)
_HOPPER: Final = (9, 0)
_BLACKWELL: Final = (10, 0)
_CONSUMER_BLACKWELL: Final = (12, 0)


def resident(group: TensorGroup, local: Local, spec: ModelSpec, settings: Settings, *, first_of_fused: bool) -> int:
    """Bytes of one layer's tensors of a group on a rank.

    first_of_fused: whether the group is the first piece of the matrix that it is joined to, which owns a shared scale.
    """
    fmt = group.format
    if rules.unquantised(group):
        return local.elements * DTYPE_BYTES[settings.dtype]
    if group.path.endswith("compressor.ape"):
        return local.elements * DTYPE_BYTES["float32"]
    if rules.fp8_head(group, spec, settings):
        return local.elements + _HEAD_SCALES
    if fmt.layout == "dense" and fmt.name in _FLOATS:
        return local.elements * rules.element_bytes(group, spec, settings)
    if len(local.shape) < 2:
        return local.copies * fmt.bytes_of(local.shape)
    return local.copies * _matrix(fmt, local, settings, expert=group.kind == "experts", first=first_of_fused)


def _matrix(fmt: WeightFormat, local: Local, settings: Settings, *, expert: bool, first: bool) -> int:
    rows, columns = local.rows, local.columns
    payload = ceil_div(int(rows * columns * fmt.bits), 8)
    if fmt.name == "fp8":
        return payload + _fp8_scales(fmt, rows, columns, settings.arch, expert=expert, first=first)
    if fmt.name == "int8" and fmt.layout == "channel":
        return payload + 4 * rows
    if fmt.name == "awq":
        groups = rows * (ceil_div(columns, fmt.group) if fmt.group else 1)
        return payload + 2 * groups + groups * fmt.zero_bits // 8
    if fmt.name == "gptq" or (fmt.name.startswith("int") and fmt.layout == "group"):
        return fmt._replace(zero_bits=0, index_bytes=0, extra_bytes=0).bytes_of((rows, columns))
    if fmt.name == "mxfp4" and expert and _wide_scales(settings):
        return payload + 4 * rows * ceil_div(columns, fmt.group)
    if fmt.name == "nvfp4" and settings.arch >= _BLACKWELL and not expert:
        return payload + round_up(rows, 128) * round_up(ceil_div(columns, fmt.group), 4) + fmt.extra_bytes
    return fmt.bytes_of((rows, columns))


def _wide_scales(settings: Settings) -> bool:
    """Whether MXFP4 experts of an 8-bit checkpoint keep fp32 scales: without kernels of their own for it."""
    return settings.quantization == "fp8" and (settings.arch < _HOPPER or settings.arch[0] == _BLACKWELL[0])


def _fp8_scales(fmt: WeightFormat, rows: int, columns: int, arch: tuple[int, int], *, expert: bool, first: bool) -> int:
    if fmt.layout == "block":
        per_row = ceil_div(columns, fmt.block_columns)
        if arch < _NATIVE_FP8:
            return 2 * rows * per_row
        if _BLACKWELL <= arch < _CONSUMER_BLACKWELL and not expert:
            return rows * round_up(per_row, 4)
        return 4 * ceil_div(rows, fmt.block_rows) * per_row
    if arch < _NATIVE_FP8:
        return 2 * rows
    if fmt.layout == "channel":
        return 4 * rows
    return 4 + fmt.extra_bytes if first else 0
