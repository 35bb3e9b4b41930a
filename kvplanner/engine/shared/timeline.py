"""What every stage of start-up takes, those after a failing one not reached."""

from __future__ import annotations

from collections.abc import Sequence

from kvplanner.engine.plan import StageMemory
from kvplanner.engine.stage import StageRule, StepLabel


def timeline(
    steps: Sequence[StepLabel], sizes: Sequence[tuple[int, int, str]], rule: StageRule | None, total: int | None = None
) -> tuple[StageMemory, ...]:
    """sizes: bytes at each step's end, at its highest, and a note. rule: of the failing stage.

    total: the device's bytes, where a step before that is to say that it may not fit.
    """
    out: list[StageMemory] = []
    failed = False
    for (step, label), (end, peak, note) in zip(steps, sizes, strict=True):
        if failed:
            out.append(StageMemory(step, label, 0, 0, reached=False))
            continue
        failed = rule is not None and rule.step == step
        if total is not None and peak > total and not failed:
            note += ", which may not fit"
        out.append(StageMemory(step, label, end, peak, failed, note))
    return tuple(out)
