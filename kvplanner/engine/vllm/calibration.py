"""Measured values of neighbouring runs narrow an estimate's band.

A neighbour shares the rule era, the GPU and the model family (its config's model_type). Exact estimates stay as
they are; a measurement that contradicts the law moves the estimate, widens the band over both, and says so.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kvplanner.engine.request import Calibration
from kvplanner.engine.segment import SegmentKind
from kvplanner.engine.vllm.gpu import Gpu
from kvplanner.engine.vllm.settings import Settings
from kvplanner.estimate import Estimate, Input, banded
from kvplanner.model.model import Model
from kvplanner.sized_text import SizedText, size_mark
from kvplanner.units import MIB, counted

# One run differs from the next by about this much, and by this share of the value.
_RUN_TO_RUN: Final = 48 * MIB
_RUN_TO_RUN_SHARE: Final = 0.03


def neighbours(
    kind: SegmentKind, calibrations: Iterable[Calibration], model: Model, settings: Settings, gpu: Gpu
) -> tuple[Calibration, ...]:
    """The measurements of a segment kind that speak for this plan. An empty era, gpu or family fits any."""
    here = (settings.era.name, gpu.name, model.spec.model_type)
    return tuple(
        c
        for c in calibrations
        if c.kind == kind
        and all(not said or said == is_ for said, is_ in zip((c.era, c.gpu, c.family), here, strict=True))
    )


def calibrate(
    estimate: Estimate,
    kind: SegmentKind,
    calibrations: Iterable[Calibration],
    model: Model,
    settings: Settings,
    gpu: Gpu,
) -> Estimate:
    """The estimate with what neighbouring runs measured, in bytes; unchanged without neighbours or when exact."""
    found = neighbours(kind, calibrations, model, settings, gpu)
    if not found or estimate.basis in ("exact", "measured") or estimate.low == estimate.high:
        return estimate
    from statistics import median  # 5 ms of imports that most plans never need

    sizes = [c.bytes for c in found]
    centre = round(median(sizes))
    spread = max(max(sizes) - min(sizes), _RUN_TO_RUN, round(_RUN_TO_RUN_SHARE * centre))
    low, high = centre - spread, centre + spread
    sources = ", ".join(dict.fromkeys(c.source for c in found))
    remark = f"calibrated by {counted(len(found), 'measured run', 'measured runs')} ({sources})"
    if high < estimate.low or low > estimate.high:
        law = size_mark(estimate.value)
        low, high = min(low, estimate.low), max(high, estimate.high)
        remark += f"; they contradict the general law, which says {law}"
    else:
        low, high = max(low, estimate.low), min(high, estimate.high)
    value = min(max(centre, low), high)
    law_input = Input("law", estimate.value, "B", estimate.in_words())
    return banded(
        value, low, high, "calibrated", "{measured nearby}", Input("measured nearby", centre, "B", sources), law_input
    ).with_notes(*estimate.notes, SizedText(remark))
