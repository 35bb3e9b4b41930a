"""Draws the stages of start-up: what is in use at the end of each, its peak, what is missing, what is never reached."""

from __future__ import annotations

from PySide6.QtCore import QLineF, QPointF, QRectF, Qt
from PySide6.QtGui import QPainter, QPolygonF

from kvplanner.engine.base import Plan
from kvplanner.ui.bars import words
from kvplanner.ui.bars.geometry import Rect, tick_step, tick_text, ticks
from kvplanner.ui.bars.ink import Type, colour, fill_pattern, pen, snapped
from kvplanner.ui.bars.layout import fitted
from kvplanner.ui.bars.shapes import Measure
from kvplanner.ui.bars.words import Unit
from kvplanner.ui.palette import Tokens, mix
from kvplanner.ui.startup_steps import BOTTOM, HEADER, LEFT, RIGHT, Step, Steps
from kvplanner.units import GB, GIB

LINE = 14.0


def column_label(names: tuple[str, ...], width: float, measure: Measure) -> str:
    """The first of the names whose words all fit a column in at most three lines; else the last, cut short."""
    for name in names:
        lines, line = 1, ""
        for word in name.split():
            longer = f"{line} {word}".strip()
            if line and measure(longer, "small") > width:
                lines, longer = lines + 1, word
            line = longer
        if lines <= 3 and all(measure(word, "small") <= width for word in name.split()):
            return name
    return fitted(names[-1], width, measure)


def column_value(value: int, unit: Unit, width: float, measure: Measure, mark: str = "") -> str:
    """A size with as many decimals (2 to 0) as its column has room for; "" for none."""
    texts = (f"{mark}{words.number(value, unit, digits)}" for digits in (2, 1, 0))
    return next((text for text in texts if measure(text, "small_bold") <= width), "")


class Drawing:
    """One picture of one device's stages."""

    def __init__(
        self, painter: QPainter, tokens: Tokens, type_: Type, plan: Plan, position: int, unit: Unit, width: float
    ) -> None:
        self.painter, self.tokens, self.type = painter, tokens, type_
        self.plan, self.position, self.unit, self.width = plan, position, unit, width

    def all(self, steps: Steps, current: int, readout: str, *, focused: bool) -> None:
        """Everything. current: the chosen stage; readout: the lines above the picture."""
        failing = any(step.stage.failing for step in steps.steps)
        ink = self.tokens.danger if readout.startswith("Fails") else self.tokens.muted
        self.text(Rect(0, 0, self.width, HEADER), readout, ink, top=True)
        if steps.legend:
            self.legend(failing=failing)
        self.axis(steps)
        for short, name, column in steps.later:
            self.never(short, name, column, steps)
        for index, step in enumerate(steps.steps):
            self.step(step, steps, chosen=index == current, focused=focused)
        self.others(steps)
        self.limits(steps)
        for step in steps.steps:
            self.values(step)

    def text(
        self, rect: Rect, text: str, ink: str, *, bold: bool = False, side: str = "left", top: bool = False
    ) -> None:
        """A text in a rectangle, wrapped where it is too wide."""
        sides = {"left": Qt.AlignmentFlag.AlignLeft, "right": Qt.AlignmentFlag.AlignRight}
        align = sides.get(side, Qt.AlignmentFlag.AlignHCenter)
        align |= Qt.AlignmentFlag.AlignTop if top else Qt.AlignmentFlag.AlignVCenter
        self.painter.setFont(self.type.fonts["small_bold" if bold else "small"])
        self.painter.setPen(colour(ink))
        self.painter.drawText(QRectF(*rect), int(align | Qt.TextFlag.TextWordWrap), text)

    def legend(self, *, failing: bool) -> None:
        """What the fills mean."""
        x, y = 2.0, HEADER + 2
        entries = ["at its end", "at its highest", *(["missing"] if failing else [])]
        for index, name in enumerate(entries):
            box = QRectF(x, y + 1, 12, 11)
            if index == 2:
                self.missing(box)
            else:
                self.fill(box, peak=index == 1)
            wide = self.type.width(name, "small") + 4
            self.text(Rect(x + 17, y - 1, wide, LINE + 1), name, self.tokens.muted)
            x += 17 + wide + 14

    def fill(self, box: QRectF, *, peak: bool, chosen: bool = False, pale: bool = False) -> None:
        """The fill of what stays at a stage's end, or of its peak."""
        tokens, painter = self.tokens, self.painter
        share = tokens.strength * (0.08 if pale else 0.14 if peak else 0.42 if chosen else 0.26)
        painter.fillRect(box, colour(mix(tokens.accent, tokens.panel, share)))
        line = mix(tokens.accent, tokens.panel, 0.35) if pale else tokens.accent
        if peak:
            fill_pattern(painter, box, "up", pen(mix(tokens.accent, tokens.panel, 0.6)), 6)
            painter.setPen(pen(line, 1))
            painter.drawRect(box.adjusted(0.5, 0.5, -0.5, -0.5))
        else:
            painter.setPen(pen(line, 2))
            painter.drawLine(QLineF(box.left(), box.top(), box.right(), box.top()))

    def missing(self, box: QRectF) -> None:
        """What does not fit, in its pattern."""
        self.painter.fillRect(box, colour(self.tokens.danger_soft))
        fill_pattern(self.painter, box, "up", pen(self.tokens.danger, 2), 8)

    def axis(self, steps: Steps) -> None:
        """Lines at round sizes."""
        per = GIB if self.unit == "GiB" else GB
        end = steps.end_bytes / per
        high = steps.base_y - steps.top - 4
        step = tick_step(end, high, 34)
        right = self.right(steps)
        self.text(Rect(0, steps.top - 14, LEFT - 6, LINE), self.unit, self.tokens.muted, side="right")
        for value in ticks(end, high, 34):
            y = round(steps.base_y - value * per * steps.scale) + 0.5
            self.painter.setPen(pen(self.tokens.outline if value == 0 else self.tokens.border))
            self.painter.drawLine(QLineF(LEFT, y, right, y))
            if y > steps.top + 6:
                self.text(Rect(0, y - 7, LEFT - 6, LINE), tick_text(value, step), self.tokens.muted, side="right")

    def right(self, steps: Steps) -> float:
        """Where the last column ends."""
        return steps.later[-1][2].right if steps.later else steps.steps[-1].column.right

    def never(self, short: str, name: str, column: Rect, steps: Steps) -> None:
        """A stage that the failing start does not reach."""
        box = snapped(Rect(column.x + 3, steps.capacity_y, column.w - 6, steps.base_y - steps.capacity_y))
        self.painter.setPen(pen(self.tokens.border, 1, Qt.PenStyle.DashLine))
        self.painter.drawRect(box.adjusted(0.5, 0.5, -0.5, -0.5))
        shown = column_label(("not reached", "–"), column.w - 8, self.type.width)
        self.text(
            Rect(box.x() + 1, box.center().y() - 21, box.width() - 2, 42), shown, self.tokens.muted, side="center"
        )
        self.name((name, short), column, steps, mix(self.tokens.muted, self.tokens.panel, 0.75))

    def name(self, names: tuple[str, ...], column: Rect, steps: Steps, ink: str, *, bold: bool = False) -> None:
        """A stage's name under its column."""
        width = column.w - 4
        label = column_label(names, width * (0.92 if bold else 1), self.type.width)
        self.text(
            Rect(column.x + 2, steps.base_y + 3, width, BOTTOM - 5), label, ink, bold=bold, side="center", top=True
        )

    def step(self, step: Step, steps: Steps, *, chosen: bool, focused: bool) -> None:
        """A stage's column."""
        tokens, painter, stage = self.tokens, self.painter, step.stage
        self.fill(snapped(step.box), peak=False, chosen=chosen, pale=step.pale)
        if step.peak:
            self.fill(snapped(step.peak), peak=True, pale=step.pale)
        if step.lack:
            self.missing(snapped(step.lack))
        if chosen:
            painter.setPen(pen(tokens.accent if focused else tokens.text, 2))
            painter.drawRect(snapped(step.column).adjusted(1, 1, -1, -1))
        ink = tokens.danger if stage.failing else tokens.text if chosen else tokens.muted
        sign = "✕ " if stage.failing else ""
        names = (f"{sign}{stage.label}", f"{sign}{stage.stage.replace('_', ' ')}")
        self.name(names, step.column, steps, ink, bold=stage.failing)

    def values(self, step: Step) -> None:
        """The sizes at the stage's end and, where it differs to the eye, at its highest: inside the column."""
        stage, column = step.stage, step.column
        width = column.w - 2
        end = column_value(stage.end_bytes, self.unit, width, self.type.width)
        peak = column_value(stage.peak_bytes, self.unit, width, self.type.width, "▲")
        covered = step.lack is not None and step.lack.bottom > step.box.y
        y = step.lack.bottom + 3 if covered and step.lack else step.box.y + 3
        above = min(part.y for part in (step.box, step.peak, step.lack) if part) - LINE - 2
        low = step.box.bottom - y < LINE + 2
        ink = self.tokens.muted if step.pale else self.tokens.text
        if low:
            y, above = above, above - LINE
        self.chip(Rect(column.x + 1, y, width, LINE), end, ink, ground=low or covered)
        if step.peak and peak[1:] != end:
            room = step.peak.h >= LINE + 2 and not covered
            y = step.peak.y + 1 if room and not low else above
            if covered:
                y = (step.lack.bottom if step.lack else step.box.y) + 3 + LINE
            self.chip(Rect(column.x + 1, max(y, HEADER), width, LINE), peak, ink, ground=True)

    def chip(self, rect: Rect, text: str, ink: str, *, ground: bool) -> None:
        """A figure that stays readable over lines and patterns."""
        if not text:
            return
        if ground:
            wide = min(self.type.width(text, "small_bold") + 4, rect.w)
            box = QRectF(rect.x + (rect.w - wide) / 2, rect.y + 1, wide, rect.h - 2)
            self.painter.fillRect(box, colour(self.tokens.panel, 215))
        self.text(rect, text, ink, bold=True, side="center")

    def others(self, steps: Steps) -> None:
        """Outlines of the other devices."""
        taken = [steps.capacity_y - 7, *([steps.budget_y] if steps.budget_y is not None else [])]
        for name, points in steps.others[:4]:
            self.painter.setPen(pen(self.tokens.muted, 1.4, Qt.PenStyle.DashLine))
            self.painter.drawPolyline(QPolygonF([QPointF(*p) for p in points]))
            x, y = points[-1]
            if all(abs(y - other) > 13 for other in taken):
                inside = self.width - x < RIGHT * 0.8
                rect = Rect(x - 124, y - 15, 120, LINE) if inside else Rect(x + 6, y - 7, RIGHT - 8, LINE)
                self.text(rect, name, self.tokens.muted, side="right" if inside else "left")
                taken.append(y)

    def limits(self, steps: Steps) -> None:
        """The lines of the capacity and of the budget's end."""
        device = self.plan.devices[self.position]
        right = self.right(steps)
        capacity = round(steps.capacity_y) + 0.5
        self.painter.setPen(pen(self.tokens.text, 1.6))
        self.painter.drawLine(QLineF(LEFT, capacity, right, capacity))
        size = words.size(device.total_bytes, self.unit)
        beside = self.width - right > RIGHT * 0.8
        x, wide = (right + 6, RIGHT - 8) if beside else (LEFT + 4, 120.0)
        at_the_end = not beside and bool(steps.later)  # where a failing start leaves room
        x = right - wide - 2 if at_the_end else x
        side = "right" if at_the_end else "left"
        self.text(Rect(x, capacity - (14 if beside else 15), wide, LINE), size, self.tokens.text, bold=True, side=side)
        if steps.budget_y is not None:
            y = round(steps.budget_y) + 0.5
            self.painter.setPen(pen(self.tokens.text, 1.2, Qt.PenStyle.DashLine))
            self.painter.drawLine(QLineF(LEFT, y, right, y))
            top = max(y - 7, capacity + 1) if beside else max(y, capacity) + 1
            self.text(Rect(x, top, wide, LINE), "budget's end", self.tokens.muted, side=side)
