"""An engine's own answer beside the plan's: as rows, as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kvplanner.engine.plan import Plan
from kvplanner.engine.probe import Answer
from kvplanner.engine.segment import SegmentKind
from kvplanner.record import NamedTuple
from kvplanner.report.segments import words_of
from kvplanner.report.words import Unit, device_name, size


class Row(NamedTuple):
    """One figure. planned: None where the plan has no such device. agrees: as far as the engine's rounding tells, or
    within the plan's range."""

    device: str
    kind: SegmentKind
    name: str
    planned: int | None
    engine: int
    agrees: bool


def rows(plan: Plan, answer: Answer) -> Iterator[Row]:
    """Both answers for each device and kind, without what is nothing in both."""
    for one in answer.rows:
        held = one.planned
        planned = None if one.position is None else held.value if held is not None else 0
        if not planned and not one.bytes:
            continue
        low, high = (held.low, held.high) if held is not None else (0, 0)
        agrees = one.position is not None and low - one.step_bytes < one.bytes <= high
        name = device_name(plan, (one.position,)) if one.position is not None else one.device
        yield Row(name, one.kind, words_of(one.kind, plan.request.engine).name, planned, one.bytes, agrees)


def lines(plan: Plan, answer: Answer, unit: Unit) -> list[str]:
    """The comparison as text."""
    found = list(rows(plan, answer))
    table = [("", "", "planned", "engine", "")]  # whose program it is, the sentence below says
    for row in found:
        mine = size(row.planned, unit) if row.planned is not None else "not planned"
        table.append((row.device, row.name, mine, size(row.engine, unit), _difference(row)))
    widths = [max(len(line[column]) for line in table) for column in range(5)]
    text = [
        "  ".join(
            cell.rjust(width) if column in (2, 3, 4) else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in table
    ]
    return [*text, summary(found, answer), *(f"{note}." for note in answer.notes), f"Asked: {answer.command}"]


def summary(found: list[Row], answer: Answer) -> str:
    """How many figures agree, in a sentence."""
    compared = [row for row in found if row.planned is not None]
    agreeing = sum(row.agrees for row in compared)
    if not compared:
        return f"{answer.program} answers for no device of this plan."
    if agreeing == len(compared):
        return f"{answer.program} agrees: every figure lies within the plan's range."
    return f"{answer.program} agrees on {agreeing} of {len(compared)} figures."


def _difference(row: Row) -> str:
    if row.planned is None:
        return ""
    if row.agrees:
        return "agrees"
    if not row.engine:
        return "differs"
    return f"{100 * (row.planned - row.engine) / row.engine:+.1f} %"


def to_json(plan: Plan, answer: Answer) -> dict[str, Any]:
    """As `cross_check` of a plan's JSON: sizes in bytes."""
    return {
        "program": answer.program,
        "command": answer.command,
        "rows": [
            {"device": row.device, "kind": row.kind, "planned_bytes": row.planned, "engine_bytes": row.engine,
             "agrees": row.agrees}
            for row in rows(plan, answer)
        ],
        "notes": list(answer.notes),
    }  # fmt: skip
