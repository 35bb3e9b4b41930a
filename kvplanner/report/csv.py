"""A plan as CSV: a row for each part of each device's memory, for spreadsheets and scripts.

Rows whose state is "in use" add up to the device's total row; a plan that fails is told at the stage where it fails,
and what start-up does not reach, or has released by then, is marked so.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from typing import Final

from kvplanner.engine.plan import Plan
from kvplanner.printable import inert
from kvplanner.report.devices import Part, group_title, parts
from kvplanner.report.facts import engine_title, weights_text
from kvplanner.report.sentences import summary
from kvplanner.sized_text import sizes_in
from kvplanner.units import ByteUnit, in_unit

_FITS: Final[dict[bool | None, str]] = {True: "yes", False: "no", None: "cannot tell"}


def csv_text(plan: Plan, unit: ByteUnit = "GiB") -> str:
    """The plan as CSV (RFC 4180), sizes in bytes and in the unit, the verdict in every row."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(
        ("device", "gpu", "role", "segment", "state", "bytes", "low_bytes", "high_bytes", unit, "share", "basis",
         "formula", "model", "engine", "fits", "fails_at", "verdict", "weights", "draft_model")
    )  # fmt: skip
    said = (
        plan.request.model.id, f"{engine_title(plan)} {plan.engine_version}", _FITS[plan.fits], plan.stage or "",
        sizes_in(summary(plan), unit), weights_text(plan), plan.request.draft.id if plan.request.draft else "",
    )  # fmt: skip
    # Names come from files, and a spreadsheet opens this.
    writer.writerows(
        [inert(cell) if isinstance(cell, str) else cell for cell in (*row, *said)] for row in _rows(plan, unit)
    )
    return out.getvalue()


def _rows(plan: Plan, unit: ByteUnit) -> Iterator[tuple[object, ...]]:
    for position, device in enumerate(plan.devices):
        named = (group_title(plan, (position,)), device.device.gpu.name, device.role)
        for part in parts(plan, position):
            share = f"{part.bytes / device.total_bytes:.4f}" if device.total_bytes else ""
            yield (*named, part.kind or part.state, part.state, part.bytes, *_sure(part, unit, share))


def _sure(part: Part, unit: ByteUnit, share: str) -> tuple[object, ...]:
    """From the range on."""
    size = f"{in_unit(part.bytes, unit):.3f}"
    estimate = part.estimate
    if estimate is None:
        return "", "", size, share, "", ""
    return estimate.low, estimate.high, size, share, estimate.basis, estimate.in_words()
