"""What the bars' layout is made of: rows, cells, brackets, whiskers, texts; plain numbers in logical pixels."""

from __future__ import annotations

from typing import Final, Literal

from kvplanner.engine.plan import Plan
from kvplanner.engine.segment import SegmentKind
from kvplanner.record import NamedTuple
from kvplanner.report.words import Unit
from kvplanner.ui.theme.geometry import Measure, Rect, Role


class Density(NamedTuple):
    """Sizes of a row: the bar, the bracket's zone above it with and without text, the whiskers' below it, the gap."""

    bar: float
    bracket: float
    bracket_text: float
    whiskers: float
    gap: float
    strip: float
    strip_text: float
    two_lines: bool


THICK: Final = Density(54, 12, 26, 14, 10, 11, 18, True)  # for tall windows
COMFORT: Final = Density(34, 10, 24, 12, 6, 9, 17, True)
MEDIUM: Final = Density(24, 9, 22, 11, 3, 8, 16, False)
COMPACT: Final = Density(17, 7, 20, 9, 1, 7, 15, False)
PAD: Final = 7.0  # beside a label in its segment
HEADER: Final = 26.0
AXIS: Final = 24.0


class Cell(NamedTuple):
    """A segment: device is a position in plan.devices (the first of a folded group)."""

    device: int
    kind: SegmentKind
    rect: Rect
    start_bytes: int
    bytes: int
    label: str = ""


class Text(NamedTuple):
    """A text and where it stands; align: which end of the rectangle it keeps to."""

    rect: Rect
    text: str
    role: Role
    align: Literal["left", "right", "center"] = "left"


class Bracket(NamedTuple):
    """The budget: from left to right at height y, with its text."""

    left: float
    right: float
    y: float
    text: Text | None


class Lack(NamedTuple):
    """What does not fit. asked: nothing stands there yet, it is only wanted."""

    rect: Rect
    text: Text
    asked: bool


class Whisker(NamedTuple):
    """An estimate's range about a border, at height y under the bar."""

    kind: SegmentKind
    left: float
    middle: float
    right: float
    y: float


class MeasuredPart(NamedTuple):
    """A part of measured use: "driver", "other", "engine" or "free"."""

    kind: Literal["driver", "other", "engine"]
    bytes: int
    name: str


class Measured(NamedTuple):
    """Measured use of one device (a position in plan.devices), stacked in the plan's order, and told in a line."""

    device: int
    parts: tuple[MeasuredPart, ...]
    text: str


class Strip(NamedTuple):
    """Measured use under a bar."""

    parts: tuple[tuple[MeasuredPart, Rect], ...]
    text: Text


class Row(NamedTuple):
    """One bar: of one device, or of several alike. gap: what the white of a failing plan is."""

    positions: tuple[int, ...]
    rect: Rect
    title: Text
    detail: Text
    toggle: Rect | None
    opened: bool
    frame: Rect
    cells: tuple[Cell, ...]
    bracket: Bracket | None
    lack: Lack | None
    whiskers: tuple[Whisker, ...]
    ghost: tuple[Cell, ...]
    strip: Strip | None
    capacity: Text | None
    gap: Text | None
    cut: bool
    fill: Rect | None


class IdleRow(NamedTuple):
    """GPUs that the plan leaves idle: an empty bar, and in it that it is so."""

    rect: Rect
    frame: Rect
    title: Text
    text: Text


class Tick(NamedTuple):
    """A mark on the axis; text None where another one stands there; capacity: the bars should have ended here."""

    x: float
    text: Text | None
    capacity: bool = False


class Layout(NamedTuple):
    """Everything to draw. scale: pixels a byte; delta: the room for the change of tokens."""

    width: float
    height: float
    header: Rect
    delta: Text | None
    rows: tuple[Row, ...]
    idle: tuple[IdleRow, ...]
    ticks: tuple[Tick, ...]
    axis_y: float
    x0: float
    scale: float

    def cell_at(self, x: float, y: float) -> Cell | None:
        """The cell under a point; slivers answer for the pixels about them."""
        for row in self.rows:
            if row.frame.y - 2 <= y < row.frame.bottom + 2:
                near = [c for c in row.cells if c.rect.x - 3 <= x < c.rect.right + 3]
                return min(near, key=lambda c: (_gap(c.rect, x), c.rect.w), default=None)
        return None

    def row_at(self, y: float) -> Row | None:
        """The row at a height."""
        return next((r for r in self.rows if r.rect.y <= y < r.rect.bottom), None)

    def row_of(self, device: int) -> Row | None:
        """The row that shows a device."""
        return next((r for r in self.rows if device in r.positions), None)


class View(NamedTuple):
    """What is shown besides the plan: groups that are open (their first position), the plan before the last edit,
    measured use, the tokens that the edit brought, and how full a running server's KV cache is (0–1).
    still: a picture in a file, where nothing opens."""

    unit: Unit = "GiB"
    opened: frozenset[int] = frozenset()
    before: Plan | None = None
    measured: tuple[Measured, ...] = ()
    delta: str = ""
    fill: float | None = None
    still: bool = False


class Grid(NamedTuple):
    """The columns that all rows share: names up to x0, bars from there to x1. scale: pixels of a byte."""

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
        """Where a number of bytes lies on the axis."""
        return self.x0 + value * self.scale


def _gap(rect: Rect, x: float) -> float:
    return max(rect.x - x, x - rect.right, 0.0)
