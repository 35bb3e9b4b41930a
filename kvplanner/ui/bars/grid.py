"""The columns that all rows of the bars share, and texts that are cut to a width."""

from __future__ import annotations

from kvplanner.engine.plan import Plan
from kvplanner.record import NamedTuple
from kvplanner.ui.bars.shapes import Density, View
from kvplanner.ui.theme.geometry import Measure, Role


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


def fitted(text: str, width: float, measure: Measure, role: Role = "small") -> str:
    """The text, cut short with "…" where it is wider than `width`."""
    if measure(text, role) <= width:
        return text
    keep = next((n for n in range(len(text) - 1, 0, -1) if measure(text[:n] + "…", role) <= width), 0)
    return f"{text[:keep].rstrip()}…" if keep else ""
