"""Weight formats: how many bytes a checkpoint stores for a matrix, scales and zero points included.

Rules and their checks: public checkpoints' byte totals (gpt-oss exact in mxfp4, Kimi-K2.5 exact in int4 groups of 32).
"""

from __future__ import annotations

from functools import cache
from typing import Final, Literal

from kvplanner.model.ggml import BY_NAME
from kvplanner.record import NamedTuple
from kvplanner.units import ceil_div

Layout = Literal["dense", "block", "channel", "tensor", "group"]

DTYPE_BYTES: Final[dict[str, int]] = {
    "float64": 8, "float32": 4, "bfloat16": 2, "float16": 2,
    "float8_e4m3fn": 1, "float8_e5m2": 1, "int8": 1, "uint8": 1,
}  # fmt: skip


class WeightFormat(NamedTuple):
    """How one matrix of `out` rows and `in` columns is stored.

    name: as engines call it ("bfloat16", "fp8", "awq" ...). bits: per weight.
    layout: dense (no scales), tensor (one scale), channel (one per row), block (block_rows × block_columns),
    group (one per row and `group` columns). scale_bytes: size of one scale. zero_bits: packed zero points per group.
    extra_bytes: per matrix; index_bytes: per input column (act-order index).
    """

    name: str
    bits: float
    layout: Layout = "dense"
    scale_bytes: int = 0
    block_rows: int = 0
    block_columns: int = 0
    group: int = 0
    zero_bits: int = 0
    extra_bytes: int = 0
    index_bytes: int = 0

    def bytes_of(self, shape: tuple[int, ...]) -> int:
        """Bytes of one tensor of `shape`; a 1-d tensor has no scales."""
        elements = 1
        for size in shape:
            elements *= size
        payload = ceil_div(self._bits_of(elements), 8)
        if self.layout == "dense" or len(shape) < 2:
            return payload
        columns = shape[-1]
        rows = elements // columns if columns else 0
        return (
            payload
            + self.scale_count(rows, columns) * self.scale_bytes
            + self._zeros(rows, columns)
            + (self.extra_bytes + self.index_bytes * columns)
        )

    def _bits_of(self, elements: int) -> int:
        """Whole bits, also of more elements than a float can count."""
        if elements * self.bits < 1 << 52:
            return int(elements * self.bits)
        above, below = self.bits.as_integer_ratio()
        return elements * above // below

    def scale_count(self, rows: int, columns: int) -> int:
        """Scales of a rows × columns matrix."""
        if self.layout == "tensor":
            return 1
        if self.layout == "channel":
            return rows
        if self.layout == "block":
            return ceil_div(rows, self.block_rows) * ceil_div(columns, self.block_columns)
        if self.layout == "group":
            return rows * ceil_div(columns, self.group) if self.group else rows
        return 0

    def _zeros(self, rows: int, columns: int) -> int:
        """Packed zero points; one per row where the whole row is one group."""
        groups = ceil_div(columns, self.group) if self.group else 1
        return rows * groups * self.zero_bits // 8


@cache
def dense(dtype: str) -> WeightFormat:
    """The format of an unquantised tensor; raises KeyError for an unknown dtype."""
    return WeightFormat(dtype, 8 * DTYPE_BYTES[dtype])


MXFP4: Final = WeightFormat("mxfp4", 4, "group", scale_bytes=1, group=32)
MXFP8: Final = WeightFormat("mxfp8", 8, "group", scale_bytes=1, group=32)
NVFP4: Final = WeightFormat("nvfp4", 4, "group", scale_bytes=1, group=16, extra_bytes=8)
INT8_CHANNEL: Final = WeightFormat("int8", 8, "channel", scale_bytes=2)
BNB8: Final = WeightFormat("bnb8", 8, "channel", scale_bytes=4)


def fp8_block(rows: int, columns: int) -> WeightFormat:
    """FP8 with one fp32 scale per block."""
    return WeightFormat("fp8", 8, "block", scale_bytes=4, block_rows=rows, block_columns=columns)


def fp8_tensor(static: bool) -> WeightFormat:
    """FP8 with one fp32 scale per matrix, and one for its input when activations are scaled statically."""
    return WeightFormat("fp8", 8, "tensor", scale_bytes=4, extra_bytes=4 if static else 0)


def fp8_channel(scale_bytes: int) -> WeightFormat:
    """FP8 with one scale per row: 4 bytes in FBGEMM files, 2 in compressed-tensors ones."""
    return WeightFormat("fp8", 8, "channel", scale_bytes=scale_bytes)


def awq(bits: int, group: int, zero_point: bool) -> WeightFormat:
    """Packed integers with fp16 scales and packed zeros per group; group -1: one per row."""
    return WeightFormat("awq", bits, "group", 2, group=max(group, 0), zero_bits=bits if zero_point else 0)


def gptq(bits: int, group: int) -> WeightFormat:
    """As AWQ, with an int32 group index per input column."""
    return WeightFormat("gptq", bits, "group", 2, group=max(group, 0), zero_bits=bits, index_bytes=4)


def auto_round(bits: int, group: int) -> WeightFormat:
    """As GPTQ, without the index."""
    return WeightFormat("auto-round", bits, "group", 2, group=max(group, 0), zero_bits=bits)


def int_packed(bits: int, group: int, symmetric: bool) -> WeightFormat:
    """compressed-tensors' packed integers: bf16 scales, zeros when asymmetric, and two int32 of shape."""
    return WeightFormat(f"int{bits}", bits, "group", 2, group=group, zero_bits=0 if symmetric else bits, extra_bytes=8)


def quark_int4(group: int, symmetric: bool) -> WeightFormat:
    """Quark's packed 4-bit integers: 16-bit scales, and packed zeros where they are asymmetric; group -1: one a row."""
    return WeightFormat("int4", 4, "group", 2, group=max(group, 0), zero_bits=0 if symmetric else 4)


def mlx_packed(bits: int, group: int) -> WeightFormat:
    """MLX's packed integers: a 16-bit scale and a 16-bit bias for each group."""
    return WeightFormat("mlx", bits, "group", 4, group=group)


def bnb4(double: bool) -> WeightFormat:
    """bitsandbytes 4-bit: an fp32 absmax per 64 weights, or one byte each plus an fp32 per 256 of those.

    The table of 16 values and the second offset are left out (under 100 bytes per matrix).
    """
    return WeightFormat("bnb4", 4 + (8 + 32 / 256) / 64 if double else 4.5)


@cache
def ggml(name: str) -> WeightFormat:
    """A ggml block type; its scales are inside its blocks."""
    return WeightFormat(name, BY_NAME[name].bits)
