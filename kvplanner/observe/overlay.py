"""Measured use beside the plan: which GPU is which device, and how its memory divides in the plan's order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from kvplanner.engine.plan import DevicePlan, Plan
from kvplanner.observe.machine import known_spec
from kvplanner.observe.snapshot import EngineSeen, GpuSample, Reading, Snapshot
from kvplanner.record import NamedTuple
from kvplanner.units import ByteUnit, format_bytes, in_unit

PartKind = Literal["driver", "other", "engine"]
_ENGINE_KINDS = frozenset(
    {"runtime_outside", "runtime", "weights", "workspace", "activations", "cuda_graphs", "kv_cache"}
)
# Totals of one card differ by this share at most between drivers and with error correction on.
_SAME_CARD = 0.07


class Part(NamedTuple):
    """A part of measured use, in the plan's order: driver, other programs, this engine."""

    kind: PartKind
    bytes: int
    name: str


class Overlay(NamedTuple):
    """One device of the plan (a position in plan.devices) and the GPU that it is.

    planned_bytes: what the plan gives the engine; engine: what its processes hold, or why that is not known;
    unaccounted: measured less planned, signed. stale: the GPU no longer answers.
    """

    device: int
    gpu: GpuSample
    parts: tuple[Part, ...]
    planned_bytes: int
    engine: Reading
    unaccounted: Reading
    seen: EngineSeen | None = None
    stale: bool = False

    def text(self, unit: ByteUnit = "GiB") -> str:
        """The line under the bar."""
        if self.seen is None or self.engine.value is None:
            used = " · ".join(f"{p.name} {in_unit(p.bytes, unit):.2f}" for p in self.parts if p.kind != "driver")
            why = "no engine runs here" if self.seen is None else self.engine.reason
            return f"measured: {used or 'nothing in use'} {unit if used else ''}".rstrip() + f" · {why}"
        who = f"{self.seen.title} (pid {self.seen.pid})"
        planned = f"{in_unit(self.planned_bytes, unit):.2f}"
        if not self.engine.value:
            return f"measured: {who} holds nothing here, planned {planned} {unit}"
        line = f"measured: {who} {format_bytes(self.engine.value, unit)}, planned {planned}"
        if self.unaccounted.value is not None:
            line += f" · unaccounted {signed(self.unaccounted.value, unit)}"
        return line


def signed(value: int, unit: ByteUnit) -> str:
    """A difference with its sign, without the unit: "+0.14"."""
    return f"{in_unit(value, unit):+.2f}".replace("-", "−")


def match(plan: Plan, snapshot: Snapshot, chosen: Mapping[int, str] | None = None) -> dict[int, GpuSample]:
    """Positions in plan.devices and the GPU that each is: as the user chose, by UUID, then by name and total.

    A GPU stands for one device at most, except that several ranks may share one when the plan says so by UUID.
    """
    found: dict[int, GpuSample] = {}
    wanted = [(i, d) for i, d in enumerate(plan.devices) if d.device.kind == "gpu"]
    for position, device in wanted:
        uuid = (chosen or {}).get(position) or device.device.uuid
        sample = snapshot.gpu(uuid) if uuid else None
        if sample is not None:
            found[position] = sample
    taken = {g.uuid for g in found.values()}
    for position, device in wanted:
        if position in found or device.device.uuid:
            continue
        like = next((g for g in snapshot.gpus if g.uuid not in taken and not g.mig and _alike(device, g)), None)
        if like is not None:
            found[position] = like
            taken.add(like.uuid)
    return found


def _alike(device: DevicePlan, sample: GpuSample) -> bool:
    """Whether a catalogue device can be this GPU: the same name, and a total that a driver could have given it."""
    total = sample.total.value
    if total is None or abs(total - device.total_bytes) > _SAME_CARD * device.total_bytes:
        return False
    if sample.name.lower() == device.device.gpu.name.lower():
        return True
    known = known_spec(sample.name, total)
    return known is not None and known.id == device.device.gpu.id


def engine_bytes(sample: GpuSample, root_pid: int) -> Reading:
    """What the processes of one engine hold on a GPU; a missing figure of one of them makes the sum unknown."""
    mine = [p for p in sample.processes or () if p.root_pid == root_pid]
    missing = next((p.memory for p in mine if p.memory.value is None), None)
    if missing is not None:
        return missing
    if not mine and sample.processes is None:
        return Reading(None, sample.process_note or "processes are not listed")
    return Reading(sum(p.memory.value or 0 for p in mine))


def choose_engine(
    plan: Plan, snapshot: Snapshot, matched: Mapping[int, GpuSample], pid: int | None
) -> EngineSeen | None:
    """The running engine to compare with: the chosen one, else the plan's kind with the most memory on its GPUs."""
    if pid is not None:
        return next((e for e in snapshot.engines if e.pid == pid), None)
    samples = {g.uuid: g for g in matched.values()}.values()
    by_pid = {
        e.pid: sum(engine_bytes(g, e.pid).value or 0 for g in samples)
        for e in snapshot.engines
        if e.engine == plan.request.engine
    }
    best = max(by_pid, key=lambda p: by_pid[p], default=None)
    if best is None or not by_pid[best]:
        return None
    return next(e for e in snapshot.engines if e.pid == best)


def overlays(
    plan: Plan, snapshot: Snapshot, pid: int | None = None, chosen: Mapping[int, str] | None = None
) -> tuple[Overlay, ...]:
    """Measured use of each device of the plan that is a GPU of this machine, in the plan's order."""
    matched = match(plan, snapshot, chosen)
    engine = choose_engine(plan, snapshot, matched, pid)
    return tuple(_overlay(plan, position, gpu, engine) for position, gpu in sorted(matched.items()))


def _overlay(plan: Plan, position: int, gpu: GpuSample, engine: EngineSeen | None) -> Overlay:
    device = plan.devices[position]
    planned = sum(s.bytes for s in device.segments if s.kind in _ENGINE_KINDS)
    used = engine_bytes(gpu, engine.pid) if engine else Reading(None, "no engine runs here")
    gap = used if used.value is None else Reading(used.value - planned)
    name = f"{engine.title} (pid {engine.pid})" if engine else ""
    found = parts(gpu, used if engine else Reading(0), name)
    return Overlay(position, gpu, found, planned, used, gap, engine, gpu.status != "ok")


def parts(gpu: GpuSample, engine: Reading, engine_name: str = "engine") -> tuple[Part, ...]:
    """Measured use in the plan's order. What is not the engine's is other programs'; () when nothing is known.

    Where the driver does not tell memory per process, the rest is just "in use": some of it may be the engine's.
    """
    allocated = gpu.allocated.value
    if allocated is None:
        return ()
    mine = min(engine.value or 0, allocated) if not gpu.shared else engine.value or 0
    rest = max(0, allocated - mine)
    all_known = all(p.memory.value is not None for p in gpu.processes or ())
    rest_name = "other programs" if all_known and engine.value is not None else "in use"
    rest_name = "system and programs" if gpu.shared else rest_name
    found = (
        Part("driver", gpu.reserved.value or 0, "driver reserved"),
        Part("other", rest, rest_name),
        Part("engine", mine, engine_name),
    )
    return tuple(p for p in found if p.bytes > 0)
