"""What runs measured, carried over to the plans of their neighbourhood: it replaces estimates and narrows their bands.

A neighbour has the same engine, rules, GPU, driver branch (where it is known), ranks that share the model and, for what
depends on the model, model family (its config's model_type); runs of the plan's own release go before others.
What a run differs by from the rules' value for that very run is carried over: in proportion for what grows with the
batch (activations, graphs, compute buffers), as a difference for the rest. Exact and given values stay as they are; a
measurement that contradicts the law moves the estimate, widens the band over both, and says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from kvplanner.engine.request import Calibration, MeasuredKind
from kvplanner.estimate import Estimate, Input, banded
from kvplanner.record import NamedTuple
from kvplanner.sized_text import SizedText, size_mark
from kvplanner.units import MIB, counted

# One run differs from the next by about this much, and by this share of the value.
_RUN_TO_RUN: Final = 48 * MIB
_RUN_TO_RUN_SHARE: Final = 0.03
# Of what is carried over to other settings than the run's, this share stays in doubt.
_CARRIED_SHARE: Final = 0.25
# No run changes another's estimate by more than this factor in proportion: beyond it the law does not describe it.
_MOST_RATIO: Final = 4.0
PROPORTIONAL: Final[frozenset[MeasuredKind]] = frozenset(
    {"activations", "cuda_graphs", "cuda_graphs_estimated", "compute"}
)
# What depends on the GPU and the engine alone.
OF_ANY_MODEL: Final[frozenset[MeasuredKind]] = frozenset({"runtime_outside"})


class Place(NamedTuple):
    """Where a plan stands: its engine, rule era, GPU, model family, the ranks that share the model, the GPU's driver
    ("" where it is not known) and the engine's release.
    """

    engine: str
    era: str
    gpu: str
    family: str
    ranks: str = ""
    driver: str = ""
    release: str = ""


def ranks(tensor: int, pipeline: int = 1) -> str:
    """How many ranks share a model, in words: "2 ranks", "2 ranks × 4 stages"."""
    return f"{counted(tensor, 'rank', 'ranks')}{f' × {pipeline} stages' if pipeline > 1 else ''}"


def family_of(model_type: str, dtype: str = "") -> str:
    """The family that activations and graphs depend on: twice as wide ones are a family of their own."""
    return f"{model_type}, float32" if dtype in ("float32", "float") else model_type


def release_of(version: str) -> str:
    """A release without what a build adds to it: "0.24.0" of "v0.24.0+cu129", "10012" of "b10012"."""
    found = re.match(r"[vb]?(\d+(?:\.\d+){0,2})", version)
    return found[1] if found else ""


def neighbours(kind: MeasuredKind, calibrations: Iterable[Calibration], here: Place) -> tuple[Calibration, ...]:
    """The measurements of a kind that speak for a plan, those of its own release alone where there are any.

    An empty engine, era, GPU, family or ranks fits any; so does a driver that is not known on both sides.
    """
    found = tuple(c for c in calibrations if c.kind == kind and _speaks(c, here))
    own = tuple(c for c in found if c.release and c.release == here.release)
    return own or found


def _speaks(run: Calibration, here: Place) -> bool:
    said = (run.engine, run.era, run.gpu, run.family, run.ranks)
    if any(mine and mine != other for mine, other in zip(said, here[:5], strict=True)):
        return False
    return not run.driver or not here.driver or _branch(run.driver) == _branch(here.driver)


def _branch(driver: str) -> str:
    """A driver's release branch: 570 of "570.86.10"."""
    return driver.partition(".")[0]


def calibrate(estimate: Estimate, kind: MeasuredKind, calibrations: Iterable[Calibration], here: Place) -> Estimate:
    """The estimate with what neighbouring runs measured, in bytes; unchanged without neighbours or when exact."""
    found = neighbours(kind, calibrations, here) if calibrations else ()
    if not found or estimate.basis in ("exact", "measured") or estimate.low == estimate.high:
        return estimate
    from statistics import median  # 5 ms of imports that most plans never need

    sizes = [carried(c, estimate.value) for c in found]
    centre = round(median(sizes))
    moved = max((abs(size - c.bytes) for c, size in zip(found, sizes, strict=True)), default=0)
    near = max(_RUN_TO_RUN, round(_RUN_TO_RUN_SHARE * centre))
    spread = max(max(sizes) - min(sizes), near + round(_CARRIED_SHARE * min(moved, abs(centre - estimate.value))))
    low, high = centre - spread, centre + spread
    sources = ", ".join(dict.fromkeys(c.source for c in found))
    remark = f"calibrated by {counted(len(found), 'measured run', 'measured runs')} ({sources}): {rule_of(found[0])}"
    if high < estimate.low or low > estimate.high:
        law = size_mark(estimate.value)
        low, high = min(low, estimate.low), max(high, estimate.high)
        remark += f"; they contradict the general law, which says {law}"
    else:
        low, high = max(low, estimate.low), min(high, estimate.high)
    law_input = Input("law", estimate.value, "B", estimate.in_words())
    return banded(
        centre, low, high, "calibrated", "{measured nearby}", Input("measured nearby", centre, "B", sources), law_input
    ).with_notes(*estimate.notes, SizedText(remark))


def carried(run: Calibration, law_bytes: int) -> int:
    """What a run says of a plan for which the rules say law_bytes; never below 0. In bytes."""
    if run.law_bytes is None:
        return run.bytes
    if run.kind in PROPORTIONAL and run.law_bytes > 0:
        return round(law_bytes * min(max(run.bytes / run.law_bytes, 1 / _MOST_RATIO), _MOST_RATIO))
    return max(law_bytes + run.bytes - run.law_bytes, 0)


def rule_of(run: Calibration) -> str:
    """Which plans a run speaks for, in words."""
    same = [
        name
        for name, given in (
            ("engine rules", run.era),
            ("GPU", run.gpu),
            ("driver where it is known", run.driver),
            ("model family", run.family),
            ("number of ranks", run.ranks),
        )
        if given
    ]
    return f"same {' and '.join((', '.join(same[:-1]), same[-1]) if len(same) > 1 else same)}" if same else "any plan"
