"""What is drawn about a bar's cells: its budget, what is missing, ranges, what was measured; and the axis below."""

from __future__ import annotations

from kvplanner.engine.plan import DevicePlan, Plan
from kvplanner.engine.plan import Lack as Missing
from kvplanner.report import words
from kvplanner.report.devices import short
from kvplanner.report.sentences import failing_rule
from kvplanner.ui.bars.shapes import PAD, Bracket, Cell, Grid, Lack, Measured, MeasuredPart, Strip, Text, Tick, Whisker
from kvplanner.ui.theme.geometry import Rect, tick_step, tick_text, ticks
from kvplanner.units import GB, GIB


def fill(grid: Grid, cells: tuple[Cell, ...]) -> Rect | None:
    """How full the cache is, along the bottom of its cell."""
    cache = next((c.rect for c in cells if c.kind == "kv_cache"), None)
    if cache is None or grid.view.fill is None:
        return None
    high = max(4.0, cache.h / 6)
    return Rect(cache.x, cache.bottom - high, cache.w * min(max(grid.view.fill, 0.0), 1.0), high)


def _budget_span(plan: Plan, device: DevicePlan) -> tuple[int, int] | None:
    """From where to where (bytes) the engine counts: its budget, or the cache alone where that is given."""
    cache = device.segment("kv_cache")
    if cache is not None and plan.cache_given:
        before = device.in_use
        start = sum(s.bytes for s in before[: before.index(cache)]) if cache in before else 0
        return (start, start + cache.bytes) if cache in before else None
    end = device.budget_end
    return None if end is None else (device.budget_start, end)


def bracket(grid: Grid, device: DevicePlan, frame: Rect, text: str, lack: Lack | None) -> Bracket | None:
    """Over what the engine counts, with its name where there is room beside what lacks."""
    span = _budget_span(grid.plan, device)
    if span is None:
        return None
    left, right = grid.x(span[0]), min(grid.x(span[1]), grid.x1)
    y = frame.y - grid.density.bracket + 2
    if not text:
        return Bracket(left, right, y, None)
    wide = grid.measure(text, "small") + 4
    edge = (lack.text.rect.x if lack else grid.x1) - 8
    start = min(max((left + right - wide) / 2, grid.x0), edge - wide)
    shown = Text(Rect(start, y - 14, wide, 13), text, "small", "center") if start >= 0 else None
    return Bracket(left, right, y, shown)


def lack_of(grid: Grid, lack: Missing, frame: Rect) -> Lack:
    """What is missing, from where it begins, as far as the axis reaches."""
    left, right = grid.x(lack.start), min(grid.x(lack.end), grid.x1)
    text = short(lack.bytes, lack.in_all, grid.view.unit)
    wide = grid.measure(text, "small_bold") + 2
    x = min(max((left + right - wide) / 2, grid.x0), grid.x1 - wide)
    shown = Text(Rect(x, frame.y - grid.density.bracket - 12, wide, 13), text, "small_bold", "center")
    return Lack(Rect(left, frame.y, right - left, frame.h), shown, lack.asked)


def gap(grid: Grid, device: DevicePlan, lack: Missing | None, frame: Rect) -> Text | None:
    """What the white of a failing plan's bar is, where what lacks leaves some: free at the failing stage, or unused."""
    if grid.plan.fits is not False:
        return None
    rule = failing_rule(grid.plan)
    used = max(device.used_bytes, lack.end if lack and lack.start < device.total_bytes else 0)
    name = "free" if rule is not None and rule.against == "free" else "not used"
    text = f"{name} {words.number(device.total_bytes - used, grid.view.unit)}"
    rect = Rect(grid.x(used), frame.y, frame.right - grid.x(used), frame.h)
    return Text(rect, text, "small", "center") if grid.measure(text, "small") + 2 * PAD <= rect.w else None


def whiskers(grid: Grid, device: DevicePlan, cells: tuple[Cell, ...], frame: Rect) -> tuple[Whisker, ...]:
    """Ranges about the borders they move: the cache's left one (its right one is the budget's end), else the right.

    They lie in two lanes under the bar, the cache's first; one that finds no room is left to the table.
    """
    found: list[tuple[bool, Whisker]] = []
    for cell in cells:
        segment = device.segment(cell.kind)
        if segment is None or cell.kind == "headroom" or cell.rect.x >= frame.right - 1:
            continue
        below = (segment.bytes - words.low_end(segment.estimate)) * grid.scale
        above = (segment.estimate.high - segment.bytes) * grid.scale
        if below + above >= 3:
            rest = segment.estimate.basis == "rest"
            middle = cell.rect.x if rest else cell.rect.right
            left, right = (middle - above, middle + below) if rest else (middle - below, middle + above)
            found.append((rest, Whisker(cell.kind, max(left, grid.x0), middle, min(right, grid.x1), 0.0)))
    lanes = (frame.bottom + 4.0, frame.bottom + grid.density.whiskers - 2.0)
    made: list[Whisker] = []
    for _, whisker in sorted(found, key=lambda one: not one[0]):
        for lane in lanes:
            beside = (w for w in made if w.y == lane)
            if all(whisker.right + 3 <= w.left or w.right + 3 <= whisker.left for w in beside):
                made.append(whisker._replace(y=lane))
                break
    return tuple(made)


def strip(grid: Grid, measured: Measured, frame: Rect) -> Strip:
    """What was measured, under the bar, in the same scale."""
    y = frame.bottom + grid.density.whiskers
    start = 0
    parts: list[tuple[MeasuredPart, Rect]] = []
    for part in measured.parts:
        left, right = grid.x(start), min(grid.x(start + part.bytes), grid.x1)
        if part.bytes > 0 and left < right:
            parts.append((part, Rect(left, y, right - left, grid.density.strip - 2)))
        start += part.bytes
    line = Rect(grid.x0, y + grid.density.strip - 2, grid.x1 - grid.x0, grid.density.strip_text - 2)
    return Strip(tuple(parts), Text(line, measured.text, "small"))


def capacity(grid: Grid, device: DevicePlan, frame: Rect, cut: bool, taken: float) -> Text | None:
    """The device's own size, beside its bar, where the axis does not end there; or that nothing was planned."""
    if grid.plan.fits is None and device.segment("weights") is None:
        if device.total_bytes:
            return Text(frame, "not planned", "small", "center")
        return Text(Rect(grid.x0, frame.y, grid.x1 - grid.x0, frame.h), "capacity not known: not planned", "small")
    if cut and device.device.kind == "host":
        text = f"of {words.size(device.total_bytes, grid.view.unit)}"
        wide = grid.measure(text, "small") + 4
        return Text(Rect(grid.x1 - wide - 14, frame.y - 13, wide, 13), text, "small", "right")
    text = words.size(device.total_bytes, grid.view.unit)
    wide = grid.measure(text, "small") + 4
    room = grid.x1 - frame.right
    if device.total_bytes >= grid.end_bytes or taken > frame.right or room < wide + 8:
        return None
    return Text(Rect(frame.right + 6, frame.y, wide, frame.h), text, "small")


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
