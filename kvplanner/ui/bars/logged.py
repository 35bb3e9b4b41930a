"""A log's figures as what is drawn under the bars: in the plan's order, each part with its measured or planned size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from kvplanner.diagnose.stages import Logged
from kvplanner.report.segments import name_of
from kvplanner.report.words import Unit, number
from kvplanner.ui.bars.shapes import Measured, MeasuredPart

_KINDS: dict[str, Literal["driver", "other"]] = {"driver_reserved": "driver", "other": "other"}


def strips(logged: Sequence[Logged], unit: Unit) -> tuple[Measured, ...]:
    """A strip for each device that the log has figures of."""
    return tuple(Measured(one.device, tuple(_parts(one, unit)), _line(one, unit)) for one in logged)


def _parts(one: Logged, unit: Unit) -> Iterator[MeasuredPart]:
    for part in one.parts:
        named = f"{name_of(part.kind)} {number(part.bytes, unit)} {unit}"
        yield MeasuredPart(
            _KINDS.get(part.kind, "engine"),
            part.bytes,
            f"the log: {named}" if part.measured else f"as planned: {named}",
        )


def _line(one: Logged, unit: Unit) -> str:
    told = " · ".join(f"{name_of(p.kind)} {number(p.bytes, unit)}" for p in one.parts if p.measured)
    return f"the log: {told} {unit}"
