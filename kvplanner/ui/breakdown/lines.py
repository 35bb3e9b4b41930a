"""The rows of the breakdown table: segments, total, what is missing, what is not reached; no Qt."""

from __future__ import annotations

from kvplanner.engine.plan import Plan
from kvplanner.engine.segment import SegmentKind
from kvplanner.estimate import BASIS_MEANING
from kvplanner.record import NamedTuple
from kvplanner.report import words
from kvplanner.report.devices import Part, parts, percent, short
from kvplanner.report.segments import heading_of, meaning_of
from kvplanner.report.sentences import summary
from kvplanner.report.words import Unit
from kvplanner.sized_text import sizes_in


class Line(NamedTuple):
    """One row: a segment, or with kind None a sum or what is missing. later: not there at the failing stage."""

    kind: SegmentKind | None
    name: str
    size: str
    range: str
    share: str
    basis: str
    tip: str
    missing: bool = False
    later: bool = False


def lines(plan: Plan, position: int, unit: Unit) -> tuple[Line, ...]:
    """The rows of a device's table: its segments in order, the total, what is missing, what is not reached."""
    return tuple(_line(plan, position, part, unit) for part in parts(plan, position))


def _line(plan: Plan, position: int, part: Part, unit: Unit) -> Line:
    if part.kind is None or part.estimate is None:
        return _sum(plan, position, part, unit)
    later = part.state != "in use"
    tip = f"{meaning_of(plan, position, part.kind)}\n{BASIS_MEANING[part.estimate.basis]}"
    return Line(
        part.kind,
        heading_of(part.kind),
        words.number(part.bytes, unit),
        words.span(part.estimate, unit),
        "" if later else percent(part.bytes, plan.devices[position].total_bytes),
        part.basis,
        f"{tip}\n{part.state} where start-up fails" if later else tip,
        later=later,
    )


def _sum(plan: Plan, position: int, part: Part, unit: Unit) -> Line:
    size = words.number(part.bytes, unit) if part.bytes or part.state != "not planned" else "not known"
    if part.state == "not planned":
        return Line(None, "Not planned", size, "", "", "", sizes_in(summary(plan), unit))
    share = percent(part.bytes, plan.devices[position].total_bytes)
    if part.state == "missing":
        return Line(None, "Missing", size, "", share, "", short(part.bytes, part.in_all, unit), missing=True)
    return Line(None, "Total", size, "", share, "", _in_budget(plan, position, unit))


def _in_budget(plan: Plan, position: int, unit: Unit) -> str:
    """How much of the budget is used, "" where the budget decides nothing."""
    device = plan.devices[position]
    if not device.budget or plan.cache_given:
        return ""
    inside = sum(s.bytes for s in device.in_use if s.in_budget)
    return f"{words.number(inside, unit)} {unit} lie in the budget: {percent(inside, device.budget.value)} of it"
