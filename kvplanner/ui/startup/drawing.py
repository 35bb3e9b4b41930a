"""Draws the stages of start-up: what is in use at the end of each, its peak, what is missing, what is never reached."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from PySide6.QtCore import QLineF, QPointF, QRectF, Qt
from PySide6.QtGui import QPainter, QPolygonF

from kvplanner.diagnose.stages import LoggedStage
from kvplanner.engine.plan import Plan
from kvplanner.report import words
from kvplanner.report.words import Unit
from kvplanner.ui.startup.labels import free_row, is_free, line_places, value_tops
from kvplanner.ui.startup.steps import ABOVE, BOTTOM, LEFT, LEGEND, RIGHT, Step, Steps, right_end
from kvplanner.ui.theme.figures import shown_figures
from kvplanner.ui.theme.geometry import Measure, Rect, fitted, tick_step, tick_text, ticks
from kvplanner.ui.theme.ink import Type, colour, fill_pattern, pen, snapped
from kvplanner.ui.theme.palette import Tokens, mix
from kvplanner.units import GB, GIB

LINE: Final = 14.0
MISSING: Final = "missing"
OTHERS: Final = "other devices"
LOGGED: Final = "the log"
MOST_OTHERS: Final = 4
BUDGET: Final = "budget's end"


def column_label(names: tuple[str, ...], width: float, measure: Measure) -> str:
    """The first of the names whose words all fit a column in at most three lines; else the last, cut short."""
    for name in names:
        lines, line = 1, ""
        for word in name.split(" "):
            longer = f"{line} {word}".strip()
            if line and measure(longer, "small") > width:
                lines, longer = lines + 1, word
            line = longer
        if lines <= 3 and all(measure(word, "small") <= width for word in name.split(" ")):
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

    def all(
        self, steps: Steps, current: int, failure: str, readout: str, *, focused: bool,
        logged: Mapping[str, LoggedStage] = {},
    ) -> None:  # fmt: skip
        """Everything. current: the stage told of; failure, readout: the lines above the picture."""
        header = steps.top - ABOVE - (LEGEND if steps.legend else 0.0)
        first = self.type.height(failure, "small", self.width)
        self.text(Rect(0, 0, self.width, first), failure, self.tokens.danger, top=True)
        self.text(Rect(0, first, self.width, header - first), readout, self.tokens.muted, top=True)
        if steps.legend:
            self.legend(
                header, lacking=any(step.lack for step in steps.steps), others=bool(steps.others), logged=bool(logged)
            )
        self.axis(steps)
        for short, name, column in steps.later:
            self.never(short, name, column, steps)
        taken: list[Rect] = []
        for index, step in enumerate(steps.steps):
            self.step(step, steps, chosen=index == current, focused=focused)
        self.outlines(steps)
        self.limits(steps)
        lines = tuple(y for y in (steps.capacity_y, steps.budget_y) if y is not None)
        for step in steps.steps:
            taken += self.values(step, lines)
        for step in steps.steps:
            if step.stage.stage in logged:
                self.logged(step, steps, logged[step.stage.stage])
        taken += self.line_names(steps, taken)
        taken += self.other_names(steps, lines, taken)
        self.not_reached(steps, taken)

    def logged(self, step: Step, steps: Steps, seen: LoggedStage) -> None:
        """A log's own height over the planned one: a line with a diamond, the peak as an open one."""
        column = step.column
        for size, filled in ((seen.end_bytes, True), (seen.peak_bytes, False)):
            if size is None:
                continue
            y = steps.base_y - size * steps.scale
            for stroke in (pen(self.tokens.panel, 4.0), pen(self.tokens.text, 1.5)):
                self.painter.setPen(stroke)
                self.painter.drawLine(QLineF(column.x + 6, y, column.x + column.w - 6, y))
            self.diamond(QPointF(column.x + column.w / 2, y), filled=filled)

    def diamond(self, at: QPointF, *, filled: bool) -> None:
        """The mark of what a log says."""
        tokens = self.tokens
        self.painter.setPen(pen(tokens.panel if filled else tokens.text, 1.5))
        self.painter.setBrush(colour(tokens.text if filled else tokens.panel))
        corners = ((0, -5), (5, 0), (0, 5), (-5, 0))
        self.painter.drawPolygon(QPolygonF([QPointF(at.x() + x, at.y() + y) for x, y in corners]))
        self.painter.setBrush(Qt.BrushStyle.NoBrush)

    def text(
        self, rect: Rect, text: str, ink: str, *, bold: bool = False, side: str = "left", top: bool = False
    ) -> None:
        """A text in a rectangle, wrapped where it is too wide."""
        sides = {"left": Qt.AlignmentFlag.AlignLeft, "right": Qt.AlignmentFlag.AlignRight}
        align = sides.get(side, Qt.AlignmentFlag.AlignHCenter)
        align |= Qt.AlignmentFlag.AlignTop if top else Qt.AlignmentFlag.AlignVCenter
        self.painter.setFont(self.type.fonts["small_bold" if bold else "small"])
        self.painter.setPen(colour(ink))
        self.painter.drawText(QRectF(*rect), int(align | Qt.TextFlag.TextWordWrap), shown_figures(text))

    def legend(self, top: float, *, lacking: bool, others: bool, logged: bool = False) -> None:
        """What the fills mean, and the outline of other devices."""
        x, y = 2.0, top + 2
        more = ((MISSING, lacking), (OTHERS, others), (LOGGED, logged))
        entries = ["at its end", "at its highest", *(name for name, there in more if there)]
        for name in entries:
            box = QRectF(x, y + 1, 12, 11)
            if name == MISSING:
                self.missing(box)
            elif name == LOGGED:
                self.diamond(box.center(), filled=True)
            elif name == OTHERS:
                self.painter.setPen(pen(self.tokens.muted, 1.4, Qt.PenStyle.DashLine))
                self.painter.drawLine(QLineF(box.left(), box.center().y(), box.right(), box.center().y()))
            else:
                self.fill(box, peak=name == entries[1])
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
        right = right_end(steps)
        self.text(Rect(0, steps.top - 14, LEFT - 6, LINE), self.unit, self.tokens.muted, side="right")
        for value in ticks(end, high, 34):
            y = round(steps.base_y - value * per * steps.scale) + 0.5
            self.painter.setPen(pen(self.tokens.outline if value == 0 else self.tokens.border))
            self.painter.drawLine(QLineF(LEFT, y, right, y))
            if y > steps.top + 6:
                self.text(Rect(0, y - 7, LEFT - 6, LINE), tick_text(value, step), self.tokens.muted, side="right")

    def never(self, short: str, name: str, column: Rect, steps: Steps) -> None:
        """A stage that the failing start does not reach."""
        box = snapped(Rect(column.x + 3, steps.capacity_y, column.w - 6, steps.base_y - steps.capacity_y))
        self.painter.setPen(pen(self.tokens.border, 1, Qt.PenStyle.DashLine))
        self.painter.drawRect(box.adjusted(0.5, 0.5, -0.5, -0.5))
        self.name((name, short), column, steps, self.tokens.muted)

    def not_reached(self, steps: Steps, taken: list[Rect]) -> None:
        """Says so in the columns of stages that a failing start does not reach, where all of them have room for it."""
        boxes = [Rect(c.x + 4, steps.capacity_y, c.w - 8, steps.base_y - steps.capacity_y) for _, _, c in steps.later]
        if not boxes:
            return
        shown = column_label(("not reached", "–"), boxes[0].w, self.type.width)
        high = self.type.height(shown, "small", boxes[0].w)
        y = free_row(boxes, (0.5, 0.65, 0.35, 0.8, 0.95), high, taken)
        for box in boxes if y is not None else ():
            self.text(Rect(box.x, y or 0.0, box.w, high), shown, self.tokens.muted, side="center")

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
        names: tuple[str, ...] = (stage.label, stage.stage.replace("_", " "))
        if stage.failing:  # the sign stands beside a word, or not at all
            names = tuple(shown for name in names for shown in (f"✕\u00a0{name}", name))
        self.name(names, step.column, steps, ink, bold=stage.failing)

    def values(self, step: Step, lines: tuple[float, ...]) -> list[Rect]:
        """Where they stand: the sizes at the stage's end and, where it differs to the eye, at its highest."""
        stage, column = step.stage, step.column
        width = column.w - 2
        end = column_value(stage.end_bytes, self.unit, width, self.type.width)
        peak = column_value(stage.peak_bytes, self.unit, width, self.type.width, "▲")
        at_end, at_peak = value_tops(step, lines, LINE, twice=step.peak is not None and peak[1:] != end)
        ink = self.tokens.muted if step.pale else self.tokens.text
        plain = step.box.y <= at_end and at_end + LINE <= step.box.bottom
        hatched = step.lack is not None and step.lack.y < at_end + LINE and at_end < step.lack.bottom
        made = [self.chip(Rect(column.x + 1, at_end, width, LINE), end, ink, ground=hatched or not plain)]
        if at_peak is not None:
            place = Rect(column.x + 1, at_peak, width, LINE)
            made.append(self.chip(place, peak, ink, ground=at_peak < step.box.y))
        return made

    def chip(self, rect: Rect, text: str, ink: str, *, ground: bool) -> Rect:
        """A figure that stays readable over lines and patterns; what it takes."""
        wide = min(self.type.width(text, "small_bold") + 4, rect.w) if text else 0.0
        box = Rect(rect.x + (rect.w - wide) / 2, rect.y, wide, rect.h)
        if ground and text:
            self.painter.fillRect(QRectF(box.x, box.y + 1, box.w, box.h - 2), colour(self.tokens.panel, 215))
        if text:
            self.text(rect, text, ink, bold=True, side="center")
        return box

    def outlines(self, steps: Steps) -> None:
        """The ends of the other devices' stages."""
        self.painter.setPen(pen(self.tokens.muted, 1.4, Qt.PenStyle.DashLine))
        for _, points in steps.others[:MOST_OTHERS]:
            self.painter.drawPolyline(QPolygonF([QPointF(*p) for p in points]))

    def other_names(self, steps: Steps, lines: tuple[float, ...], taken: list[Rect]) -> list[Rect]:
        """Whose outline it is, where the names have room."""
        made: list[Rect] = []
        for name, points in steps.others[:MOST_OTHERS]:
            x, y = points[-1]
            wide = self.type.width(name, "small") + 2
            inside = self.width - x < RIGHT * 0.8
            rect = Rect(x - wide - 4, y - 15, wide, LINE) if inside else Rect(x + 6, y - 7, wide, LINE)
            struck = inside and any(rect.y - 1 < line < rect.bottom for line in lines)
            if not struck and is_free(rect, [*taken, *made]):
                self.text(rect, name, self.tokens.muted)
                made.append(rect)
        return made

    def limits(self, steps: Steps) -> None:
        """The lines of the capacity and of the budget's end."""
        right = right_end(steps)
        y = round(steps.capacity_y) + 0.5
        self.painter.setPen(pen(self.tokens.text, 1.6))
        self.painter.drawLine(QLineF(LEFT, y, right, y))
        if steps.budget_y is not None:
            y = round(steps.budget_y) + 0.5
            self.painter.setPen(pen(self.tokens.text, 1.2, Qt.PenStyle.DashLine))
            self.painter.drawLine(QLineF(LEFT, y, right, y))

    def line_names(self, steps: Steps, taken: list[Rect]) -> list[Rect]:
        """What the two lines are, each on a ground of its own; where they stand."""
        size = words.size(self.plan.devices[self.position].total_bytes, self.unit)
        wide = self.type.width(size, "small_bold") + 2, self.type.width(BUDGET, "small") + 2
        capacity, budget = line_places(steps, self.width, wide, LINE, taken)
        named = [(capacity, size, self.tokens.text, True)]
        named += [(budget, BUDGET, self.tokens.muted, False)] if budget is not None else []
        for rect, text, ink, bold in named:
            self.painter.fillRect(QRectF(*rect), colour(self.tokens.panel, 215))
            self.text(rect, text, ink, bold=bold)
        return [rect for rect, _, _, _ in named]
