"""Which devices lack memory where start-up fails, and how much each."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from kvplanner.engine.plan import Plan
from kvplanner.report.held import alike, lack_of


class Shortage(NamedTuple):
    """positions: in plan.devices, of devices that are alike; bytes: what each of them lacks at the failing stage."""

    positions: tuple[int, ...]
    bytes: int


def shortages(plan: Plan) -> tuple[Shortage, ...]:
    """The devices that lack memory, those that lack most first; () where the plan does not fail for lack of it."""
    if plan.fits is not False or plan.missing_bytes <= 0:
        return ()
    found = [Shortage(alike(plan, plan.tightest), plan.missing_bytes)]
    seen = set(found[0].positions)
    for position in range(len(plan.devices)):
        if position not in seen:
            positions = alike(plan, position)
            seen |= set(positions)
            lack = lack_of(plan, positions)
            found += [Shortage(positions, lack.bytes)] if lack else []
    return tuple(sorted(found, key=lambda s: -s.bytes))


def run_of(numbers: Iterable[int]) -> str:
    """Numbers told shortly: "0–3, 6"."""
    runs: list[list[int]] = []
    for value in sorted(numbers):
        if runs and value == runs[-1][-1] + 1:
            runs[-1].append(value)
        else:
            runs.append([value])
    return ", ".join(str(r[0]) if len(r) == 1 else f"{r[0]}–{r[-1]}" for r in runs)


def where(plan: Plan, positions: Iterable[int]) -> str:
    """The devices at some positions by the numbers that the engine knows them by: "GPU 0–3", "Host"."""
    devices = [plan.devices[p].device for p in positions]
    return "Host" if devices[0].kind == "host" else f"GPU {run_of(d.index for d in devices)}"
