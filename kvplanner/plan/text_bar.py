"""A device's memory as a bar of letters, one per share of the width, with the budget as a bracket below it.

A letter per kind and a blank for what is left keep it readable without colour, on paper and to a screen reader.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from kvplanner.engine.base import BUDGET_KINDS, DevicePlan, SegmentKind
from kvplanner.units import ByteUnit, format_bytes

LETTERS: Final[dict[SegmentKind, str]] = {
    "driver_reserved": "d",
    "other": "o",
    "runtime_outside": "x",
    "runtime": "r",
    "weights": "W",
    "workspace": "s",
    "activations": "A",
    "cuda_graphs": "G",
    "kv_cache": "K",
    "headroom": "·",
}


class Cells(NamedTuple):
    """Consecutive cells of one kind."""

    kind: SegmentKind
    width: int


def share_cells(sizes: Sequence[int], width: int) -> list[int]:
    """`width` cells shared in proportion to the sizes, at least one for each that is not zero.

    The largest remainders get the odd cells, and the widest parts give to those that would vanish.
    """
    total = sum(sizes)
    if total <= 0 or width <= 0:
        return [0] * len(sizes)
    shares = [size * width for size in sizes]
    cells = [share // total for share in shares]
    for index in sorted(range(len(sizes)), key=lambda i: shares[i] % total, reverse=True)[: width - sum(cells)]:
        cells[index] += 1
    for index, size in enumerate(sizes):
        if size > 0 and cells[index] == 0:
            widest = max(range(len(sizes)), key=cells.__getitem__)
            if cells[widest] > 1:
                cells[widest] -= 1
                cells[index] = 1
    return cells


def bar_cells(device: DevicePlan, width: int) -> tuple[Cells, ...]:
    """The bar of a device; it spans its total, or everything that it would hold when that is more.

    What no segment takes is drawn as headroom: a plan that fails has no such segment.
    """
    sizes: list[tuple[SegmentKind, int]] = [(s.kind, s.bytes) for s in device.segments]
    rest = device.total_bytes - sum(size for _, size in sizes)
    if rest > 0:
        sizes.append(("headroom", rest))
    counts = share_cells([size for _, size in sizes], width)
    return tuple(Cells(kind, count) for (kind, _), count in zip(sizes, counts, strict=True) if count)


def bar_lines(device: DevicePlan, width: int, unit: ByteUnit) -> list[str]:
    """The bar, and below it the budget's bracket or, when it overflows, where the memory ends."""
    if not device.segments:
        return []
    cells = bar_cells(device, width)
    lines = ["[" + "".join(LETTERS[c.kind] * c.width for c in cells) + "]"]
    spanned = max(device.total_bytes, sum(s.bytes for s in device.segments))
    if device.overflow_bytes:
        end = max(1, round(width * device.total_bytes / spanned))
        label = f"the memory ends here; {format_bytes(device.overflow_bytes, unit)} too much"
        lines.append(" " * (end + 1) + "▲ " + label if end + len(label) < width else (label + " ▲").rjust(end + 2))
    elif device.budget is not None:
        length = round(width * device.budget.value / spanned)
        lines.append(" " + _bracket(cells, length, width, f"budget {format_bytes(device.budget.value, unit)}"))
    return lines


def _bracket(cells: Sequence[Cells], length: int, width: int, label: str) -> str:
    """From the end of what lies outside the budget; follows the cells where rounding alone would part them.

    A budget that reaches past the memory ends in an arrow.
    """
    start = sum(c.width for c in cells if c.kind in ("driver_reserved", "other", "runtime_outside"))
    inside = sum(c.width for c in cells if c.kind in BUDGET_KINDS)
    if abs(inside - length) <= len(cells):
        length = inside
    end = "┘"
    if start + length > width:
        length, end = width - start, "→"
    if length >= len(label) + 4:
        return " " * start + "└" + f" {label} ".center(length - 2, "─") + end
    short = "└" + "─" * max(0, length - 2) + end
    room = width - start - len(short)
    return " " * start + f"{short} {label}" if room > len(label) else f"{label} {short}".rjust(start + len(short))
