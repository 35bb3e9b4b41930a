"""The runs that calibrate plans, in words: what each measured, and for which plans it speaks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from kvplanner.diagnose.runs import Run
from kvplanner.engine.request import Calibration, MeasuredKind
from kvplanner.engine.shared.calibration import rule_of
from kvplanner.report.segments import name_of
from kvplanner.sized_text import show_size

HEADS: Final = ("id", "used", "date", "run", "measured", "for plans of the")


def rows(runs: Iterable[Run]) -> Iterator[tuple[str, ...]]:
    """A table: the heads, then a row for each run."""
    yield HEADS
    for run in runs:
        yield run.id, used(run), run.date, about(run), ", ".join(measured(run)), rule(run)


def used(run: Run) -> str:
    """Whether plans take it."""
    return "yes" if run.on and run.current else "no, of older rules" if run.on else "no"


def about(run: Run) -> str:
    """Engine, model and GPU of a run."""
    name = run.model.rpartition("/")[2] or "a model"
    return f"{run.engine} {run.version or '?'}, {name}, {run.gpu}" + (f", driver {run.driver}" if run.driver else "")


def measured(run: Run) -> Iterator[str]:
    """Each part with its size, and what the rules say of that run."""
    for found in run.calibrations:
        law = f" (rules: {show_size(found.law_bytes)})" if found.law_bytes is not None else ""
        yield f"{name_of_kind(found.kind)} {show_size(found.bytes)}{law}"


def name_of_kind(kind: MeasuredKind) -> str:
    """A part as tables call it."""
    return "CUDA graphs, estimated" if kind == "cuda_graphs_estimated" else name_of(kind)


def rule(run: Run) -> str:
    """Which plans it speaks for: the narrowest of its parts' rules."""
    return rule_of(max(run.calibrations, key=_narrow)) if run.calibrations else ""


def _narrow(found: Calibration) -> int:
    return sum(map(bool, (found.era, found.gpu, found.family, found.ranks)))
