"""From a plan to rectangles and texts: everything that the bars' painter draws, in logical pixels, without Qt.

One axis from 0 serves every bar; a cell is as wide as its bytes times the scale, to the last bit, so that what is
seen can be measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kvplanner.engine.plan import DevicePlan, Plan
from kvplanner.engine.plan import Lack as Missing
from kvplanner.engine.segment import SegmentKind
from kvplanner.record import NamedTuple
from kvplanner.report import words
from kvplanner.report.devices import replicas, roles, short
from kvplanner.report.segments import words_of
from kvplanner.report.sentences import failing_rule
from kvplanner.report.words import Unit
from kvplanner.ui.bars.shapes import (
    AXIS,
    COMFORT,
    COMPACT,
    HEADER,
    MEDIUM,
    PAD,
    THICK,
    Bracket,
    Cell,
    Density,
    IdleRow,
    Lack,
    Layout,
    Measured,
    MeasuredPart,
    Row,
    Strip,
    Text,
    Tick,
    View,
    Whisker,
)
from kvplanner.ui.theme.geometry import Measure, Rect, Role, tick_step, tick_text, ticks
from kvplanner.units import GB, GIB

# An overflowing bar may take this many capacities of the axis; a longer one is cut, and says so.
LONGEST: Final = 1.8
_LEAST_WORDS: Final = 9  # letters that say something of a detail that is cut


class _Grid(NamedTuple):
    """The columns that all rows share."""

    plan: Plan
    view: View
    measure: Measure
    density: Density
    width: float
    x0: float
    x1: float
    capacity: int
    end_bytes: int
    scale: float

    def x(self, value: float) -> float:
        return self.x0 + value * self.scale


def rows_of(plan: Plan, opened: frozenset[int]) -> list[tuple[tuple[int, ...], bool]]:
    """Positions of each bar, and whether it is the first of an open group."""
    made: list[tuple[tuple[int, ...], bool]] = []
    for members in plan.groups:
        if len(members) > 1 and members[0] in opened:
            made += [((position,), position == members[0]) for position in members]
        else:
            made.append((members, False))
    return made


def height_of(plan: Plan, view: View, density: Density) -> float:
    """The height that a plan's bars take."""
    rows = rows_of(plan, view.opened)
    texts = _bracket_texts(plan, rows, view.unit)
    total = HEADER + AXIS
    for (positions, _), text in zip(rows, texts, strict=True):
        total += _row_height(plan, view, density, positions, text)
    return total + _idle_height(plan, density)


def _idle_height(plan: Plan, density: Density) -> float:
    if len(plan.request.machine.devices) <= len(plan.devices):  # nearly every plan
        return 0.0
    from kvplanner.ui.bars.idle import height_of_idle

    return height_of_idle(plan, density)


def arrange(plan: Plan, width: float, height: float, measure: Measure, view: View) -> Layout:
    """The picture of a plan in the given room: rows get denser where height is short; it may come out taller."""
    density = next((d for d in (THICK, COMFORT, MEDIUM) if height_of(plan, view, d) <= height), COMPACT)
    rows = rows_of(plan, view.opened)
    grid = _grid(plan, view, measure, density, width, rows)
    texts = _bracket_texts(plan, rows, view.unit)
    y = HEADER
    made: list[Row] = []
    for (positions, opened), text in zip(rows, texts, strict=True):
        row = _row(grid, positions, opened, text, y)
        made.append(row)
        y = row.rect.bottom
    header = Rect(0, 0, width, HEADER)
    delta = Text(Rect(width - 220, 0, 220, HEADER), view.delta, "small_bold", "right") if view.delta else None
    idle: tuple[IdleRow, ...] = ()
    if _idle_height(plan, density):
        from kvplanner.ui.bars.idle import rows_of_idle

        idle = rows_of_idle(
            plan, y, (grid.x0, grid.scale, grid.x1), density, (measure, view.unit, made[0].title.rect.x)
        )
        y = idle[-1].rect.bottom
    return Layout(width, y + AXIS, header, delta, tuple(made), idle, _axis(grid, y), y, grid.x0, grid.scale)


def _bracket_texts(plan: Plan, rows: Sequence[tuple[tuple[int, ...], bool]], unit: Unit) -> list[str]:
    """The budget in words where it differs from the bar above."""
    texts: list[str] = []
    said = ""
    for positions, _ in rows:
        text = _budget_text(plan, plan.devices[positions[0]], unit)
        texts.append(text if text != said else "")
        said = text or said
    return texts


def _budget_text(plan: Plan, device: DevicePlan, unit: Unit) -> str:
    cache = device.segment("kv_cache")
    if cache is not None and plan.cache_given:
        return f"KV cache given: {words.size(cache.bytes, unit)}, whatever the utilisation"
    if device.budget is None:
        return ""
    share = device.budget_share
    text = f"budget {words.number(device.budget.value, unit)} {unit}"
    if share and abs(share * device.cuda_total_bytes - device.budget.value) < 1 << 20:
        text += f" = {share:g} × {words.number(device.cuda_total_bytes, unit)}"
    return text


def _row_height(plan: Plan, view: View, density: Density, positions: tuple[int, ...], bracket: str) -> float:
    lack = plan.devices[positions[0]].lack is not None
    above = density.bracket_text if bracket or lack else density.bracket
    strip = density.strip + density.strip_text if _measured(view, positions) else 0.0
    return above + density.bar + density.whiskers + strip + density.gap


def _measured(view: View, positions: tuple[int, ...]) -> Measured | None:
    return next((m for m in view.measured if m.device in positions), None)


def _grid(
    plan: Plan,
    view: View,
    measure: Measure,
    density: Density,
    width: float,
    rows: Sequence[tuple[tuple[int, ...], bool]],
) -> _Grid:
    texts = [(measure(_title(plan, p), "title"), measure(_detail(plan, p), "small")) for p, _ in rows]
    folds = 14.0 if any(opened or len(p) > 1 for p, opened in rows) else 0.0
    label = folds + (max(max(pair) for pair in texts) if density.two_lines else max(t + d for t, d in texts) + 8)
    x0 = min(max(label + 12, 76.0), 170.0)
    gpus = [plan.devices[p[0]] for p, _ in rows if plan.devices[p[0]].device.kind == "gpu"]
    hosts = [plan.devices[p[0]] for p, _ in rows if plan.devices[p[0]].device.kind == "host"]
    capacity = max([d.total_bytes for d in gpus] or [d.total_bytes for d in hosts] or [1])
    capacity = max([capacity, *(d.used_bytes for d in hosts)])
    furthest = max((lack.end for p, _ in rows if (lack := plan.devices[p[0]].lack)), default=0)
    end = max(capacity, min(furthest, int(capacity * LONGEST)), 1)
    x1 = max(width - 2.0, x0 + 60)
    return _Grid(plan, view, measure, density, width, x0, x1, capacity, end, (x1 - x0) / end)


def _title(plan: Plan, positions: tuple[int, ...]) -> str:
    return words.device_name(plan, positions)


def _detail(plan: Plan, positions: tuple[int, ...]) -> str:
    role, copies = roles(plan, positions), replicas(plan, positions)
    if copies:
        several = len({plan.devices[p].role.partition("/")[2] for p in positions}) > 1
        return f"{copies} · {role}" if several else copies
    if len(positions) > 1:
        return f"{len(positions)} alike · {role}"
    shown = "" if role.lower() == _title(plan, positions).lower() else role
    return " · ".join(part for part in (shown, *plan.devices[positions[0]].device.marks) if part)


def _row(grid: _Grid, positions: tuple[int, ...], opened: bool, bracket_text: str, y: float) -> Row:
    plan, density = grid.plan, grid.density
    device = plan.devices[positions[0]]
    height = _row_height(plan, grid.view, density, positions, bracket_text)
    lack_bytes = device.lack
    top = y + (density.bracket_text if bracket_text or lack_bytes else density.bracket)
    frame = Rect(grid.x0, top, min(device.total_bytes, grid.end_bytes) * grid.scale, density.bar)
    lack = _lack(grid, lack_bytes, frame) if lack_bytes else None
    cells, cut = _cells(grid, plan, positions[0], frame, lack.rect.x if lack else frame.right)
    has_toggle = (len(positions) > 1 or opened) and not grid.view.still
    title, detail = _labels(grid, positions, frame, has_toggle)
    toggle = Rect(0, frame.y, grid.x0 - 8, frame.h) if has_toggle else None
    measured = _measured(grid.view, positions)
    return Row(
        positions=positions,
        rect=Rect(0, y, grid.width, height),
        title=title,
        detail=detail,
        toggle=toggle,
        opened=opened,
        frame=frame,
        cells=cells,
        bracket=_bracket(grid, device, frame, bracket_text, lack),
        lack=lack,
        whiskers=_whiskers(grid, device, cells, frame),
        ghost=_ghost(grid, positions, frame),
        strip=_strip(grid, measured, frame) if measured else None,
        capacity=_capacity(grid, device, frame, cut, lack.rect.right if lack else frame.right),
        gap=_gap(grid, device, lack_bytes, frame),
        cut=cut,
        fill=_fill(grid, cells),
    )


def _fill(grid: _Grid, cells: tuple[Cell, ...]) -> Rect | None:
    """How full the cache is, along the bottom of its cell."""
    cache = next((c.rect for c in cells if c.kind == "kv_cache"), None)
    if cache is None or grid.view.fill is None:
        return None
    high = max(4.0, cache.h / 6)
    return Rect(cache.x, cache.bottom - high, cache.w * min(max(grid.view.fill, 0.0), 1.0), high)


def fitted(text: str, width: float, measure: Measure, role: Role = "small") -> str:
    """The text, cut short with "…" where it is wider than `width`."""
    if measure(text, role) <= width:
        return text
    keep = next((n for n in range(len(text) - 1, 0, -1) if measure(text[:n] + "…", role) <= width), 0)
    return f"{text[:keep].rstrip()}…" if keep else ""


def _labels(grid: _Grid, positions: tuple[int, ...], frame: Rect, toggle: bool) -> tuple[Text, Text]:
    title, detail = _title(grid.plan, positions), _detail(grid.plan, positions)
    indent = 14.0 if toggle else 0.0
    if grid.density.two_lines:
        half, middle = min(frame.h / 2, COMFORT.bar / 2), frame.y + frame.h / 2
        upper = Rect(indent, middle - half, grid.x0 - indent - 8, half)
        lower = Rect(indent, middle, grid.x0 - indent - 8, half)
        return Text(upper, fitted(title, upper.w, grid.measure, "title"), "title"), Text(
            lower, fitted(detail, lower.w, grid.measure), "small"
        )
    after = indent + grid.measure(title, "title") + 8
    room = grid.x0 - 8 - after
    shown = fitted(detail, room, grid.measure)
    shown = shown if shown == detail or len(shown) > _LEAST_WORDS else ""
    line = Rect(indent, frame.y, grid.x0 - indent - 8, frame.h)
    return Text(line, fitted(title, line.w, grid.measure, "title"), "title"), Text(
        Rect(after, frame.y, max(room, 0), frame.h), shown, "small"
    )


def _cells(grid: _Grid, plan: Plan, position: int, frame: Rect, label_end: float) -> tuple[tuple[Cell, ...], bool]:
    """The segments, and whether the axis is too short for them; labels keep left of `label_end`."""
    made: list[Cell] = []
    start = 0
    cut = False
    for segment in plan.devices[position].in_use:
        if segment.bytes <= 0:
            continue
        left, right = grid.x(start), grid.x(start + segment.bytes)
        if right > grid.x1 + 0.5:
            cut, right = True, grid.x1
        if left < grid.x1:
            rect = Rect(left, frame.y, right - left, frame.h)
            told = not (segment.kind == "headroom" and grid.plan.fits is None)
            label = _cell_label(grid, segment.kind, segment.bytes, min(right, label_end) - left) if told else ""
            made.append(Cell(position, segment.kind, rect, start, segment.bytes, label))
        start += segment.bytes
    return tuple(made), cut


def _cell_label(grid: _Grid, kind: SegmentKind, size: int, width: float) -> str:
    """The name with the value, or the value, or nothing: what the width allows."""
    if width < 24:
        return ""
    value = words.number(size, grid.view.unit)
    for text in (f"{words_of(kind).short} {value}", value):
        if grid.measure(text, "text") + 2 * PAD <= width:
            return text
    return ""


def _budget_span(plan: Plan, device: DevicePlan) -> tuple[int, int] | None:
    """From where to where (bytes) the engine counts: its budget, or the cache alone where that is given."""
    cache = device.segment("kv_cache")
    if cache is not None and plan.cache_given:
        before = device.in_use
        start = sum(s.bytes for s in before[: before.index(cache)]) if cache in before else 0
        return (start, start + cache.bytes) if cache in before else None
    end = device.budget_end
    return None if end is None else (device.budget_start, end)


def _bracket(grid: _Grid, device: DevicePlan, frame: Rect, text: str, lack: Lack | None) -> Bracket | None:
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


def _lack(grid: _Grid, lack: Missing, frame: Rect) -> Lack:
    left, right = grid.x(lack.start), min(grid.x(lack.end), grid.x1)
    text = short(lack.bytes, lack.in_all, grid.view.unit)
    wide = grid.measure(text, "small_bold") + 2
    x = min(max((left + right - wide) / 2, grid.x0), grid.x1 - wide)
    shown = Text(Rect(x, frame.y - grid.density.bracket - 12, wide, 13), text, "small_bold", "center")
    return Lack(Rect(left, frame.y, right - left, frame.h), shown, lack.asked)


def _gap(grid: _Grid, device: DevicePlan, lack: Missing | None, frame: Rect) -> Text | None:
    """What the white of a failing plan's bar is, where what lacks leaves some: free at the failing stage, or unused."""
    if grid.plan.fits is not False:
        return None
    rule = failing_rule(grid.plan)
    used = max(device.used_bytes, lack.end if lack and lack.start < device.total_bytes else 0)
    name = "free" if rule is not None and rule.against == "free" else "not used"
    text = f"{name} {words.number(device.total_bytes - used, grid.view.unit)}"
    rect = Rect(grid.x(used), frame.y, frame.right - grid.x(used), frame.h)
    return Text(rect, text, "small", "center") if grid.measure(text, "small") + 2 * PAD <= rect.w else None


def _whiskers(grid: _Grid, device: DevicePlan, cells: tuple[Cell, ...], frame: Rect) -> tuple[Whisker, ...]:
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


def _ghost(grid: _Grid, positions: tuple[int, ...], frame: Rect) -> tuple[Cell, ...]:
    """The bar before the last edit, as a thin strip along the top of this one."""
    before = grid.view.before
    if before is None or positions[0] >= len(before.devices):
        return ()
    old = before.devices[positions[0]]
    if old.total_bytes != grid.plan.devices[positions[0]].total_bytes:
        return ()
    strip = Rect(frame.x, frame.y, frame.w, max(4.0, round(frame.h / 6)))
    return _cells(grid, before, positions[0], strip, 0.0)[0]


def _strip(grid: _Grid, measured: Measured, frame: Rect) -> Strip:
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


def _capacity(grid: _Grid, device: DevicePlan, frame: Rect, cut: bool, taken: float) -> Text | None:
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


def _axis(grid: _Grid, y: float) -> tuple[Tick, ...]:
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


def _end_tick(grid: _Grid, y: float) -> Tick:
    """The axis' end, with the unit: the capacity, or how far the longest bar reaches."""
    text = f"{words.number(grid.end_bytes, grid.view.unit)} {grid.view.unit}"
    wide = grid.measure(text, "small") + 2
    return Tick(grid.x1, Text(Rect(grid.x1 - wide, y + 6, wide, 14), text, "small", "right"))
