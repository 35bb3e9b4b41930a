"""What the panel knows: the last snapshot, its history, and how both compare with the plan. No widgets."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from kvplanner.diagnose.attached import Attached
from kvplanner.engine.plan import DevicePlan, Plan
from kvplanner.gpu.spec import Machine
from kvplanner.observe.history import History
from kvplanner.observe.machine import local_machine
from kvplanner.observe.metrics import Fill
from kvplanner.observe.output import output_file
from kvplanner.observe.overlay import Overlay, engine_bytes, overlays
from kvplanner.observe.snapshot import EngineSeen, GpuSample, Snapshot, labels_in_words, tail
from kvplanner.observe.stages import EngineEnd, StageEnd, StageWatch
from kvplanner.ui.gpu_panel.plot import Curve, Line
from kvplanner.ui.gpu_panel.rows import BarRow, bar_rows, short_name
from kvplanner.units import MIB, ByteUnit, format_bytes

# Free memory has to move by this much before the plan hears of it.
_WORTH_SAYING: Final = 64 * MIB
_MACHINE_EVERY_S: Final = 2.0
# Lines of the plot closer than this share of the capacity would hide each other's names.
_TOO_NEAR: Final = 0.06
_SHOWN_OTHERS: Final = 16 * MIB

Choices = list[tuple[str, str, bool]]


class PanelModel:
    """Takes snapshots and a plan, gives rows, curves, lines and overlays."""

    def __init__(self) -> None:
        self.snapshot: Snapshot | None = None
        self.history = History()
        self.plan: Plan | None = None
        self.unit: ByteUnit = "GiB"
        self.engine_pid: int | None = None
        self.fill: float | None = None
        self.overlays: tuple[Overlay, ...] = ()
        self._chosen: dict[int, str] = {}
        self._stages = StageWatch()
        self._outputs: tuple[int, Path | None] = (0, None)  # of the engine that runs, asked while it does
        self._machine: Machine | None = None
        self._machine_at = float("-inf")

    # -- taking in ------------------------------------------------------------------------------------------------

    def take(self, batch: Sequence[Snapshot]) -> None:
        """New snapshots, oldest first."""
        for snapshot in batch:
            self.history.add(snapshot)
            self._mark_losses(self.snapshot, snapshot)
            self.snapshot = snapshot

    def set_plan(self, plan: Plan | None) -> bool:
        """Takes another plan; returns whether it is another one. Matches made by hand hold for the same devices."""
        if plan is self.plan:
            return False
        old, self.plan = self.plan, plan
        if old is None or plan is None or [d.device for d in old.devices] != [d.device for d in plan.devices]:
            self._chosen = {}
        return True

    def forget(self) -> None:
        """Before and after a recording is played."""
        self.snapshot, self.overlays, self.fill = None, (), None
        self.history.clear()
        self._stages = StageWatch()

    def compare(self) -> None:
        """Works out the overlays."""
        if self.plan is None or self.snapshot is None:
            self.overlays = ()
        else:
            self.overlays = overlays(self.plan, self.snapshot, self.engine_pid, self._chosen)
            self._watch_stages()

    def engine(self) -> EngineSeen | None:
        """The engine that is compared with, or the one that was chosen."""
        found = next((o.seen for o in self.overlays if o.seen is not None), None)
        if found is not None or self.snapshot is None:
            return found
        engines = self.snapshot.engines
        return next((e for e in engines if e.pid == self.engine_pid), engines[0] if engines else None)

    def _watch_stages(self) -> None:
        overlay = next((o for o in self.overlays if o.gpu.status == "ok"), None)
        if overlay is None or self.plan is None or self.snapshot is None:
            return
        device = self.plan.devices[overlay.device]
        self._stages.set_stages([StageEnd(s.label, s.end_bytes) for s in device.stages if not s.failing])
        pid = overlay.seen.pid if overlay.seen else None
        title = overlay.seen.title if overlay.seen else ""
        if pid is not None and pid != self._outputs[0]:
            self._outputs = pid, output_file(pid)
        total, free = overlay.gpu.total.value, overlay.gpu.free.value
        if total is not None and free is not None:
            for text in self._stages.see(pid, title, total - free):
                self.history.mark(self.snapshot.monotonic, text)

    def take_ended(self) -> tuple[EngineEnd, Path | None] | None:
        """The engine that has ended since this was asked last, and the file that it wrote its log to."""
        ended, self._stages.ended = self._stages.ended, None
        return None if ended is None else (ended, self._outputs[1] if self._outputs[0] == ended.pid else None)

    def _mark_losses(self, before: Snapshot | None, now: Snapshot) -> None:
        known = {g.uuid: g.status for g in before.gpus} if before else {}
        for gpu in now.gpus:
            was = known.get(gpu.uuid)
            if was is not None and was != gpu.status and "lost" in (was, gpu.status):
                self.history.mark(now.monotonic, f"{gpu.label} {'lost' if gpu.status == 'lost' else 'is back'}")

    # -- giving out -----------------------------------------------------------------------------------------------

    def rows(self) -> tuple[BarRow, ...]:
        """The bars."""
        if self.snapshot is None:
            return ()
        return bar_rows(self.snapshot, self.plan, self.overlays, self.engine(), self.unit)

    def curves(self) -> tuple[Curve, ...]:
        """One curve per device whose memory is its own."""
        gpus = self.snapshot.gpus if self.snapshot else ()
        whole = len([g for g in gpus if g.kind == "gpu"]) == 1
        return tuple(
            Curve(g.uuid, g.label.split(", ")[-1] if whole else g.label) for g in gpus if g.total.value is not None
        )

    def references(self, uuid: str) -> tuple[Line, ...]:
        """Capacity, budget and segments of the chosen GPU's plan; of the first one when none is chosen."""
        overlay = next((o for o in self.overlays if o.gpu.uuid == uuid), None)
        if overlay is None and self.overlays:
            overlay = self.overlays[0]
        if overlay is None or self.plan is None:
            gpus = self.snapshot.gpus if self.snapshot else ()
            gpu = next((g for g in gpus if g.uuid == uuid), gpus[0] if gpus else None)
            return (Line(gpu.total.value, "capacity", True),) if gpu and gpu.total.value else ()
        return _plan_lines(self.plan.devices[overlay.device])

    def others_text(self) -> str:
        """What other programs hold, per GPU, in one line."""
        held: dict[str, list[GpuSample]] = {}
        for gpu in self.snapshot.gpus if self.snapshot else ():
            size = self._others(gpu)
            if self.snapshot is not None and gpu.twins(self.snapshot.gpus)[0] is not gpu:
                continue  # the same memory again
            if size is not None and size >= _SHOWN_OTHERS:
                held.setdefault(format_bytes(size, self.unit), []).append(gpu)
        each = ", ".join(f"{size} on {labels_in_words(gpus)}" for size, gpus in held.items())
        if any(g.shared for gpus in held.values() for g in gpus):
            return f"The system and programs hold {each}."
        told = all(p.memory.value is not None for gpus in held.values() for g in gpus for p in g.processes or ())
        return (f"Other programs hold {each}." if told else f"In use: {each}.") if each else ""

    def _others(self, gpu: GpuSample) -> int | None:
        if gpu.status != "ok" or gpu.allocated.value is None or gpu.mig:
            return None
        engine = self.engine()
        mine = engine_bytes(gpu, engine.pid).value or 0 if engine else 0
        return max(0, gpu.allocated.value - mine)

    def free_by_device(self) -> dict[int, int]:
        """Bytes that the engine would find free, by index of the plan's devices: its own memory counts as free."""
        if self.plan is None:
            return {}
        found = {}
        for overlay in self.overlays:
            free = overlay.gpu.free.value
            if free is not None and overlay.gpu.status == "ok":
                found[self.plan.devices[overlay.device].device.index] = free + (overlay.engine.value or 0)
        return found

    def attached(self, fill: Fill | None) -> Attached:
        """What is measured of the engine that is compared with. fill: of its KV cache, where that was read."""
        tightest = self.plan.tightest if self.plan is not None else 0
        seen = [o for o in self.overlays if o.gpu.status == "ok" and o.engine.value]
        held = next((o for o in seen if o.device == tightest), seen[0] if seen else None)
        size = held.engine.value if held is not None else None
        if fill is None:
            return Attached(size)
        return Attached(size, fill.units, None if fill.tokens is None else fill.tokens // max(fill.engines, 1))

    def changed_machine(self) -> Machine | None:
        """This machine for planning, when it is another one or its free memory has moved."""
        snapshot = self.snapshot
        if snapshot is None or snapshot.monotonic - self._machine_at < _MACHINE_EVERY_S:
            return None
        self._machine_at = snapshot.monotonic
        machine = self._without_engine(local_machine(snapshot))
        if machine is None or (self._machine is not None and not _moved(self._machine, machine)):
            return None
        self._machine = machine
        return machine

    def _without_engine(self, machine: Machine | None) -> Machine | None:
        """A machine to plan for: what the engine that is compared with holds is no other program's memory."""
        engine, snapshot = self.engine(), self.snapshot
        if machine is None or engine is None or snapshot is None:
            return machine
        held = {gpu.uuid: engine_bytes(gpu, engine.pid).value or 0 for gpu in snapshot.gpus}
        devices = tuple(
            device
            if device.free_bytes is None
            else device._replace(free_bytes=device.free_bytes + held.get(device.uuid, 0))
            for device in machine.devices
        )
        return machine._replace(devices=devices)

    def lost(self) -> tuple[str, ...]:
        """Planned GPUs that no longer answer, by label."""
        return tuple(o.gpu.label for o in self.overlays if o.gpu.status in ("lost", "stalled"))

    # -- rematching -----------------------------------------------------------------------------------------------

    def rematch_choices(self) -> list[tuple[int, str, Choices]]:
        """(position, title, [(uuid, text, current)]) per device of the plan; uuid "" means automatic."""
        if self.plan is None or self.snapshot is None:
            return []
        current = {o.device: o.gpu.uuid for o in self.overlays}
        found = []
        for position, device in enumerate(self.plan.devices[:16]):
            if device.device.kind != "gpu":
                continue
            choices: Choices = [("", "Automatic", position not in self._chosen)]
            choices += [
                (g.uuid, f"{g.label} · {short_name(g.name)} · …{tail(g.uuid)}", current.get(position) == g.uuid)
                for g in self.snapshot.gpus
                if g.total.value is not None and not g.mig
            ]
            found.append((position, f"Planned GPU {device.device.index} ({device.role}) is", choices))
        return found

    def rematch(self, position: int, uuid: str) -> None:
        """The user says which GPU a device of the plan is; "" for automatic."""
        if uuid:
            self._chosen[position] = uuid
        else:
            self._chosen.pop(position, None)


def _plan_lines(device: DevicePlan) -> tuple[Line, ...]:
    lines = [Line(device.total_bytes, "capacity", True)]
    start = sum(s.bytes for s in device.segments if s.kind in ("driver_reserved", "other", "runtime_outside"))
    if device.budget is not None:
        lines.append(Line(start + device.budget.value, "budget ends", True, below=True))
    top = 0
    for segment in device.segments:
        top += segment.bytes
        near = any(abs(top - line.bytes) < device.total_bytes * _TOO_NEAR for line in lines)
        if segment.kind in ("other", "weights") and segment.bytes and not near:
            lines.append(Line(top, {"other": "other programs", "weights": "weights loaded"}[segment.kind]))
    return tuple(lines)


def essence(overlay: Overlay) -> tuple[object, ...]:
    """What of an overlay can be seen: another sample with the same essence is no news."""
    seen = overlay.seen.pid if overlay.seen else None
    return (
        overlay.device, overlay.gpu.uuid, overlay.parts, overlay.planned_bytes, overlay.engine, overlay.unaccounted,
        seen, overlay.stale,
    )  # fmt: skip


def _moved(old: Machine, new: Machine) -> bool:
    if [(d.uuid, d.gpu, d.marks) for d in old.devices] != [(d.uuid, d.gpu, d.marks) for d in new.devices]:
        return True
    pairs = zip(old.devices, new.devices, strict=True)
    return any(abs((a.free_bytes or 0) - (b.free_bytes or 0)) >= _WORTH_SAYING for a, b in pairs)
