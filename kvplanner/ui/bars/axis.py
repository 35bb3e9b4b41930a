"""The axis under the bars: round values, the largest GPU's capacity, the end."""

from __future__ import annotations

from kvplanner.report import words
from kvplanner.ui.bars.grid import Grid
from kvplanner.ui.bars.shapes import Text, Tick
from kvplanner.ui.theme.geometry import Rect, tick_step, tick_text, ticks
from kvplanner.units import GB, GIB


def axis(grid: Grid, y: float) -> tuple[Tick, ...]:
    """Round values; where bars overflow, the largest GPU's capacity in their place; last the axis' end. () for none."""
    if grid.end_bytes <= 1:  # no device says how much it has
        return ()
    per = GIB if grid.view.unit == "GiB" else GB
    end = grid.end_bytes / per
    step = tick_step(end, grid.x1 - grid.x0, 84)
    last = _end_tick(grid, y)
    fixed = [last]
    if grid.capacity < grid.end_bytes * 0.999:
        text = words.size(grid.capacity, grid.view.unit)
        wide = grid.measure(text, "small_bold") + 4
        x = grid.x(grid.capacity)
        left = min(x - wide / 2, grid.x1 - wide)
        tick = Tick(x, Text(Rect(left, y + 6, wide, 14), text, "small_bold", "center"), capacity=True)
        crowded = last.text and tick.text and tick.text.rect.right + 6 >= last.text.rect.x
        fixed = [tick, last._replace(text=None) if crowded else last]
    taken = [t.text.rect for t in fixed if t.text]
    made: list[Tick] = []
    for value in ticks(end, grid.x1 - grid.x0, 84):
        x = grid.x(value * per)
        text = tick_text(value, step)
        wide = grid.measure(text, "small") + 4
        box = Rect(max(x - wide / 2, 0.0), y + 6, wide, 14)
        clear = all(box.right + 6 < t.x or box.x > t.right + 6 for t in taken)
        made.append(Tick(x, Text(box, text, "small", "center") if clear else None))
    return (*made, *fixed)


def _end_tick(grid: Grid, y: float) -> Tick:
    """The axis' end, with the unit: the capacity, or how far the longest bar reaches."""
    text = f"{words.number(grid.end_bytes, grid.view.unit)} {grid.view.unit}"
    wide = grid.measure(text, "small") + 2
    return Tick(grid.x1, Text(Rect(grid.x1 - wide, y + 6, wide, 14), text, "small", "right"))
