"""The GPUs of a machine that a plan leaves idle: an empty bar for each kind of them, below those in use."""

from __future__ import annotations

from kvplanner.engine.plan import Plan
from kvplanner.gpu.spec import Device
from kvplanner.record import NamedTuple
from kvplanner.report import words
from kvplanner.report.words import Unit
from kvplanner.ui.bars.shapes import Density, IdleRow, Text
from kvplanner.ui.theme.geometry import Measure, Rect


class Idle(NamedTuple):
    """GPUs alike that nothing is planned for. total_bytes: of each, 0 where not known."""

    indices: tuple[int, ...]
    name: str
    total_bytes: int


# How texts are measured, the unit of sizes, and where the other bars' names begin.
Words = tuple[Measure, Unit, float]


def idle_of(plan: Plan) -> tuple[Idle, ...]:
    """The GPUs that the plan was given and does not use, those alike together, in the machine's order."""
    used = {device.device.index for device in plan.gpus}
    alike: dict[tuple[str, int], list[Device]] = {}
    for device in plan.request.machine.gpus:
        if device.index not in used:
            total = int(device.gpu.total.value) if device.gpu.total is not None else 0
            alike.setdefault((device.gpu.name, total), []).append(device)
    return tuple(Idle(tuple(d.index for d in found), name, total) for (name, total), found in alike.items())


def title_of(idle: Idle) -> str:
    """For example "GPU 8–15"; of GPUs that do not follow each other "GPU 1, 3"."""
    first, last = idle.indices[0], idle.indices[-1]
    if len(idle.indices) > 1 and last - first == len(idle.indices) - 1:
        return f"GPU {first}–{last}"
    return f"GPU {', '.join(map(str, idle.indices))}"


def height_of_idle(plan: Plan, density: Density) -> float:
    """Pixels that these bars take together."""
    return len(idle_of(plan)) * _height(density)


def _height(density: Density) -> float:
    return density.bracket + density.bar / 2 + density.gap


def rows_of_idle(
    plan: Plan, y: float, frame: tuple[float, float, float], density: Density, told: Words
) -> tuple[IdleRow, ...]:
    """The bars below each other from y on. frame: their left edge, pixels a byte and the axis' right edge."""
    high = _height(density)
    return tuple(_row(idle, y + at * high, frame, density, told) for at, idle in enumerate(idle_of(plan)))


def _row(idle: Idle, y: float, frame: tuple[float, float, float], density: Density, told: Words) -> IdleRow:
    left, scale, right = frame
    measure, unit, indent = told
    wide = min(idle.total_bytes * scale, right - left) if idle.total_bytes else right - left
    box = Rect(left, y + density.bracket, wide, density.bar / 2)
    size = words.size(idle.total_bytes, unit) if idle.total_bytes else ""
    each = "each " if len(idle.indices) > 1 else ""
    texts = (f"not used by this plan · {each}{size}" if size else "", "not used by this plan", "not used", "")
    said = next(text for text in texts if measure(text, "small") + 8 <= box.w or not text)
    title = title_of(idle)
    line = Rect(indent, box.y, left - indent - 8, box.h)
    while measure(title, "title") > line.w and len(title) > 1:
        title = f"{title.rstrip('…')[:-1].rstrip(' ,')}…"
    name, text = Text(line, title, "title"), Text(box, said, "small", "center")
    return IdleRow(Rect(0, y, right, _height(density)), box, name, text)
