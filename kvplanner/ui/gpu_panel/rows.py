"""What the panel's bars say: planned and measured of each GPU on one axis, in plain numbers and words, without Qt."""

from __future__ import annotations

from collections.abc import Sequence

from kvplanner.engine.plan import Plan
from kvplanner.engine.segment import SegmentKind
from kvplanner.observe.overlay import Overlay, Part, engine_bytes, parts, signed
from kvplanner.observe.snapshot import EngineSeen, GpuSample, Reading, Snapshot, tail
from kvplanner.record import NamedTuple
from kvplanner.units import ByteUnit, format_bytes, in_unit


class Planned(NamedTuple):
    """A segment of the plan's bar."""

    kind: SegmentKind
    bytes: int


class BarRow(NamedTuple):
    """One GPU. planned is () when the plan does not use it; parts is () when nothing is known.

    tail: of the UUID; numbers: the line under the bar; warn: the line asks for attention. total: the end of its bar.
    """

    uuid: str
    title: str
    tail: str
    detail: str
    total: int | None
    parts: tuple[Part, ...]
    planned: tuple[Planned, ...]
    budget: tuple[int, int] | None
    numbers: str
    warn: bool
    faded: bool
    tip: str

    @property
    def spoken(self) -> str:
        """The row for a screen reader."""
        return f"{self.title}, {self.detail}. {self.numbers}"


def bar_rows(
    snapshot: Snapshot, plan: Plan | None, overlays: Sequence[Overlay], engine: EngineSeen | None, unit: ByteUnit
) -> tuple[BarRow, ...]:
    """The rows in the driver's order; a GPU with MIG on only heads its instances."""
    by_uuid = {o.gpu.uuid: o for o in overlays}
    return tuple(_row(g, plan, by_uuid.get(g.uuid), engine, unit) for g in snapshot.gpus)


def axis_end(rows: Sequence[BarRow]) -> int:
    """The end of the common axis: the largest capacity or plan."""
    ends = [max(r.total or 0, sum(p.bytes for p in r.planned), sum(p.bytes for p in r.parts)) for r in rows]
    return max([*ends, 1])


def _row(
    gpu: GpuSample, plan: Plan | None, overlay: Overlay | None, engine: EngineSeen | None, unit: ByteUnit
) -> BarRow:
    if overlay is not None:
        found = overlay.parts
    else:
        used = engine_bytes(gpu, engine.pid) if engine else Reading(None, "no engine runs here")
        name = f"{engine.title} (pid {engine.pid})" if engine and used.value else ""
        found = parts(gpu, used if name else Reading(0), name)
    planned, budget = _planned(plan, overlay)
    return BarRow(
        gpu.uuid,
        gpu.label,
        f"…{tail(gpu.uuid)}",
        " · ".join((short_name(gpu.name), *(m for m in gpu.marks if m != "MIG instance"))),
        gpu.total.value,
        () if gpu.mig and gpu.allocated.value is None else found,
        planned,
        budget,
        _numbers(gpu, overlay, found, unit),
        gpu.status not in ("ok", "asleep"),
        gpu.status != "ok",
        _tip(gpu, unit),
    )


def short_name(name: str) -> str:
    """A GPU's name without the vendor's words."""
    for word in ("NVIDIA ", "GeForce ", "Tesla ", "Quadro "):
        name = name.replace(word, "")
    whole, mig, part = name.partition(" MIG ")
    return f"MIG {part}" if mig else whole


def _planned(plan: Plan | None, overlay: Overlay | None) -> tuple[tuple[Planned, ...], tuple[int, int] | None]:
    if plan is None or overlay is None:
        return (), None
    device = plan.devices[overlay.device]
    segments = tuple(Planned(s.kind, s.bytes) for s in device.segments if s.bytes > 0)
    start = sum(s.bytes for s in segments if s.kind in ("driver_reserved", "other", "runtime_outside"))
    budget = (start, start + device.budget.value) if device.budget else None
    return segments, budget


def _numbers(gpu: GpuSample, overlay: Overlay | None, found: Sequence[Part], unit: ByteUnit) -> str:
    if gpu.status != "ok":
        return gpu.message
    if gpu.total.value is None:
        return f"memory: {gpu.total.reason}"
    free = format_bytes(gpu.free.value, unit) if gpu.free.value is not None else "?"
    if overlay is not None and overlay.seen is not None and overlay.engine.value is not None:
        if not overlay.engine.value:
            planned = format_bytes(overlay.planned_bytes, unit)
            return f"{overlay.seen.title} holds nothing here, planned {planned} · {free} free"
        gap = overlay.unaccounted.value or 0
        held, planned = in_unit(overlay.engine.value, unit), format_bytes(overlay.planned_bytes, unit)
        return f"measured {held:.2f}, planned {planned} · unaccounted {signed(gap, unit)} · {free} free"
    listed = [f"{p.name} {in_unit(p.bytes, unit):.2f}" for p in found if p.kind != "driver"]
    note = " · no process is listed" if gpu.process_note and not gpu.processes else ""
    return " · ".join([*listed, f"{free} free of {format_bytes(gpu.total.value, unit)}"]) + note


def _tip(gpu: GpuSample, unit: ByteUnit) -> str:
    lines = [gpu.name, gpu.uuid]
    if gpu.pci:
        lines.append(f"PCI {gpu.pci}")
    if gpu.total.value is not None:
        figures = ((gpu.total, "total"), (gpu.reserved, "driver reserved"), (gpu.allocated, "allocated"),
                   (gpu.free, "free"))  # fmt: skip
        lines += [f"{name}: {show(reading, unit)}" for reading, name in figures]
        lines.append("total = driver reserved + allocated + free")
    if gpu.name.partition("NVIDIA ")[2].startswith(("GH200", "GB200", "GB300")):
        lines.append("this GPU's memory is also the system's: pages that programs left behind can be counted")
    if gpu.process_note:
        lines.append(gpu.process_note)
    lines += [
        f"GPU busy: {_percent(gpu.utilization)}",
        f"memory bus busy: {_percent(gpu.memory_busy)} (not how full it is)",
    ]
    if gpu.temperature.value is not None:
        lines.append(f"temperature: {gpu.temperature.value} °C")
    if gpu.power_mw.value is not None:
        lines.append(f"power: {gpu.power_mw.value / 1000:.0f} W")
    return "\n".join(lines)


def show(reading: Reading, unit: ByteUnit) -> str:
    """Bytes as text, or "n/a" with the reason."""
    return format_bytes(reading.value, unit) if reading.value is not None else f"n/a ({reading.reason})"


def _percent(reading: Reading) -> str:
    return f"{reading.value} %" if reading.value is not None else f"n/a ({reading.reason})"
