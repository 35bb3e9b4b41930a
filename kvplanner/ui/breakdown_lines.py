"""The rows of the breakdown table: segments, total, what is missing, what is not reached; no Qt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kvplanner.engine.base import DevicePlan, Plan, Segment, SegmentKind
from kvplanner.estimate import BASIS_MEANING
from kvplanner.plan.held import budget_kinds, cache_is_given, drawn, lack_of
from kvplanner.ui.bars import words
from kvplanner.ui.bars.fold import group_of
from kvplanner.ui.bars.lack import lack_text
from kvplanner.ui.bars.words import Unit


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
    """The rows of a device's table: its segments in order, the budget's use and the total, what is missing.

    Where the plan fails the total is that of the failing stage: what comes later stands below it.
    """
    device = plan.devices[position]
    if plan.fits is None and device.segment("weights") is None:
        size = words.number(device.total_bytes, unit) if device.total_bytes else "not known"
        return (Line(None, "Not planned", size, "", "", "", plan.summary),)
    shown = drawn(plan, device)
    made = [_line(plan, position, segment, unit) for segment in shown]
    if made:
        made.append(_total(plan, device, shown, unit))
    lack = lack_of(plan, group_of(plan, position))
    if lack is not None:
        share = words.percent(lack.bytes, device.total_bytes)
        size = words.number(lack.bytes, unit)
        made.append(Line(None, "Missing", size, "", share, "", lack_text(lack, unit), missing=True))
    made += [_later(plan, position, s, unit) for s in device.segments if s not in shown]
    return tuple(made)


def _line(plan: Plan, position: int, segment: Segment, unit: Unit) -> Line:
    estimate = segment.estimate
    return Line(
        segment.kind,
        words.NAMES[segment.kind],
        words.number(segment.bytes, unit),
        words.band(estimate, unit),
        words.percent(segment.bytes, plan.devices[position].total_bytes),
        estimate.basis,
        f"{words.meaning(plan, position, segment.kind)}\n{BASIS_MEANING[estimate.basis]}",
    )


def _later(plan: Plan, position: int, segment: Segment, unit: Unit) -> Line:
    """A segment that is not in use at the failing stage."""
    released = segment.kind == "activations" and plan.stage in ("kv_cache_allocation", "graph_capture")
    state = "released" if released else "not reached"
    line = _line(plan, position, segment, unit)
    return line._replace(share="", basis=state, tip=f"{line.tip}\n{state} where start-up fails", later=True)


def _total(plan: Plan, device: DevicePlan, shown: Sequence[Segment], unit: Unit) -> Line:
    total = sum(s.bytes for s in shown)
    kinds = budget_kinds(plan, device)
    inside = sum(s.bytes for s in shown if s.kind in kinds)
    tip = ""
    if device.budget and not cache_is_given(plan):
        tip = (
            f"{words.number(inside, unit)} {unit} lie in the budget: {words.percent(inside, device.budget.value)} of it"
        )
    return Line(None, "Total", words.number(total, unit), "", words.percent(total, device.total_bytes), "", tip)
