"""What was seen: GPUs and their processes at one moment, as frozen values that travel between processes and to JSON.

A figure that the driver does not give is a Reading without a value and with the reason; it is never 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

from kvplanner.record import NamedTuple

GpuStatus = Literal["ok", "lost", "asleep", "no_permission", "stalled", "failed"]
DriverState = Literal[
    "ok", "no_driver", "not_loaded", "version_mismatch", "no_permission", "no_devices", "lost", "wrong_library",
    "asleep", "stopped", "failed",
]  # fmt: skip
SCHEMA: Final = "kvplanner.gpus/1"


class Reading(NamedTuple):
    """A whole number in its unit, or None and why there is none."""

    value: int | None
    reason: str = ""

    def json(self) -> int | dict[str, str] | None:
        """The value, or {"unavailable": reason}."""
        return self.value if self.value is not None else {"unavailable": self.reason}


NOT_ASKED: Final = Reading(None, "not asked for")


class ProcessSample(NamedTuple):
    """A process that uses a GPU.

    memory: bytes on this GPU. kinds: "compute", "graphics", "mps". local: whether the PID is that of a process
    of this machine's (or container's) own view; name, user, command and created (seconds since 1970) are only
    filled from there, or the name from the driver. engine: name of the recognised engine; root_pid: the process
    that was started by hand, of whose tree this is a part.
    """

    pid: int
    memory: Reading
    kinds: tuple[str, ...]
    name: str = ""
    user: str = ""
    command: tuple[str, ...] = ()
    created: float | None = None
    local: bool = False
    engine: str = ""
    root_pid: int | None = None

    @property
    def key(self) -> tuple[int, float | None]:
        """What tells this process from a later one with the same PID."""
        return self.pid, self.created


class GpuSample(NamedTuple):
    """One GPU or MIG instance. All memory in bytes.

    total = reserved + allocated + free; reserved is the driver's and firmware's own part.
    number: position in PCI order among whole GPUs (of the parent, for an instance). pci: "0000:01:00.0", lower case.
    shared: the memory is the system's own (GB10, Jetson); total and free are then the host's.
    memory_busy: share of time (per cent) in which the memory bus was busy, not how full the memory is.
    processes: None when the list cannot be had, see process_note. message: what is wrong when status is not "ok";
    since: wall time of that. display, ecc, mig: None when the driver does not say.
    """

    number: int
    uuid: str
    pci: str = ""
    name: str = ""
    kind: Literal["gpu", "mig"] = "gpu"
    parent_uuid: str = ""
    gpu_instance: int | None = None
    compute_instance: int | None = None
    compute_capability: tuple[int, int] | None = None
    total: Reading = NOT_ASKED
    reserved: Reading = NOT_ASKED
    allocated: Reading = NOT_ASKED
    free: Reading = NOT_ASKED
    shared: bool = False
    utilization: Reading = NOT_ASKED
    memory_busy: Reading = NOT_ASKED
    temperature: Reading = NOT_ASKED
    power_mw: Reading = NOT_ASKED
    display: bool | None = None
    ecc: bool | None = None
    mig: bool | None = None
    wddm: bool = False
    processes: tuple[ProcessSample, ...] | None = None
    process_note: str = ""
    status: GpuStatus = "ok"
    message: str = ""
    since: float | None = None

    @property
    def listed_bytes(self) -> int:
        """Sum of what the listed processes hold, as far as it is told."""
        return sum(p.memory.value or 0 for p in self.processes or ())

    @property
    def unlisted(self) -> Reading:
        """Allocated memory that no listed process accounts for (never below 0)."""
        if self.allocated.value is None:
            return self.allocated
        return Reading(max(0, self.allocated.value - self.listed_bytes))

    def twins(self, gpus: Sequence[GpuSample]) -> tuple[GpuSample, ...]:
        """Those of `gpus` that show the same memory: compute instances of one GPU instance, itself included."""
        if self.kind == "gpu":
            return (self,)
        place = (self.parent_uuid, self.gpu_instance)
        return tuple(g for g in gpus if g.kind == "mig" and (g.parent_uuid, g.gpu_instance) == place)

    @property
    def label(self) -> str:
        """ "GPU 0", or "GPU 0, slice 3" for a MIG instance."""
        if self.kind == "gpu":
            return f"GPU {self.number}"
        part = "?" if self.gpu_instance is None else str(self.gpu_instance)
        twin = f".{self.compute_instance}" if self.compute_instance else ""
        return f"GPU {self.number}, slice {part}{twin}"

    @property
    def marks(self) -> tuple[str, ...]:
        """Short words that a person should know about this device."""
        words = (
            (self.display, "display"), (self.kind == "mig", "MIG instance"), (self.mig, "MIG on"), (self.ecc, "ECC"),
            (self.shared, "shared with the system"), (self.wddm, "WDDM"),
        )  # fmt: skip
        return tuple(word for present, word in words if present)


class EngineSeen(NamedTuple):
    """A running engine: the process that was started by hand, or the topmost that can be seen.

    engine: name as in ProcessSample; title: for people ("vLLM"). command: its words, () when only children are seen.
    """

    pid: int
    created: float
    engine: str
    title: str
    command: tuple[str, ...] = ()
    user: str = ""


class Snapshot(NamedTuple):
    """Everything seen at one moment.

    seq grows by one per snapshot of a run; monotonic and wall are seconds. state "ok": the driver answers;
    else message and remedy say what is wrong and what to do. interval: seconds between snapshots (0: a single one).
    """

    seq: int
    monotonic: float
    wall: float
    gpus: tuple[GpuSample, ...] = ()
    state: DriverState = "ok"
    message: str = ""
    remedy: str = ""
    driver: str = ""
    cuda: str = ""
    interval: float = 0.0
    processes_at: float | None = None
    engines: tuple[EngineSeen, ...] = ()
    notes: tuple[str, ...] = ()

    def gpu(self, uuid: str) -> GpuSample | None:
        """The device with a UUID, None when it is not there."""
        return next((g for g in self.gpus if g.uuid == uuid), None)


def tail(uuid: str) -> str:
    """The last part of a UUID, enough for a person to tell two GPUs apart."""
    return uuid.rsplit("-", 1)[-1][-6:]


def labels_in_words(gpus: Sequence[GpuSample]) -> str:
    """ "GPU 0–3, GPU 5": runs of whole GPUs are drawn together."""
    words: list[str] = []
    run: list[GpuSample] = []
    for gpu in [*gpus, None]:
        if gpu is not None and run and gpu.kind == run[-1].kind == "gpu" and gpu.number == run[-1].number + 1:
            run.append(gpu)
            continue
        if run:
            words.append(run[0].label if len(run) == 1 else f"{run[0].label}–{run[-1].number}")
        run = [gpu] if gpu is not None else []
    return ", ".join(words)


def process_json(process: ProcessSample) -> dict[str, object]:
    """One process for `kvplanner gpus --local --json`."""
    return {
        "pid": process.pid, "memory_bytes": process.memory.json(), "kinds": list(process.kinds),
        "name": process.name or None, "user": process.user or None, "command": list(process.command),
        "engine": process.engine or None, "root_pid": process.root_pid, "local": process.local,
    }  # fmt: skip


def gpu_json(gpu: GpuSample) -> dict[str, object]:
    """One device for `kvplanner gpus --local --json`: bytes, or {"unavailable": reason}."""
    cc = gpu.compute_capability
    return {
        "index": gpu.number, "kind": gpu.kind, "name": gpu.name, "uuid": gpu.uuid, "pci": gpu.pci,
        "parent_uuid": gpu.parent_uuid or None, "gpu_instance": gpu.gpu_instance,
        "compute_instance": gpu.compute_instance,
        "compute_capability": f"{cc[0]}.{cc[1]}" if cc else None,
        "status": gpu.status, "message": gpu.message or None,
        "total_bytes": gpu.total.json(), "driver_reserved_bytes": gpu.reserved.json(),
        "allocated_bytes": gpu.allocated.json(), "free_bytes": gpu.free.json(),
        "unlisted_bytes": gpu.unlisted.json(), "shared_with_system": gpu.shared,
        "utilization_percent": gpu.utilization.json(), "memory_busy_percent": gpu.memory_busy.json(),
        "temperature_c": gpu.temperature.json(), "power_mw": gpu.power_mw.json(),
        "display": gpu.display, "ecc": gpu.ecc, "mig": gpu.mig,
        "processes": None if gpu.processes is None else [process_json(p) for p in gpu.processes],
        "process_note": gpu.process_note or None,
    }  # fmt: skip


def to_json(snapshot: Snapshot) -> dict[str, object]:
    """The snapshot as plain data (schema kvplanner.gpus/1)."""
    return {
        "schema": SCHEMA, "seq": snapshot.seq, "time": snapshot.wall, "state": snapshot.state,
        "message": snapshot.message or None, "remedy": snapshot.remedy or None,
        "driver": snapshot.driver or None, "cuda": snapshot.cuda or None,
        "gpus": [gpu_json(g) for g in snapshot.gpus],
        "engines": [
            {"pid": e.pid, "engine": e.engine, "title": e.title, "command": list(e.command), "user": e.user or None}
            for e in snapshot.engines
        ],
        "notes": list(snapshot.notes),
    }  # fmt: skip
