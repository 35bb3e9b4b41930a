"""Recordings: snapshots to a CSV file and back, so that a run can be looked at again or sent to someone.

One line per device and per process of a snapshot. A missing figure is the empty cell, its reason stands in `note`.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, TextIO

from kvplanner.errors import BadInput
from kvplanner.observe.snapshot import EngineSeen, GpuSample, GpuStatus, ProcessSample, Reading, Snapshot

FORMAT: Final = "kvplanner.recording/1"
HEADER: Final = (
    "kind", "seq", "wall_s", "monotonic_s", "interval_s", "number", "uuid", "pci", "name", "device_kind", "parent_uuid",
    "gpu_instance", "total_bytes", "reserved_bytes", "allocated_bytes", "free_bytes", "shared", "utilization_percent",
    "temperature_c", "power_mw", "status", "note", "pid", "process_bytes", "process_kinds", "process_name", "user",
    "engine", "root_pid",
)  # fmt: skip
MAX_FILE_BYTES: Final = 2 << 30
MAX_CELL: Final = 10_000
_REMEDY: Final = "Record it again, or take the line out"
_STATUS: Final[dict[str, GpuStatus]] = {
    "ok": "ok", "lost": "lost", "asleep": "asleep", "no_permission": "no_permission", "stalled": "stalled",
    "failed": "failed",
}  # fmt: skip


class Recorder:
    """Writes snapshots to a file as they come. close() it; each snapshot is complete on disk after add()."""

    def __init__(self, path: Path) -> None:
        """Raises OSError when the file cannot be made."""
        self.path = path
        self.snapshots = 0
        self._file: TextIO = path.open("w", encoding="utf-8", newline="")
        self._write = csv.writer(self._file)
        self._write.writerow((f"# {FORMAT}",))
        self._write.writerow(HEADER)

    def add(self, snapshot: Snapshot) -> None:
        """One snapshot. Raises OSError when the disk is full."""
        for gpu in snapshot.gpus:
            self._write.writerow(_gpu_row(snapshot, gpu))
            self._write.writerows(_process_row(snapshot, gpu, p) for p in gpu.processes or ())
        self.snapshots += 1
        self._file.flush()

    def close(self) -> None:
        """Ends the recording."""
        self._file.close()


def _cell(reading: Reading) -> int | str:
    return "" if reading.value is None else reading.value


def _gpu_row(snapshot: Snapshot, gpu: GpuSample) -> tuple[object, ...]:
    instance = "" if gpu.gpu_instance is None else gpu.gpu_instance
    reason = next((r.reason for r in (gpu.total, gpu.reserved) if r.value is None), "")
    return (
        "gpu", snapshot.seq, f"{snapshot.wall:.3f}", f"{snapshot.monotonic:.3f}", f"{snapshot.interval:g}", gpu.number,
        gpu.uuid, gpu.pci, _safe(gpu.name), gpu.kind, gpu.parent_uuid, instance, _cell(gpu.total), _cell(gpu.reserved),
        _cell(gpu.allocated), _cell(gpu.free), int(gpu.shared), _cell(gpu.utilization), _cell(gpu.temperature),
        _cell(gpu.power_mw), gpu.status, _safe(gpu.message or reason), "", "", "", "", "", "", "",
    )  # fmt: skip


def _process_row(snapshot: Snapshot, gpu: GpuSample, process: ProcessSample) -> tuple[object, ...]:
    root = "" if process.root_pid is None else process.root_pid
    head = ("process", snapshot.seq, f"{snapshot.wall:.3f}", f"{snapshot.monotonic:.3f}", "", gpu.number, gpu.uuid)
    return (
        *head, *("",) * 14, _safe(process.memory.reason), process.pid, _cell(process.memory),
        " ".join(process.kinds), _safe(process.name), _safe(process.user), process.engine, root,
    )  # fmt: skip


def _safe(text: str) -> str:
    """Text that a spreadsheet does not take for a formula."""
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text


def replay(path: Path) -> Iterator[Snapshot]:
    """The snapshots of a recording, one at a time. Raises BadInput that names the line, OSError."""
    if path.stat().st_size > MAX_FILE_BYTES:
        raise BadInput("larger than a recording can be (2 GiB)", str(path), "Choose a CSV file that was recorded here")
    with path.open(encoding="utf-8", errors="replace", newline="") as file:
        rows = csv.reader(_bounded(file, path))
        first = next(rows, [])
        if first[:1] != [f"# {FORMAT}"]:
            raise BadInput("is no recording of kvplanner", str(path), "Choose a CSV file that was recorded here")
        header = next(rows, [])
        missing = sorted(set(HEADER) - set(header))
        if missing:
            raise BadInput(
                f"lacks the columns {', '.join(missing[:4])}", str(path), "Choose a CSV file that was recorded here"
            )
        yield from _snapshots(path, header, rows)


def _bounded(file: TextIO, path: Path) -> Iterator[str]:
    number = 0
    while line := file.readline(MAX_CELL * 4):
        number += 1
        if "\0" in line or len(line) >= MAX_CELL * 4:
            raise BadInput("a line is no text of a recording", f"{path}, line {number}", _REMEDY)
        yield line


def _snapshots(path: Path, header: list[str], rows: Iterable[list[str]]) -> Iterator[Snapshot]:
    current: Snapshot | None = None
    gpus: dict[str, GpuSample] = {}
    processes: dict[str, list[ProcessSample]] = {}
    for number, row in enumerate(rows, start=3):
        if len(row) != len(header):
            if not row:
                continue
            raise BadInput(f"{len(row)} cells where {len(header)} are expected", f"{path}, line {number}", _REMEDY)
        cells = dict(zip(header, row, strict=True))
        try:
            head = _head(cells)
            if current is not None and head.seq != current.seq:
                yield _whole(current, gpus, processes)
                gpus, processes = {}, {}
            if cells["kind"] == "gpu":
                current = head
                gpus[cells["uuid"]] = _gpu(cells)
            elif cells["kind"] == "process" and current is not None and cells["uuid"] in gpus:
                processes.setdefault(cells["uuid"], []).append(_process(cells))
            else:
                raise BadInput(f"a line of the kind {cells['kind']!r} stands here", f"{path}, line {number}", _REMEDY)
        except (ValueError, OverflowError) as error:
            raise BadInput(f"a cell is no number ({error})", f"{path}, line {number}", _REMEDY) from None
    if current is not None:
        yield _whole(current, gpus, processes)


def _whole(head: Snapshot, gpus: dict[str, GpuSample], processes: dict[str, list[ProcessSample]]) -> Snapshot:
    filled = tuple(g._replace(processes=tuple(processes.get(uuid, ()))) for uuid, g in gpus.items())
    roots = {p.root_pid: p for found in processes.values() for p in found if p.root_pid is not None}
    engines = tuple(EngineSeen(pid, 0.0, p.engine, p.engine, (), p.user) for pid, p in sorted(roots.items()))
    return head._replace(gpus=filled, engines=engines, processes_at=head.monotonic)


def _head(cells: dict[str, str]) -> Snapshot:
    wall, monotonic, interval = (_finite(cells[k]) for k in ("wall_s", "monotonic_s", "interval_s"))
    return Snapshot(int(cells["seq"]), monotonic, wall, interval=interval)


def _finite(text: str) -> float:
    value = float(text or 0)
    if not math.isfinite(value):
        raise ValueError(text)
    return value


def _reading(text: str, reason: str) -> Reading:
    return Reading(int(text)) if text else Reading(None, reason or "not recorded")


def _gpu(cells: dict[str, str]) -> GpuSample:
    note = cells["note"]
    if cells["status"] not in _STATUS:
        raise ValueError(cells["status"])
    return GpuSample(
        int(cells["number"]), cells["uuid"], cells["pci"], cells["name"],
        kind="mig" if cells["device_kind"] == "mig" else "gpu", parent_uuid=cells["parent_uuid"],
        gpu_instance=int(cells["gpu_instance"]) if cells["gpu_instance"] else None,
        total=_reading(cells["total_bytes"], note), reserved=_reading(cells["reserved_bytes"], note),
        allocated=_reading(cells["allocated_bytes"], note), free=_reading(cells["free_bytes"], note),
        shared=cells["shared"] == "1", utilization=_reading(cells["utilization_percent"], ""),
        temperature=_reading(cells["temperature_c"], ""), power_mw=_reading(cells["power_mw"], ""),
        processes=(), status=_STATUS[cells["status"]], message=note if cells["status"] != "ok" else "",
    )  # fmt: skip


def _process(cells: dict[str, str]) -> ProcessSample:
    return ProcessSample(
        int(cells["pid"]), _reading(cells["process_bytes"], cells["note"]), tuple(cells["process_kinds"].split()),
        cells["process_name"], cells["user"], engine=cells["engine"],
        root_pid=int(cells["root_pid"]) if cells["root_pid"] else None,
    )  # fmt: skip
