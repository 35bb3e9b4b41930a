"""Reads all GPUs of this machine through the gate, one at a time; what goes wrong with one stays with that one."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kvplanner.observe.nvml import GONE, Answer, Nvml, RawProcess, words
from kvplanner.observe.snapshot import NOT_ASKED, GpuSample, GpuStatus, ProcessSample, Reading
from kvplanner.record import NamedTuple
from kvplanner.units import MIB

# What `entered` is told while the driver as a whole is asked something.
DRIVER: Final = "driver"
LOST_PAUSE_S: Final = 30.0
LIST_AGAIN_S: Final = 5.0
# Compute capabilities that only exist with memory shared with the host: Orin, Thor, GB10.
_SHARED_CAPABILITIES: Final = frozenset({(8, 7), (11, 0), (12, 1)})
WSL_DEVICE: Final = Path("/dev/dxg")
_KINDS: Final = ("compute", "graphics", "mps")

# Less than this without a listed process is the driver's own bookkeeping, not someone's memory.
UNLISTED_WORTH_SAYING: Final = 256 * MIB
NOT_TOLD: Final = Reading(None, "the driver does not tell it per process")
_NOT_TOLD_WDDM: Final = Reading(None, "n/a (Windows display driver)")

HostMemory = Callable[[], tuple[int, int]]
Describe = Callable[[int, str, int | None], ProcessSample]


class Gauges(NamedTuple):
    """What changes more slowly than memory and is asked for less often."""

    utilization: Reading = NOT_ASKED
    memory_busy: Reading = NOT_ASKED
    temperature: Reading = NOT_ASKED
    power_mw: Reading = NOT_ASKED


_NONE: Final = Reading(None, "MIG instances have no gauges of their own")
_NO_GAUGES: Final = Gauges(_NONE, _NONE, _NONE, _NONE)


@dataclass(slots=True)
class _Slot:
    """A known device: its handle, its last sample (with the facts that do not change) and how it fares."""

    handle: object
    last: GpuSample
    gauges: Gauges = field(default_factory=Gauges)
    processes: tuple[ProcessSample, ...] | None = None
    process_note: str = ""
    retry_at: float = 0.0


def host_memory() -> tuple[int, int]:
    """(total, available) bytes of the host."""
    import psutil

    memory = psutil.virtual_memory()
    return int(memory.total), int(memory.available)


def plain_process(pid: int, driver_name: str, memory: int | None) -> ProcessSample:
    """A row with only what the driver says."""
    return ProcessSample(pid, Reading(memory) if memory is not None else NOT_TOLD, (), driver_name)


class GpuReader:
    """Open NVML plus the list of devices. Raises Unavailable when NVML cannot be used.

    skip: PCI ids that must not be touched (they hung a driver call); only: when given, the PCI ids to open, because
    the others sleep. describe: turns a PID into a row; entered:
    called with a device's PCI id before it is asked anything and with "" afterwards, so that a watcher can name
    the device that hangs.
    """

    def __init__(
        self,
        skip: Collection[str] = (),
        describe: Describe = plain_process,
        host: HostMemory = host_memory,
        entered: Callable[[str], None] = lambda pci: None,
        only: Sequence[str] | None = None,
    ) -> None:
        self.nvml = Nvml()
        self._only = only
        self._skip = frozenset(skip)
        self._describe = describe
        self._host = host
        self._entered = entered
        self._slots: list[_Slot] = []
        self.driver = self.nvml.driver_version()
        self.cuda = self.nvml.cuda_version()
        self._listed_at = self._counted_at = 0.0
        self._count = 0
        self.enumerate()

    def close(self) -> None:
        """Ends this use of NVML."""
        self.nvml.close()

    # -- finding devices ------------------------------------------------------------------------------------------

    def enumerate(self) -> None:
        """Lists devices anew; known ones keep their gauges and their last values."""
        before = {slot.last.uuid: slot for slot in self._slots}
        self._slots = []
        self._entered(DRIVER)
        for position, answer in enumerate(self._handles()):
            if answer.fault:
                self._slots.append(self._closed(position, answer.fault, before))
                continue
            pci = self.nvml.pci(answer.value)
            if pci and pci in self._skip:
                self._slots.append(_Slot(None, _skipped(position, pci, before)))
                continue
            self._entered(pci)
            self._add(answer.value, position, pci, before)
            self._entered(DRIVER)
        self._entered("")
        listed = {slot.last.uuid for slot in self._slots}
        self._slots += [s for u, s in before.items() if u not in listed and s.last.kind == "gpu" and _unplug(s)]
        self._listed_at = time.monotonic()

    def _handles(self) -> Iterator[Answer]:
        if self._only is not None:
            yield from (self.nvml.ask("nvmlDeviceGetHandleByPciBusId", pci) for pci in self._only)
            return
        self._count = self.nvml.number("nvmlDeviceGetCount").value or 0
        yield from (self.nvml.ask("nvmlDeviceGetHandleByIndex", position) for position in range(self._count))

    def _closed(self, position: int, fault: str, before: dict[str, _Slot]) -> _Slot:
        status: GpuStatus = "no_permission" if fault == "no_permission" else "lost"
        known = next((s.last for s in before.values() if s.last.number == position and s.last.kind == "gpu"), None)
        last = known or GpuSample(position, f"unknown-{position}", name="unknown GPU")
        message = "No permission for this GPU." if status == "no_permission" else f"Not available: {words(fault)}."
        return _Slot(
            None, last._replace(status=status, message=message, since=last.since or time.time()),
            retry_at=time.monotonic() + LOST_PAUSE_S,
        )  # fmt: skip

    def _add(self, handle: object, position: int, pci: str, before: dict[str, _Slot]) -> None:
        nvml = self.nvml
        uuid = nvml.text("nvmlDeviceGetUUID", handle).value or f"unknown-{position}"
        old = before.get(uuid)
        mig_answer = nvml.ask("nvmlDeviceGetMigMode", handle).value
        mig = bool(mig_answer[0]) if mig_answer else None
        facts = old.last if old else self._facts(handle, position, uuid, pci)
        facts = facts._replace(number=position, mig=mig, status="ok", message="", since=None)
        self._slots.append(_Slot(handle, facts, *(_kept(old) if old else ())))
        if mig:
            for child in nvml.instances(handle):
                self._slots.append(self._instance(child, facts, before))

    def _facts(self, handle: object, position: int, uuid: str, pci: str) -> GpuSample:
        nvml = self.nvml
        capability = nvml.ask("nvmlDeviceGetCudaComputeCapability", handle).value
        ecc = nvml.ask("nvmlDeviceGetEccMode", handle).value
        display = nvml.number("nvmlDeviceGetDisplayActive", handle).value
        model = nvml.ask("nvmlDeviceGetDriverModel", handle).value
        return GpuSample(
            position, uuid, pci, nvml.text("nvmlDeviceGetName", handle).value or "unknown GPU",
            compute_capability=tuple(capability) if capability else None,
            ecc=bool(ecc[0]) if ecc else None,
            display=None if display is None else bool(display),
            wddm=WSL_DEVICE.exists() or (bool(model) and model[0] == 0),
        )  # fmt: skip

    def _instance(self, handle: object, parent: GpuSample, before: dict[str, _Slot]) -> _Slot:
        nvml = self.nvml
        uuid = nvml.text("nvmlDeviceGetUUID", handle).value or f"{parent.uuid}/?"
        old = before.get(uuid)
        sample = parent._replace(
            uuid=uuid, name=nvml.text("nvmlDeviceGetName", handle).value or f"{parent.name} MIG", kind="mig",
            parent_uuid=parent.uuid, mig=None, display=None,
            gpu_instance=nvml.number("nvmlDeviceGetGpuInstanceId", handle).value,
            compute_instance=nvml.number("nvmlDeviceGetComputeInstanceId", handle).value,
        )  # fmt: skip
        return _Slot(handle, sample, *(_kept(old) if old else (_NO_GAUGES,)))

    # -- sampling -------------------------------------------------------------------------------------------------

    def sample(self, gauges: bool = True, lists: Collection[str] = _KINDS) -> tuple[GpuSample, ...]:
        """All devices now. gauges: ask for utilisation and the like too; lists: which process lists to ask for."""
        now = time.monotonic()
        if self._must_list(now):
            self.enumerate()
        return tuple(self._sample(slot, now, gauges, lists) for slot in self._slots)

    def _must_list(self, now: float) -> bool:
        if now - self._listed_at < 1.0:
            return False
        if self._only is None and now - max(self._listed_at, self._counted_at) > LIST_AGAIN_S:
            # A GPU that was plugged in, or came back to an empty list.
            self._counted_at = now
            if self.nvml.number("nvmlDeviceGetCount").value not in (None, self._count):
                return True
        lost = [s for s in self._slots if s.retry_at and now >= s.retry_at]
        gone_instance = any(s.last.kind == "mig" and s.last.status == "lost" for s in self._slots)
        return bool(lost) or gone_instance

    def _sample(self, slot: _Slot, now: float, gauges: bool, lists: Collection[str]) -> GpuSample:
        if slot.handle is None or now < slot.retry_at:
            return slot.last
        self._entered(slot.last.pci)
        sample = slot.last = self._memory(slot)
        if sample.status == "ok":
            if gauges and sample.kind == "gpu":
                slot.gauges = self._gauges(slot.handle)
            if lists:
                self._processes(slot, lists)
            sample = sample._replace(
                processes=slot.processes, process_note=slot.process_note, **slot.gauges._asdict()
            )  # fmt: skip
        self._entered("")
        slot.last = sample
        return sample

    def _memory(self, slot: _Slot) -> GpuSample:
        answer = self.nvml.memory(slot.handle)
        if not isinstance(answer, str):
            reserved = Reading(None, words("function_missing")) if answer.reserved is None else Reading(answer.reserved)
            return slot.last._replace(
                total=Reading(answer.total), reserved=reserved, allocated=Reading(answer.allocated),
                free=Reading(answer.free), status="ok", message="", since=None,
            )  # fmt: skip
        if answer in GONE:
            slot.retry_at = time.monotonic() + LOST_PAUSE_S
            return _lost(slot.last, answer)
        if answer == "not_supported" and _is_shared(slot.last):
            total, free = self._host()
            return slot.last._replace(
                total=Reading(total), free=Reading(free), allocated=Reading(total - free),
                reserved=Reading(None, "memory is shared with the system"), shared=True, status="ok",
            )  # fmt: skip
        none = Reading(None, words(answer))
        return slot.last._replace(total=none, reserved=none, allocated=none, free=none)

    def _gauges(self, handle: object) -> Gauges:
        nvml = self.nvml
        rates = nvml.ask("nvmlDeviceGetUtilizationRates", handle)
        share = [Reading(None, words(rates.fault))] * 2
        if not rates.fault:
            share = [Reading(int(rates.value.gpu)), Reading(int(rates.value.memory))]
        temperature = nvml.number("nvmlDeviceGetTemperature", handle, 0)
        if temperature.fault == "function_missing":
            temperature = nvml.number("nvmlDeviceGetTemperatureV", handle, 0)
        power = nvml.number("nvmlDeviceGetPowerUsage", handle)
        return Gauges(
            share[0], share[1], Reading(temperature.value, words(temperature.fault)),
            Reading(power.value, words(power.fault)),
        )  # fmt: skip

    def _processes(self, slot: _Slot, lists: Collection[str]) -> None:
        rows, dropped, fault = self._collect(slot, lists)
        if fault:
            slot.processes, slot.process_note = None, f"processes cannot be listed: {words(fault)}"
            return
        # What lists that are not asked for this time have told before still holds.
        kept = {
            p.pid: p._replace(kinds=rest)
            for p in slot.processes or ()
            if (rest := tuple(kind for kind in p.kinds if kind not in lists))
        }
        found = [self._row(slot, raw, kinds, kept.pop(raw.pid, None)) for raw, kinds in rows.values()]
        slot.processes = tuple(sorted([*kept.values(), *found], key=lambda p: (-(p.memory.value or 0), p.pid)))
        slot.process_note = _note(slot, dropped)

    def _collect(
        self, slot: _Slot, lists: Collection[str]
    ) -> tuple[dict[int, tuple[RawProcess, list[str]]], bool, str]:
        """Rows by PID with the lists that hold them; whether some were impossible; why compute cannot be listed."""
        rows: dict[int, tuple[RawProcess, list[str]]] = {}
        dropped, fault = False, ""
        limit = slot.last.total.value or 1 << 50
        for kind in lists:
            answer = self.nvml.processes(slot.handle, kind)
            if isinstance(answer, str):
                fault = answer if kind == "compute" else fault
                continue
            dropped |= answer[1]
            for row in answer[0]:
                if row.memory is not None and row.memory > limit:
                    dropped = True
                    continue
                known, kinds = rows.get(row.pid, (row, []))
                rows[row.pid] = (max(known, row, key=lambda r: r.memory or 0), [*kinds, kind])
        return rows, dropped, fault

    def _row(self, slot: _Slot, raw: RawProcess, kinds: list[str], other: ProcessSample | None) -> ProcessSample:
        """One process; `other` is what another list told of it: the larger figure counts."""
        name = self.nvml.text("nvmlSystemGetProcessName", raw.pid).value or ""
        process = self._describe(raw.pid, name, raw.memory)
        if other is not None and (other.memory.value or 0) > (process.memory.value or 0):
            process = process._replace(memory=other.memory)
        all_kinds = [k for k in _KINDS if k in kinds or (other is not None and k in other.kinds)]
        if process.memory.value is None and slot.last.wddm:
            process = process._replace(memory=_NOT_TOLD_WDDM)
        return process._replace(kinds=tuple(all_kinds))

    @property
    def all_lost(self) -> bool:
        """Whether there are devices and each of them stopped answering."""
        return bool(self._slots) and all(s.last.status == "lost" for s in self._slots)


def _kept(slot: _Slot) -> tuple[Gauges, tuple[ProcessSample, ...] | None, str]:
    return slot.gauges, slot.processes, slot.process_note


def _note(slot: _Slot, dropped: bool) -> str:
    if dropped:
        return "the driver reports processes wrongly: impossible rows were left out"
    allocated = slot.last.allocated.value or 0
    if not slot.processes and allocated > UNLISTED_WORTH_SAYING and not slot.last.shared and not slot.last.mig:
        return "memory is in use but no process is listed: processes of the host are not visible here"
    return ""


def _lost(last: GpuSample, fault: str) -> GpuSample:
    return last._replace(status="lost", message=f"Lost: {words(fault)}.", since=last.since or time.time())


def _unplug(slot: _Slot) -> bool:
    """Keeps a device that vanished from the list, marked lost."""
    slot.handle = None
    slot.last = _lost(slot.last, "not_found")
    slot.retry_at = time.monotonic() + LOST_PAUSE_S
    return True


def _skipped(position: int, pci: str, before: dict[str, _Slot]) -> GpuSample:
    last = next((s.last for s in before.values() if s.last.pci == pci), GpuSample(position, f"pci-{pci}", pci))
    return last._replace(
        name=last.name or "unknown GPU", status="stalled", since=last.since or time.time(),
        message="This GPU did not answer in time and is left alone for a while.",
    )  # fmt: skip


def _is_shared(sample: GpuSample) -> bool:
    """Whether this GPU has no memory of its own: "not supported" alone is no proof (virtual GPUs say it too)."""
    if sample.compute_capability in _SHARED_CAPABILITIES:
        return True
    from kvplanner.catalog import gpus

    spec = gpus.by_nvml_name(sample.name)
    return spec is not None and spec.unified_memory
