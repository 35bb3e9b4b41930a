"""A device's memory as a bar of letters, one per share of the width, with the budget as a bracket below it.

A letter per kind, one for what is missing and a dot for what is left keep it readable without colour, on paper and to
a screen reader.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from kvplanner.engine.plan import Plan
from kvplanner.engine.segment import SegmentKind
from kvplanner.record import NamedTuple
from kvplanner.report.devices import short, unplanned
from kvplanner.report.segments import MISSING_LETTER, words_of
from kvplanner.units import ByteUnit, format_bytes


class Cells(NamedTuple):
    """Consecutive cells of one kind, None for what is missing."""

    kind: SegmentKind | None
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


def bar_cells(plan: Plan, position: int, width: int) -> tuple[Cells, ...]:
    """The bar of a device; it spans its total, or everything that it would need when that is more.

    What no segment takes is drawn as headroom: a plan that fails has no such segment. What is missing lies over the
    end of what does not fit, as in the window.
    """
    device = plan.devices[position]
    lack = device.lack
    sizes: list[tuple[SegmentKind | None, int]] = []
    start = 0
    for segment in device.in_use:
        room = segment.bytes if lack is None else min(segment.bytes, max(lack.start - start, 0))
        sizes.append((segment.kind, room))
        start += room
    if lack is not None:
        sizes += [("headroom", lack.start - start), (None, lack.bytes)]
        start = lack.end
    sizes.append(("headroom", device.total_bytes - start))
    sizes = [(kind, size) for kind, size in sizes if size > 0]
    counts = share_cells([size for _, size in sizes], width)
    return tuple(Cells(kind, count) for (kind, _), count in zip(sizes, counts, strict=True) if count)


def bar_lines(plan: Plan, position: int, width: int, unit: ByteUnit) -> list[str]:
    """The bar, and below it the budget's bracket or, when it overflows, where the memory ends."""
    device = plan.devices[position]
    if not device.segments or unplanned(plan, position):
        return []
    cells = bar_cells(plan, position, width)
    lines = ["[" + "".join((words_of(c.kind).letter if c.kind else MISSING_LETTER) * c.width for c in cells) + "]"]
    lack = device.lack
    spanned = max(device.total_bytes, lack.end if lack else 0)
    if lack is not None and spanned > device.total_bytes:
        end = max(1, round(width * device.total_bytes / spanned))
        label = f"the memory ends here; {short(lack.bytes, lack.in_all, unit)}"
        lines.append(" " * (end + 1) + "▲ " + label if end + len(label) < width else (label + " ▲").rjust(end + 2))
    elif plan.cache_given:
        given = sum(c.width for c in cells if c.kind == "kv_cache")
        lines += [" " + _bracket(cells, ("kv_cache",), given, width, "KV cache given")] if given else []
    elif device.budget is not None:
        length = round(width * device.budget.value / spanned)
        label = f"budget {format_bytes(device.budget.value, unit)}"
        inside = tuple(s.kind for s in device.segments if s.in_budget)
        lines.append(" " + _bracket(cells, inside, length, width, label))
    return lines


def _bracket(cells: Sequence[Cells], kinds: Sequence[SegmentKind], length: int, width: int, label: str) -> str:
    """From the first of the kinds that it is of; follows the cells where rounding alone would part them.

    A budget that reaches past the memory ends in an arrow.
    """
    start = sum(c.width for c in takewhile(lambda c: c.kind not in kinds, cells))
    inside = sum(c.width for c in cells if c.kind in kinds)
    if abs(inside - length) <= len(cells):
        length = inside
    end = "┘"
    if start + length > width:
        length, end = width - start, "→"
    if length >= len(label) + 4:
        return " " * start + "└" + f" {label} ".center(length - 2, "─") + end
    shown = "└" + "─" * max(0, length - 2) + end
    room = width - start - len(shown)
    return " " * start + f"{shown} {label}" if room > len(label) else f"{label} {shown}".rjust(start + len(shown))
