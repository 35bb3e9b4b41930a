"""Memory in use over the last minutes, per GPU, with the plan's lines; pyqtgraph is imported when first shown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from PySide6.QtCore import QEvent, Qt
from PySide6.QtGui import QAccessible, QColor, QPen, QShowEvent
from PySide6.QtWidgets import QComboBox, QHBoxLayout, QLabel, QSizePolicy, QVBoxLayout, QWidget

from kvplanner.app.jobs import Jobs
from kvplanner.engine.segment import SegmentKind
from kvplanner.observe.history import History, Mark, Window
from kvplanner.record import NamedTuple
from kvplanner.report.words import rich
from kvplanner.ui.theme import figures
from kvplanner.ui.theme.ink import tokens_of
from kvplanner.ui.theme.palette import Tokens
from kvplanner.ui.widgets.plot import PlotPlace, load, room_for
from kvplanner.units import GB, GIB, MIB, ByteUnit, format_bytes

SPANS: Final = (("1 min", 60), ("5 min", 300), ("15 min", 900), ("1 h", 3600), ("24 h", 86_400))
LEAST_PLOT: Final = 160
_LEFT: Final = 46
_LONGEST_VALUE: Final = "000.0"
_BELOW: Final = 9  # beside the height of the times: the tick and the air
_ONE_LINE: Final = 4  # curves that are named in one line
_MOST_POINTS: Final = 1200
# Curves differ in their dashes as well as in their colours.
_STYLES: Final = (Qt.PenStyle.SolidLine, Qt.PenStyle.DashLine, Qt.PenStyle.DotLine, Qt.PenStyle.DashDotLine)
_SAMPLES: Final = ("━━━", "╍╍╍", "┈┈┈", "━╍┈")
_INKS: Final[tuple[SegmentKind, ...]] = (
    "weights", "kv_cache", "activations", "cuda_graphs", "runtime_outside", "other",
)  # fmt: skip
_BYTES: Final[dict[ByteUnit, int]] = {"GiB": GIB, "GB": GB, "MiB": MIB, "MB": 10**6}


class Line(NamedTuple):
    """A horizontal reference line: bytes, text; strong for the capacity and the budget's end; below: of the text."""

    bytes: int
    text: str
    strong: bool = False
    below: bool = False


class Curve(NamedTuple):
    """A GPU's curve: its key in the history and its name."""

    key: str
    name: str


class HistoryPlot(QWidget):
    """The plot with its choice of time span and its legend."""

    def __init__(self, jobs: Jobs, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._jobs = jobs
        self._plot: Any = None
        self._ranges = (0.0, 0.0)
        self._curves: dict[str, Any] = {}
        self._lines: list[Any] = []
        self._marks: list[Any] = []
        self._wanted: tuple[Curve, ...] = ()
        self._references: tuple[Line, ...] = ()
        self._unit: ByteUnit = "GiB"
        self._history: History | None = None
        self._now = 0.0
        self.span = QComboBox(self)
        self.span.setAccessibleName("Time span of the plot")
        for name, seconds in SPANS:
            self.span.addItem(name, seconds)
        self.span.setCurrentIndex(1)
        self.span.currentIndexChanged.connect(self._refresh)
        self.legend = QLabel(self)
        self.legend.setTextFormat(Qt.TextFormat.RichText)
        self.legend.setProperty("role", "muted")
        self.legend.setWordWrap(True)
        self.legend.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Preferred)
        self.head = QWidget(self)  # whoever shows the plot may put it elsewhere
        head = QHBoxLayout(self.head)
        head.setContentsMargins(0, 0, 0, 0)
        head.addWidget(self.legend, 1)
        head.addWidget(self.span)
        self._column = QVBoxLayout(self)
        self._column.setContentsMargins(0, 2, 0, 0)
        self._column.setSpacing(2)
        self._column.addWidget(self.head)
        self.span.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self._space = PlotPlace(self)
        self._space.setMinimumHeight(LEAST_PLOT)
        self._column.addWidget(self._space, 1)
        self.setAccessibleName("Memory in use over time")

    # -- what is shown --------------------------------------------------------------------------------------------

    def set_history(self, history: History, now: float, curves: Sequence[Curve]) -> None:
        """The samples up to `now` (monotonic seconds)."""
        self._history, self._now = history, now
        if tuple(curves) != self._wanted:
            self._wanted = tuple(curves)
            self._remake()
        self._refresh()

    def set_references(self, lines: Sequence[Line]) -> None:
        """The plan's lines for the chosen GPU."""
        if tuple(lines) != self._references:
            self._references = tuple(lines)
            self._remake()
            self._refresh()

    def set_unit(self, unit: ByteUnit) -> None:
        """GiB or GB."""
        if unit != self._unit:
            self._unit = unit
            self._remake()
            self._refresh()

    @property
    def made(self) -> bool:
        """Whether the plot has been built."""
        return self._plot is not None

    # -- building -------------------------------------------------------------------------------------------------

    def showEvent(self, event: QShowEvent) -> None:
        """Builds the plot when it is first seen; the library is imported off the window's thread (half a second)."""
        super().showEvent(event)
        if self._plot is None:
            self._jobs.submit("Load the plot", load, self._build, self._space.failed, key="plot")
        else:
            self._remake()
            self._refresh()

    def _build(self, pyqtgraph: Any) -> None:
        if self._plot is not None:
            return
        plot = self._plot = self._space.give_way(pyqtgraph, self._column, name="Memory in use over time", left=_LEFT)
        plot.setMinimumHeight(LEAST_PLOT)
        self._remake()
        self._refresh()

    def _remake(self) -> None:
        """Curves, lines and colours anew: after a change of devices, plan, unit or theme."""
        tokens = tokens_of(self)
        self._say_legend(tokens)
        if self._plot is None:
            return
        plot = self._plot
        plot.setBackground(self.palette().window().color())
        for name in ("left", "bottom"):
            axis = plot.getAxis(name)
            axis.setPen(QColor(tokens.border))
            axis.setTextPen(QColor(tokens.muted))
            axis.setStyle(tickFont=self.font(), tickLength=-4)
        plot.getAxis("left").setWidth(room_for((_LONGEST_VALUE,), self.fontMetrics(), _LEFT))
        plot.getAxis("bottom").setHeight(self.fontMetrics().height() + _BELOW)
        for item in [*self._curves.values(), *self._lines, *self._marks]:
            plot.removeItem(item)
        self._lines = [self._reference(line, tokens) for line in self._references]
        self._ranges = (0.0, 0.0)
        self._marks = []
        self._curves = {curve.key: self._curve(i, tokens) for i, curve in enumerate(self._wanted)}

    def _curve(self, number: int, tokens: Tokens) -> Any:
        import pyqtgraph

        # The bare curve item: half the cost of the full data item, whose features are not needed here.
        made = pyqtgraph.PlotCurveItem(pen=_pen(tokens, number), connect="finite")
        self._plot.addItem(made)
        return made

    def _reference(self, line: Line, tokens: Tokens) -> Any:
        import pyqtgraph

        style = Qt.PenStyle.DashLine if line.strong else Qt.PenStyle.DotLine
        at = 0 if line.below else 1
        made = pyqtgraph.InfiniteLine(
            line.bytes / _BYTES[self._unit], angle=0, pen=_plain(tokens.text if line.strong else tokens.outline, style),
            label=line.text,
            labelOpts={"position": 0.02, "anchors": [(0, at), (0, at)], "color": tokens.muted, "movable": False},
        )  # fmt: skip
        self._plot.addItem(made)
        return made

    def _say_legend(self, tokens: Tokens) -> None:
        parts = []
        for i, curve in enumerate(self._wanted):
            sample = f'<span style="color:{_ink(tokens, i)}">{_SAMPLES[i % len(_SAMPLES)]}</span>'
            parts.append(f"{sample}&nbsp;{rich(curve.name).replace(' ', '&nbsp;')}")
        self.legend.setWordWrap(len(self._wanted) > _ONE_LINE)
        self.legend.setText(f"in use, {self._unit} &nbsp; " + " &nbsp; ".join(parts))

    # -- drawing --------------------------------------------------------------------------------------------------

    def _refresh(self) -> None:
        if self._plot is None or self._history is None or not self.isVisible():
            return
        import numpy as np

        seconds = float(self.span.currentData())
        window = self._history.window(seconds, self._now)
        times = np.frombuffer(window.times, dtype=np.float64) - self._now if window.times else np.zeros(0)
        step = max(1, len(times) // _MOST_POINTS)
        divisor = _BYTES[self._unit] / MIB
        top = max((line.bytes / _BYTES[self._unit] for line in self._references), default=0.0)
        for key, curve in self._curves.items():
            series = window.series.get(key)
            values = np.frombuffer(series, dtype=np.float32) / divisor if series else np.zeros(0)
            if step > 1 and len(values):
                whole = len(values) // step * step
                # The largest of each bucket: a peak must not vanish between two drawn points.
                values = np.fmax.reduce(values[-whole:].reshape(-1, step), axis=1)
                curve.setData(times[-whole:].reshape(-1, step)[:, -1], values)
            else:
                curve.setData(times[: len(values)], values)
            if len(values):
                top = max(top, float(np.nanmax(values)) if not np.isnan(values).all() else 0.0)
        shown = shown_seconds(seconds, -float(times[0]) if len(times) else 0.0)
        self._set_ranges(shown, top)
        self._draw_marks(shown)
        if QAccessible.isActive():
            self._plot.setAccessibleDescription(figures.shown(self._in_words(window, seconds)))

    def _set_ranges(self, shown: float, top: float) -> None:
        """Axes for `shown` seconds and `top` units; only when they change, since new axes cost more than curves."""
        label = self.fontMetrics().height() + 4  # the topmost line's name stands above it
        room = max(self._plot.height() - label - 30, label)
        ranges = (shown, max(top, 0.001) * (1 + label / room))
        if ranges != self._ranges:
            self._ranges = ranges
            self._plot.setXRange(-shown, shown * 0.05, padding=0)
            self._plot.setYRange(0, ranges[1], padding=0)
            self._plot.getAxis("bottom").setTicks([time_ticks(shown)])
            self._name_lines(2 * label * ranges[1] / room)

    def _name_lines(self, apart: float) -> None:
        """Lesser lines are named where they stand far enough (in units) from the names of the strong ones."""
        unit = _BYTES[self._unit]
        strong = [line.bytes / unit for line in self._references if line.strong]
        for line, item in zip(self._references, self._lines, strict=True):
            item.label.setVisible(line.strong or all(abs(line.bytes / unit - s) >= apart for s in strong))

    def _in_words(self, window: Window, seconds: float) -> str:
        """What the curves show, for a screen reader."""
        said = []
        for curve in self._wanted:
            seen = [v * MIB for v in window.series.get(curve.key, ()) if v == v]
            if seen:
                now, low, high = (format_bytes(v, self._unit) for v in (seen[-1], min(seen), max(seen)))
                said.append(f"{curve.name}: {now} now, between {low} and {high} in the last {seconds:.0f} s")
        return ". ".join(said)

    def _draw_marks(self, seconds: float) -> None:
        import pyqtgraph

        history = self._history
        marks: list[Mark] = [m for m in history.marks if self._now - seconds <= m.time] if history else []
        tokens = tokens_of(self)
        while len(self._marks) < len(marks):
            made = pyqtgraph.InfiniteLine(
                0, angle=90, pen=_plain(tokens.outline, Qt.PenStyle.DotLine), label=" ",
                labelOpts={
                    "position": 0.03, "rotateAxis": (1, 0), "anchors": [(0, 1), (0, 1)], "color": tokens.text,
                    "movable": False,
                },
            )  # fmt: skip
            self._plot.addItem(made)
            self._marks.append(made)
        while len(self._marks) > len(marks):
            self._plot.removeItem(self._marks.pop())
        room = self.fontMetrics().height() * seconds / max(self._plot.width() - 46, 1)
        last = float("inf")
        for item, mark in reversed(list(zip(self._marks, marks, strict=True))):
            at = mark.time - self._now
            item.setValue(at)
            # Marks that stand too close keep their line; the newest of them is named.
            named = last - at >= room
            item.label.setVisible(named)
            if named:
                item.label.setFormat(mark.text)
                last = at

    def changeEvent(self, event: QEvent) -> None:
        """Another theme or font."""
        if event.type() in (QEvent.Type.PaletteChange, QEvent.Type.StyleChange, QEvent.Type.FontChange):
            self._remake()
            self._refresh()
        super().changeEvent(event)


def shown_seconds(span: float, seen: float) -> float:
    """How far back the plot reaches: no further than there is something to see, in steps that do not jitter."""
    return min(span, next((float(s) for s in (30, 60, 120, 300, 900, 3600, 14_400) if seen <= s), span))


def time_ticks(seconds: float) -> list[tuple[float, str]]:
    """Marks of the time axis: (seconds before now as a negative number, text)."""
    step = next(s for s in (10, 20, 60, 180, 600, 3600, 3600 * 4) if seconds / s <= 6)
    unit, size = ("s", 1) if step < 60 else ("min", 60) if step < 3600 else ("h", 3600)
    found = [(0.0, "now")]
    at = step
    while at < seconds:
        found.append((-float(at), f"−{at // size} {unit}"))
        at += step
    return found


def _ink(tokens: Tokens, number: int) -> str:
    return tokens.segments[_INKS[number % len(_INKS)]].fill


def _pen(tokens: Tokens, number: int) -> QPen:
    return _plain(_ink(tokens, number), _STYLES[number % len(_STYLES)])


def _plain(colour: str, style: Qt.PenStyle) -> QPen:
    pen = QPen(QColor(colour), 1.0, style)
    pen.setCosmetic(True)
    return pen
