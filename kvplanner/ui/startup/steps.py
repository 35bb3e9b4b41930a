"""A device's memory over the stages of start-up as rectangles, against its capacity and its budget; no Qt."""

from __future__ import annotations

from typing import Final

from kvplanner.engine.plan import DevicePlan, Plan, StageMemory
from kvplanner.record import NamedTuple
from kvplanner.report import words
from kvplanner.report.sentences import failing_rule, failing_words
from kvplanner.report.words import Unit
from kvplanner.ui.theme.geometry import Rect

HEADER: Final = 20.0  # a line, at least
LEGEND: Final = 18.0
ABOVE: Final = 18.0  # for the unit and the capacity's figure
BOTTOM: Final = 48.0
WIDEST: Final = 480.0
LEFT: Final = 44.0
RIGHT: Final = 96.0  # room for the lines' names; in a narrow view they stand inside
RIGHT_NARROW: Final = 8.0
NARROW: Final = 620.0
LOW: Final = 210.0


class Step(NamedTuple):
    """One stage: its column, what is in use at its end (box) and at its highest (peak, above it, or None), what does
    not fit (lack), and whether it comes after a failure (pale)."""

    stage: StageMemory
    column: Rect
    box: Rect
    peak: Rect | None
    lack: Rect | None
    pale: bool = False


class Steps(NamedTuple):
    """Where everything is drawn. capacity, budget: heights of the lines; others: outlines of the other devices;
    later: short name, name and column of stages that are never reached; top: where the picture begins."""

    steps: tuple[Step, ...]
    capacity_y: float
    budget_y: float | None
    base_y: float
    scale: float
    end_bytes: int
    others: tuple[tuple[str, tuple[tuple[float, float], ...]], ...]
    later: tuple[tuple[str, str, Rect], ...]
    top: float
    legend: bool


def arrange(plan: Plan, position: int, width: float, height: float, header: float = HEADER) -> Steps | None:
    """The stages of one device in the given room, the other groups' as outlines; None where none are known.

    header: what the lines above the picture take of the height.
    """
    device = plan.devices[position]
    if not device.stages:
        return None
    highest = max(_highest(plan, group[0]) for group in plan.groups if plan.devices[group[0]].stages)
    names = tuple((s.stage, s.label) for s in device.stages if not s.reached)
    reached = tuple(s for s in device.stages if s.reached)
    right = RIGHT if width >= NARROW else RIGHT_NARROW
    wide = min(max(width - LEFT - right, 80.0) / len(device.stages), WIDEST)
    legend = height >= LOW
    top, base = header + (LEGEND if legend else 0.0) + ABOVE, height - BOTTOM
    scale = max(base - top, 1.0) / highest
    lack = lacks(plan, position)
    steps = tuple(_step(device, i, lack, wide, (base, height, top), scale) for i in range(len(reached)))
    budget = device.budget_end
    mine = plan.group_of(position)
    others = tuple(
        (words.device_name(plan, group), _outline(plan.devices[group[0]], wide, base, scale))
        for group in plan.groups
        if group != mine and plan.devices[group[0]].stages
    )
    later = tuple(
        (short, name, Rect(LEFT + (len(reached) + i) * wide, top - 2, wide, height - top + 2))
        for i, (short, name) in enumerate(names)
    )
    return Steps(
        steps,
        base - device.total_bytes * scale,
        base - budget * scale if budget and budget <= highest else None,
        base,
        scale,
        highest,
        others,
        later,
        top,
        legend,
    )


def lacks(plan: Plan, position: int) -> tuple[int, int] | None:
    """From where to where (bytes from zero) a device lacks memory at the failing stage; None where it lacks none."""
    device = plan.devices[position]
    lack, rule = device.lack, failing_rule(plan)
    if lack is None or rule is None or not plan.missing_bytes:
        return None
    end = device.budget_end
    in_budget = rule.against in ("budget", "request") and end is not None
    start = end if in_budget and end is not None else device.total_bytes
    return start, start + lack.bytes


def _highest(plan: Plan, position: int) -> int:
    """The most bytes that a device's picture reaches to."""
    device = plan.devices[position]
    lack = lacks(plan, position)
    return max(device.total_bytes, lack[1] if lack else 0, *(stage.peak_bytes for stage in device.stages))


def _step(
    device: DevicePlan, index: int, lacking: tuple[int, int] | None, wide: float,
    sides: tuple[float, float, float], scale: float,
) -> Step:  # fmt: skip
    stage = device.stages[index]
    base, end, top = sides
    x = LEFT + index * wide
    high = stage.end_bytes * scale
    over = (stage.peak_bytes - stage.end_bytes) * scale
    peak = Rect(x + wide * 0.18, base - high - over, wide * 0.64, over) if over >= 1 else None
    lack = _lack(x, base, wide, lacking, scale) if stage.failing and lacking is not None else None
    if peak is not None and lack is None and stage.peak_bytes > device.total_bytes:  # it may fail here already
        lack = _lack(peak.x, base, peak.w, (device.total_bytes, stage.peak_bytes), scale)
    failed = any(s.failing for s in device.stages[:index])
    return Step(stage, Rect(x, top - 2, wide, end - top + 2), Rect(x, base - high, wide, high), peak, lack, failed)


def _lack(x: float, base: float, wide: float, span: tuple[int, int], scale: float) -> Rect:
    return Rect(x, base - span[1] * scale, wide, max((span[1] - span[0]) * scale, 3.0))


def _outline(device: DevicePlan, wide: float, base: float, scale: float) -> tuple[tuple[float, float], ...]:
    points: list[tuple[float, float]] = []
    for index, stage in enumerate(s for s in device.stages if s.reached):
        y = base - stage.end_bytes * scale
        points += [(LEFT + index * wide, y), (LEFT + (index + 1) * wide, y)]
    return tuple(points)


def failure(plan: Plan, position: int, unit: Unit) -> str:
    """Where start-up fails and what is missing, on the given device if it is that one: "" where it does not fail."""
    failing = next((stage for stage in plan.devices[position].stages if stage.failing), None)
    if failing is None:
        return ""
    said = f"Fails {failing_words(plan) or f'at {failing.label}'}"
    lack = lacks(plan, position)
    missing, at = (lack[1] - lack[0], position) if lack else (plan.missing_bytes, plan.tightest)
    device = words.device_name(plan, plan.group_of(at))
    return f"{said}: {words.size(missing, unit)} short on {device}" if missing else said


def stage_line(plan: Plan, position: int, stage: StageMemory, unit: Unit) -> str:
    """A stage in one line: "GPU 0 · load weights: 15.9 GiB at its end, up to 16.2 GiB (staging on top)"."""
    line = f"{words.device_name(plan, plan.group_of(position))} · {stage.label}: "
    line += f"{words.size(stage.end_bytes, unit)} at its end"
    if stage.peak_bytes > stage.end_bytes:
        line += f", up to {words.size(stage.peak_bytes, unit)}"
        line += f" ({stage.note})" if stage.note else ""
    return line


def right_end(steps: Steps) -> float:
    """Where the last column ends."""
    return steps.later[-1][2].right if steps.later else steps.steps[-1].column.right
