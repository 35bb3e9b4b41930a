"""From a plan to rectangles and texts: everything that the bars' painter draws, in logical pixels, without Qt.

One axis from 0 serves every bar; a cell is as wide as its bytes times the scale, to the last bit, so that what is
seen can be measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kvplanner.engine.plan import DevicePlan, Plan
from kvplanner.engine.segment import SegmentKind
from kvplanner.report import words
from kvplanner.report.devices import replicas, roles
from kvplanner.report.segments import words_of
from kvplanner.report.words import Unit
from kvplanner.ui.bars import marks
from kvplanner.ui.bars.shapes import (
    AXIS,
    COMFORT,
    COMPACT,
    HEADER,
    MEDIUM,
    PAD,
    THICK,
    Cell,
    Density,
    Grid,
    IdleRow,
    Layout,
    Measured,
    Row,
    Text,
    View,
)
from kvplanner.ui.theme.geometry import Measure, Rect, fitted

# An overflowing bar may take this many capacities of the axis; a longer one is cut, and says so.
LONGEST: Final = 1.8
_LEAST_WORDS: Final = 9  # letters that say something of a detail that is cut


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
    return Layout(width, y + AXIS, header, delta, tuple(made), idle, marks.axis(grid, y), y, grid.x0, grid.scale)


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
) -> Grid:
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
    return Grid(plan, view, measure, density, width, x0, x1, capacity, end, (x1 - x0) / end)


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


def _row(grid: Grid, positions: tuple[int, ...], opened: bool, bracket_text: str, y: float) -> Row:
    plan, density = grid.plan, grid.density
    device = plan.devices[positions[0]]
    height = _row_height(plan, grid.view, density, positions, bracket_text)
    lack_bytes = device.lack
    top = y + (density.bracket_text if bracket_text or lack_bytes else density.bracket)
    frame = Rect(grid.x0, top, min(device.total_bytes, grid.end_bytes) * grid.scale, density.bar)
    lack = marks.lack_of(grid, lack_bytes, frame) if lack_bytes else None
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
        bracket=marks.bracket(grid, device, frame, bracket_text, lack),
        lack=lack,
        whiskers=marks.whiskers(grid, device, cells, frame),
        ghost=_ghost(grid, positions, frame),
        strip=marks.strip(grid, measured, frame) if measured else None,
        capacity=marks.capacity(grid, device, frame, cut, lack.rect.right if lack else frame.right),
        gap=marks.gap(grid, device, lack_bytes, frame),
        cut=cut,
        fill=marks.fill(grid, cells),
    )


def _labels(grid: Grid, positions: tuple[int, ...], frame: Rect, toggle: bool) -> tuple[Text, Text]:
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


def _cells(grid: Grid, plan: Plan, position: int, frame: Rect, label_end: float) -> tuple[tuple[Cell, ...], bool]:
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
            labelled = not (segment.kind == "headroom" and grid.plan.fits is None)
            label = _cell_label(grid, segment.kind, segment.bytes, min(right, label_end) - left) if labelled else ""
            made.append(Cell(position, segment.kind, rect, start, segment.bytes, label))
        start += segment.bytes
    return tuple(made), cut


def _cell_label(grid: Grid, kind: SegmentKind, size: int, width: float) -> str:
    """The name with the value, or the value, or nothing: what the width allows."""
    if width < 24:
        return ""
    value = words.number(size, grid.view.unit)
    for text in (f"{words_of(kind).short} {value}", value):
        if grid.measure(text, "text") + 2 * PAD <= width:
            return text
    return ""


def _ghost(grid: Grid, positions: tuple[int, ...], frame: Rect) -> tuple[Cell, ...]:
    """The bar before the last edit, as a thin strip along the top of this one."""
    before = grid.view.before
    if before is None or positions[0] >= len(before.devices):
        return ()
    old = before.devices[positions[0]]
    if old.total_bytes != grid.plan.devices[positions[0]].total_bytes:
        return ()
    strip = Rect(frame.x, frame.y, frame.w, max(4.0, round(frame.h / 6)))
    return _cells(grid, before, positions[0], strip, 0.0)[0]
