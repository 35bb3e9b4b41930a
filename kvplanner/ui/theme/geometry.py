"""Rectangles, axis ticks, pattern lines and the roles of texts, in plain numbers."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import floor, log10
from typing import Final, Literal

from kvplanner.record import NamedTuple
from kvplanner.ui.theme.palette import Pattern

Line = tuple[float, float, float, float]
Role = Literal["title", "text", "small", "small_bold"]
Measure = Callable[[str, Role], float]  # the width of a text

TAB_AIR, TAB_TIGHT = 9, 5  # pixels on each side of a tab's title, usually and where room is scarce
TIGHT: Final = "tight"  # the property of a tab bar where it is
USUAL_LINE: Final = 15  # pixels of a line of text for which widths were drawn


class Rect(NamedTuple):
    """A rectangle in logical pixels."""

    x: float
    y: float
    w: float
    h: float

    @property
    def right(self) -> float:
        """The x just past it."""
        return self.x + self.w

    @property
    def bottom(self) -> float:
        """The y just past it."""
        return self.y + self.h

    def holds(self, x: float, y: float) -> bool:
        """Whether a point lies in it."""
        return self.x <= x < self.right and self.y <= y < self.bottom


def tick_step(end: float, pixels: float, spacing: float) -> float:
    """The smallest step of 1, 2 or 5 × 10^n that leaves `spacing` pixels between the ticks of an axis from 0 to end."""
    if end <= 0 or pixels <= 0:
        return 1.0
    wanted = end * spacing / pixels
    power = 10.0 ** floor(log10(wanted))
    return next(f * power for f in (1, 2, 5, 10) if f * power >= wanted * 0.999)


def ticks(end: float, pixels: float, spacing: float = 80) -> tuple[float, ...]:
    """Round values from 0 up to `end`."""
    step = tick_step(end, pixels, spacing)
    return tuple(step * i for i in range(int(end / step + 1e-9) + 1))


def tick_text(value: float, step: float) -> str:
    """A tick's text with no more digits than its step needs."""
    digits = max(0, -floor(log10(step))) if step < 1 else 0
    return f"{value:,.{digits}f}"


@lru_cache(maxsize=512)
def pattern_lines(pattern: Pattern, width: float, height: float, pitch: float = 7.0) -> tuple[Line, ...]:
    """The lines that fill a rectangle at the origin with a pattern, cut at its edges.

    "dots" are rows of horizontal lines, to be drawn with a dotted pen.
    """
    if width < 1 or height < 1 or pattern in ("solid", "empty"):
        return ()
    if pattern == "dots":
        return tuple((2.0, y, width - 1, y) for y in steps(4.0, height - 1, 8.0)) if width > 3 else ()
    made: list[Line] = []
    if pattern in ("horizontal", "grid"):
        made += [(0.0, y, width, y) for y in steps(4.0, height, 5.0)]
    if pattern in ("vertical", "grid"):
        made += [(x, 0.0, x, height) for x in steps(3.0, width, 5.0)]
    if pattern in ("up", "cross"):
        made += _diagonals(width, height, pitch, rising=True)
    if pattern in ("down", "cross"):
        made += _diagonals(width, height, pitch, rising=False)
    return tuple(made)


def steps(start: float, end: float, step: float) -> list[float]:
    """start, start + step ... below end."""
    return [start + step * i for i in range(max(0, int((end - start) / step + 0.999999)))]


def _diagonals(width: float, height: float, pitch: float, *, rising: bool) -> list[Line]:
    lines: list[Line] = []
    for offset in steps(pitch / 2, width + height, pitch):
        x0, y0 = (offset, 0.0) if offset <= width else (width, offset - width)
        x1, y1 = (0.0, offset) if offset <= height else (offset - height, height)
        lines.append((x1, y1, x0, y0) if rising else (x1, height - y1, x0, height - y0))
    return lines


def grown(width: int, line_height: int, share: float = 0.7) -> int:
    """The width of an input for letters of this height; `width` was drawn for the usual ones.

    share: of the letters' growth that it takes, as far as the form has room.
    """
    return round(width * (1 + max(line_height / USUAL_LINE - 1, 0.0) * share))


def fitted(text: str, width: float, measure: Measure, role: Role = "small") -> str:
    """The text, cut short with "…" where it is wider than `width`."""
    if measure(text, role) <= width:
        return text
    keep = next((n for n in range(len(text) - 1, 0, -1) if measure(text[:n] + "…", role) <= width), 0)
    return f"{text[:keep].rstrip()}…" if keep else ""
