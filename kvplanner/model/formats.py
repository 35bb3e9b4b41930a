"""Weight formats: how many bytes a checkpoint stores for a matrix, scales and zero points included.

Rules and their checks: public checkpoints' byte totals (gpt-oss exact in mxfp4, Kimi-K2.5 exact in int4 groups of 32).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from kvplanner.units import ceil_div

Layout = Literal["dense", "block", "channel", "tensor", "group"]

DTYPE_BYTES: Final[dict[str, int]] = {
    "float64": 8, "float32": 4, "bfloat16": 2, "float16": 2,
    "float8_e4m3fn": 1, "float8_e5m2": 1, "int8": 1, "uint8": 1,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class WeightFormat:
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
        payload = ceil_div(int(elements * self.bits), 8)
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
        return rows * ceil_div(columns, self.group) * self.zero_bits // 8 if self.zero_bits and self.group else 0


def dense(dtype: str) -> WeightFormat:
    """The format of an unquantised tensor; raises KeyError for an unknown dtype."""
    return WeightFormat(dtype, 8 * DTYPE_BYTES[dtype])
