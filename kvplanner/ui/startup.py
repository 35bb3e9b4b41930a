"""The Start-up view: a device's memory over the stages of start-up, against its capacity and its budget."""

from __future__ import annotations

from typing import Final, NamedTuple

from PySide6.QtCore import QEvent, QLineF, QPointF, QRect, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QFocusEvent, QKeyEvent, QMouseEvent, QPainter, QPaintEvent, QPolygonF, QResizeEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from kvplanner.engine.base import DevicePlan, Plan, SegmentKind, StageMemory
from kvplanner.ui.bars import words
from kvplanner.ui.bars.access import Accessible
from kvplanner.ui.bars.fold import budget_start, group_of, groups
from kvplanner.ui.bars.geometry import Rect, tick_step, tick_text, ticks
from kvplanner.ui.bars.ink import Type, colour, fill_pattern, pen, snapped, tokens_of
from kvplanner.ui.bars.layout import fitted
from kvplanner.ui.bars.words import Unit
from kvplanner.ui.palette import Tokens, mix
from kvplanner.units import GB, GIB

TOP: Final = 30.0
BOTTOM: Final = 40.0
WIDEST: Final = 200.0
LEFT: Final = 44.0
RIGHT: Final = 96.0  # room for the lines' names; in a narrow view they stand inside
RIGHT_NARROW: Final = 8.0
NARROW: Final = 560.0
SHORT_NAMES_BELOW: Final = 84.0
EMPTY: Final = "Choose a model and GPUs to see memory over start-up"
UNKNOWN: Final = "The stages of start-up are not known for this plan"


class Step(NamedTuple):
    """One stage: its column, what is in use at its end (box) and at its highest (peak, above it, or None), and what
    does not fit (lack)."""

    stage: StageMemory
    column: Rect
    box: Rect
    peak: Rect | None
    lack: Rect | None


class Steps(NamedTuple):
    """Where everything is drawn. capacity, budget: heights of the lines; others: outlines of the other devices."""

    steps: tuple[Step, ...]
    capacity_y: float
    budget_y: float | None
    base_y: float
    scale: float
    end_bytes: int
    others: tuple[tuple[str, tuple[tuple[float, float], ...]], ...]


def arrange(plan: Plan, position: int, width: float, height: float) -> Steps | None:
    """The stages of one device in the given room, the other groups' as outlines; None where none are known."""
    device = plan.devices[position]
    if not device.stages:
        return None
    shown = [plan.devices[g[0]] for g in groups(plan) if plan.devices[g[0]].stages]
    highest = max(max(d.total_bytes, *(_reach(plan, d, s)[1] for s in d.stages)) for d in shown)
    right = RIGHT if width >= NARROW else RIGHT_NARROW
    wide = min(max(width - LEFT - right, 80.0) / len(device.stages), WIDEST)
    top, base = TOP + 4, height - BOTTOM
    scale = max(base - top, 1.0) / highest
    steps = tuple(_step(plan, device, i, wide, (base, height), scale) for i in range(len(device.stages)))
    budget = budget_start(device) + device.budget.value if device.budget else None
    mine = group_of(plan, position)
    others = tuple(
        (words.device_name(plan, group), _outline(plan.devices[group[0]], wide, base, scale))
        for group in groups(plan)
        if group != mine and plan.devices[group[0]].stages
    )
    return Steps(
        steps,
        base - device.total_bytes * scale,
        base - budget * scale if budget and budget <= highest else None,
        base,
        scale,
        highest,
        others,
    )


def _reach(plan: Plan, device: DevicePlan, stage: StageMemory) -> tuple[int, int]:
    """What a stage has, and up to where it would need memory (bytes from zero): the same unless it fails."""
    have = stage.peak_bytes
    if not stage.failing:
        return min(have, device.total_bytes), have
    if plan.stage == "free_memory_check" and device.budget:
        return device.total_bytes, max(budget_start(device) + device.budget.value, device.total_bytes)
    if have > device.total_bytes:
        return device.total_bytes, have
    return have, have + plan.missing_bytes


def _step(
    plan: Plan, device: DevicePlan, index: int, wide: float, base_and_end: tuple[float, float], scale: float
) -> Step:
    stage = device.stages[index]
    base, end = base_and_end
    x = LEFT + index * wide
    high = stage.end_bytes * scale
    over = (stage.peak_bytes - stage.end_bytes) * scale
    peak = Rect(x + wide * 0.18, base - high - over, wide * 0.64, over) if over >= 1 else None
    have, need = _reach(plan, device, stage)
    lack = Rect(x, base - need * scale, wide, max((need - have) * scale, 3.0)) if need > have else None
    return Step(stage, Rect(x, TOP - 2, wide, end - TOP + 2), Rect(x, base - high, wide, high), peak, lack)


def _outline(device: DevicePlan, wide: float, base: float, scale: float) -> tuple[tuple[float, float], ...]:
    points: list[tuple[float, float]] = []
    for index, stage in enumerate(device.stages):
        y = base - stage.end_bytes * scale
        points += [(LEFT + index * wide, y), (LEFT + (index + 1) * wide, y)]
    return tuple(points)


def stage_line(plan: Plan, position: int, stage: StageMemory, unit: Unit) -> str:
    """A stage in one line: "GPU 0 · load weights: 15.9 GiB at its end, 16.4 GiB at its highest"."""
    device = words.device_name(plan, group_of(plan, position))
    line = f"{device} · {stage.label}: {words.size(stage.end_bytes, unit)} at its end"
    if stage.peak_bytes > stage.end_bytes:
        line += f", {words.size(stage.peak_bytes, unit)} at its highest"
        line += f" ({stage.note})" if stage.note else ""
    if stage.failing:
        short = f": {words.size(plan.missing_bytes, unit)} short" if plan.missing_bytes else ""
        line += f" · fails here{short}"
    return line


class StartupView(Accessible):
    """The stepped picture; left and right walk the stages, up and down the devices."""

    segment_selected = Signal(object)
    access_title = "Memory over the stages of start-up"

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)
        self.setMouseTracking(True)
        self._plan: Plan | None = None
        self._unit: Unit = "GiB"
        self._position = 0
        self._kind: SegmentKind | None = "kv_cache"
        self._current = -1
        self._empty = EMPTY
        self._type = Type(self.font())

    def set_empty(self, text: str) -> None:
        """What stands here while there is no plan; "" for what to do first."""
        self._empty = text or EMPTY
        self.update()

    def set_plan(self, plan: Plan | None) -> None:
        """Shows a plan."""
        self._plan = plan
        if plan is None or self._position >= len(plan.devices):
            self._position = 0
        self._current = min(self._current, self.access_count() - 1)
        self._changed()

    def set_unit(self, unit: Unit) -> None:
        """GiB or GB."""
        self._unit = unit
        self._changed()

    def set_selected(self, device: int, kind: SegmentKind | None) -> None:
        """Shows a device's stages."""
        if self._plan is None or device < len(self._plan.devices):
            self._position, self._kind = device, kind
            self._changed()

    def _changed(self) -> None:
        self.update()
        self.parts_changed()

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Follows the room."""
        super().resizeEvent(event)
        self.parts_changed()

    def steps(self) -> Steps | None:
        """The layout in sight."""
        return arrange(self._plan, self._position, self.width(), self.height()) if self._plan else None

    def stages(self) -> tuple[StageMemory, ...]:
        """The stages in sight."""
        return self._plan.devices[self._position].stages if self._plan and self._plan.devices else ()

    def readout(self) -> str:
        """The chosen stage in a line, else the failing one, else the highest."""
        stages = self.stages()
        if self._plan is None or not stages:
            return ""
        chosen = stages[self._current] if 0 <= self._current < len(stages) else None
        shown = chosen or next((s for s in stages if s.failing), None) or max(stages, key=lambda s: s.peak_bytes)
        lead = "" if chosen or shown.failing else "Highest: "
        return lead + stage_line(self._plan, self._position, shown, self._unit)

    def sizeHint(self) -> QSize:
        """Room for the stages' names."""
        return QSize(640, 230)

    def minimumSizeHint(self) -> QSize:
        """Enough to tell the steps apart."""
        return QSize(360, 150)

    def changeEvent(self, event: QEvent) -> None:
        """Follows fonts."""
        super().changeEvent(event)
        if event.type() == QEvent.Type.FontChange:
            self._type = Type(self.font())
            self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draws the stages, or why there are none."""
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing, on=True)
        tokens = tokens_of(self)
        steps = self.steps()
        if self._plan is None or steps is None:
            painter.setPen(colour(tokens.muted))
            painter.drawText(
                self.rect(),
                Qt.AlignmentFlag.AlignCenter | Qt.TextFlag.TextWordWrap,
                UNKNOWN if self._plan else self._empty,
            )
        else:
            _Drawing(painter, tokens, self._type, self._plan, self._position, self._unit, self.width()).all(
                steps, self._current, self.readout(), focused=self.hasFocus()
            )
        painter.end()

    def mousePressEvent(self, event: QMouseEvent) -> None:
        """Chooses a stage."""
        point = event.position()
        steps = self.steps()
        found = (i for i, s in enumerate(steps.steps) if s.column.holds(point.x(), point.y())) if steps else iter(())
        self._choose(next(found, self._current))

    def focusInEvent(self, event: QFocusEvent) -> None:
        """The walk starts at the failing stage, else at the first."""
        if self._current < 0 and self.access_count():
            failing = next((i for i, s in enumerate(self.stages()) if s.failing), 0)
            self._choose(failing)
        super().focusInEvent(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Arrows walk stages and devices."""
        keys = Qt.Key
        count = self.access_count()
        target = {
            keys.Key_Left: self._current - 1, keys.Key_Right: self._current + 1,
            keys.Key_Home: 0, keys.Key_End: count - 1,
        }.get(Qt.Key(event.key()))  # fmt: skip
        if target is not None and count:
            self._choose(min(max(target, 0), count - 1))
        elif event.key() in (keys.Key_Up, keys.Key_Down):
            self._other_device(-1 if event.key() == keys.Key_Up else 1)
        else:
            super().keyPressEvent(event)

    def _choose(self, index: int) -> None:
        self._current = index
        self.update()
        self.tell_focus()

    def _other_device(self, step: int) -> None:
        if self._plan is None:
            return
        all_groups = groups(self._plan)
        here = next((i for i, g in enumerate(all_groups) if self._position in g), 0)
        target = all_groups[min(max(here + step, 0), len(all_groups) - 1)][0]
        if target != self._position:
            self._position = target
            self._changed()
            self.segment_selected.emit((target, self._kind or "kv_cache"))

    # Assistive technology

    def access_count(self) -> int:
        """Stages."""
        return len(self.stages())

    def access_name(self, index: int) -> str:
        """For example "GPU 0 · load weights: 15.9 GiB at its end"."""
        return stage_line(self._plan, self._position, self.stages()[index], self._unit) if self._plan else ""

    def access_text(self, index: int) -> str:
        """The stage's note."""
        return self.stages()[index].note

    def access_rect(self, index: int) -> QRect:
        """The stage's column."""
        steps = self.steps()
        column = steps.steps[index].column if steps else Rect(0, 0, 0, 0)
        return QRect(round(column.x), round(column.y), round(column.w), round(column.h))

    def access_current(self) -> int:
        """The chosen stage."""
        return self._current if self._current < self.access_count() else -1


class _Drawing:
    def __init__(
        self, painter: QPainter, tokens: Tokens, type_: Type, plan: Plan, position: int, unit: Unit, width: float
    ) -> None:
        self.painter, self.tokens, self.type = painter, tokens, type_
        self.plan, self.position, self.unit, self.width = plan, position, unit, width

    def all(self, steps: Steps, current: int, readout: str, *, focused: bool) -> None:
        line = fitted(readout, self.width - 4, self.type.width)
        self.text(Rect(0, 0, self.width, 18), line, self.tokens.muted)
        self.axis(steps)
        for index, step in enumerate(steps.steps):
            self.step(step, steps, chosen=index == current, focused=focused)
        self.others(steps)
        self.limits(steps)

    def text(self, rect: Rect, text: str, ink: str, *, bold: bool = False, side: str = "left") -> None:
        sides = {"left": Qt.AlignmentFlag.AlignLeft, "right": Qt.AlignmentFlag.AlignRight}
        align = sides.get(side, Qt.AlignmentFlag.AlignHCenter) | Qt.AlignmentFlag.AlignVCenter
        self.painter.setFont(self.type.fonts["small_bold" if bold else "small"])
        self.painter.setPen(colour(ink))
        self.painter.drawText(QRectF(*rect), int(align | Qt.TextFlag.TextWordWrap), text)

    def axis(self, steps: Steps) -> None:
        per = GIB if self.unit == "GiB" else GB
        end = steps.end_bytes / per
        high = steps.base_y - TOP - 4
        step = tick_step(end, high, 34)
        right = LEFT + sum(s.column.w for s in steps.steps)
        self.text(Rect(0, TOP - 12, LEFT - 6, 14), self.unit, self.tokens.muted, side="right")
        for value in ticks(end, high, 34):
            y = round(steps.base_y - value * per * steps.scale) + 0.5
            self.painter.setPen(pen(self.tokens.outline if value == 0 else self.tokens.border))
            self.painter.drawLine(QLineF(LEFT, y, right, y))
            self.text(Rect(0, y - 7, LEFT - 6, 14), tick_text(value, step), self.tokens.muted, side="right")

    def step(self, step: Step, steps: Steps, *, chosen: bool, focused: bool) -> None:
        tokens, painter, stage = self.tokens, self.painter, step.stage
        box = snapped(step.box)
        painter.fillRect(box, colour(mix(tokens.accent, tokens.panel, 0.42 if chosen else 0.26)))
        if step.peak:
            peak = snapped(step.peak)
            painter.fillRect(peak, colour(mix(tokens.accent, tokens.panel, 0.14)))
            fill_pattern(painter, peak, "up", pen(mix(tokens.accent, tokens.panel, 0.6)), 6)
            painter.setPen(pen(tokens.accent, 1))
            painter.drawRect(peak.adjusted(0.5, 0.5, -0.5, -0.5))
        painter.setPen(pen(tokens.accent, 2))
        painter.drawLine(QLineF(box.left(), box.top(), box.right(), box.top()))
        if step.lack:
            self.lack(step.lack)
        self.value(step, steps.budget_y)
        if chosen:
            painter.setPen(pen(tokens.accent if focused else tokens.text, 2))
            painter.drawRect(snapped(step.column).adjusted(1, 1, -1, -1))
        ink = tokens.danger if stage.failing else tokens.text if chosen else tokens.muted
        label = stage.label if step.column.w >= SHORT_NAMES_BELOW else stage.stage.replace("_", " ")
        label = f"✕ {label}" if stage.failing else label
        rect = Rect(step.column.x + 2, steps.base_y + 3, step.column.w - 4, step.column.bottom - steps.base_y - 5)
        self.text(rect, label, ink, bold=stage.failing, side="center")

    def lack(self, rect: Rect) -> None:
        """What does not fit, in its pattern."""
        box = snapped(rect)
        self.painter.fillRect(box, colour(self.tokens.danger_soft))
        fill_pattern(self.painter, box, "up", pen(self.tokens.danger, 2), 8)

    def value(self, step: Step, budget_y: float | None) -> None:
        """The highest value: inside the column where there is room, else on a chip above it."""
        text = words.number(step.stage.peak_bytes, self.unit)
        column = step.column
        if step.box.h >= 24:
            y = step.box.y + 4
            if step.lack and step.lack.bottom > step.box.y:
                y = min(step.lack.bottom + 4, step.box.bottom - 17)
        else:
            y = (step.lack or step.peak or step.box).y - 17 if not step.lack or step.lack.y > 40 else step.box.y - 17
        if budget_y is not None and y - 2 < budget_y < y + 16:
            y = budget_y + 3
        self.text(Rect(column.x, y, column.w, 14), text, self.tokens.text, bold=True, side="center")

    def others(self, steps: Steps) -> None:
        taken = [steps.capacity_y - 7, *([steps.budget_y] if steps.budget_y is not None else [])]
        for name, points in steps.others[:4]:
            self.painter.setPen(pen(self.tokens.muted, 1.4, Qt.PenStyle.DashLine))
            self.painter.drawPolyline(QPolygonF([QPointF(*p) for p in points]))
            x, y = points[-1]
            if all(abs(y - other) > 13 for other in taken):
                inside = self.width - x < RIGHT * 0.8
                rect = Rect(x - 124, y - 15, 120, 14) if inside else Rect(x + 6, y - 7, RIGHT - 8, 14)
                self.text(rect, name, self.tokens.muted, side="right" if inside else "left")
                taken.append(y)

    def limits(self, steps: Steps) -> None:
        device = self.plan.devices[self.position]
        right = LEFT + sum(s.column.w for s in steps.steps)
        capacity = round(steps.capacity_y) + 0.5
        self.painter.setPen(pen(self.tokens.text, 1.6))
        self.painter.drawLine(QLineF(LEFT, capacity, right, capacity))
        size = words.size(device.total_bytes, self.unit)
        beside = self.width - right > RIGHT * 0.8
        x, wide = (right + 6, RIGHT - 8) if beside else (LEFT + 4, 120.0)
        self.text(Rect(x, capacity - (14 if beside else 15), wide, 14), size, self.tokens.text, bold=True)
        if steps.budget_y is not None:
            y = round(steps.budget_y) + 0.5
            self.painter.setPen(pen(self.tokens.text, 1.2, Qt.PenStyle.DashLine))
            self.painter.drawLine(QLineF(LEFT, y, right, y))
            top = max(y - 7, capacity + 1) if beside else max(y, capacity) + 1
            self.text(Rect(x, top, wide, 14), "budget's end", self.tokens.muted)
