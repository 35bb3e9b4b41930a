"""Recordings: snapshots to a CSV file and back, so that a run can be looked at again or sent to someone.

One line per device and per process of a snapshot. A missing figure is the empty cell, its reason stands in `note`.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, TextIO

from kvplanner.errors import BadInput
from kvplanner.files import refuse_no_file
from kvplanner.observe.snapshot import EngineSeen, GpuSample, GpuStatus, ProcessSample, Reading, Snapshot
from kvplanner.printable import cut, inert, printable
from kvplanner.reading import LocalFile, open_file

FORMAT: Final = "kvplanner.recording/1"
HEADER: Final = (
    "kind", "seq", "wall_s", "monotonic_s", "interval_s", "number", "uuid", "pci", "name", "device_kind", "parent_uuid",
    "gpu_instance", "total_bytes", "reserved_bytes", "allocated_bytes", "free_bytes", "shared", "utilization_percent",
    "temperature_c", "power_mw", "status", "note", "pid", "process_bytes", "process_kinds", "process_name", "user",
    "engine", "root_pid",
)  # fmt: skip
MAX_FILE_BYTES: Final = 2 << 30
MAX_LINE: Final = 40_000
# Of one snapshot: the largest machines have 16 GPUs, each cut into 7 at most.
MAX_GPUS: Final = 256
MAX_ROWS: Final = 20_000
LARGEST: Final = (1 << 63) - 1
LATEST_S: Final = 1e11
_MOST_DIGITS: Final = 20
_PIECE: Final = 64 << 10
_CHOOSE: Final = "Choose a CSV file that was recorded here"
_REMEDY: Final = "Record it again, or take the line out"
_STATUS: Final[dict[str, GpuStatus]] = {
    "ok": "ok", "lost": "lost", "asleep": "asleep", "no_permission": "no_permission", "stalled": "stalled",
    "failed": "failed",
}  # fmt: skip


class Recorder:
    """Writes snapshots to a file as they come. close() it; each snapshot is complete on disk after add()."""

    def __init__(self, path: Path) -> None:
        """Raises OSError when the file cannot be made."""
        refuse_no_file(path)  # opening a pipe waits for a reader
        self.path = path
        self.snapshots = 0
        self._file: TextIO = path.open("w", encoding="utf-8", newline="")
        self._write = csv.writer(self._file)
        try:
            self._write.writerow((f"# {FORMAT}",))
            self._write.writerow(HEADER)
            self._file.flush()
        except OSError:
            self.close()
            raise

    def add(self, snapshot: Snapshot) -> None:
        """One snapshot. Raises OSError when the disk is full, with the snapshots before it whole in the file."""
        whole = os.fstat(self._file.fileno()).st_size
        try:
            for gpu in snapshot.gpus:
                self._write.writerow(_gpu_row(snapshot, gpu))
                self._write.writerows(_process_row(snapshot, gpu, p) for p in gpu.processes or ())
            self._file.flush()
        except OSError:
            self.close()
            os.truncate(self.path, whole)
            raise
        self.snapshots += 1

    def close(self) -> None:
        """Ends the recording, also where the disk has no room for what was to be written last."""
        with suppress(OSError):
            self._file.close()


def _cell(reading: Reading) -> int | str:
    return "" if reading.value is None else reading.value


def _gpu_row(snapshot: Snapshot, gpu: GpuSample) -> tuple[object, ...]:
    instance = "" if gpu.gpu_instance is None else gpu.gpu_instance
    reason = next((r.reason for r in (gpu.total, gpu.reserved) if r.value is None), "")
    return (
        "gpu", snapshot.seq, f"{snapshot.wall:.3f}", f"{snapshot.monotonic:.3f}", f"{snapshot.interval:g}", gpu.number,
        gpu.uuid, gpu.pci, inert(gpu.name), gpu.kind, gpu.parent_uuid, instance, _cell(gpu.total), _cell(gpu.reserved),
        _cell(gpu.allocated), _cell(gpu.free), int(gpu.shared), _cell(gpu.utilization), _cell(gpu.temperature),
        _cell(gpu.power_mw), gpu.status, inert(gpu.message or reason), "", "", "", "", "", "", "",
    )  # fmt: skip


def _process_row(snapshot: Snapshot, gpu: GpuSample, process: ProcessSample) -> tuple[object, ...]:
    root = "" if process.root_pid is None else process.root_pid
    head = ("process", snapshot.seq, f"{snapshot.wall:.3f}", f"{snapshot.monotonic:.3f}", "", gpu.number, gpu.uuid)
    return (
        *head, *("",) * 14, inert(process.memory.reason), process.pid, _cell(process.memory),
        " ".join(process.kinds), inert(process.name), inert(process.user), process.engine, root,
    )  # fmt: skip


def replay(path: Path, progress: Callable[[float], None] | None = None) -> Iterator[Snapshot]:
    """The snapshots of a recording, one at a time. progress: told the share of the file that was read, 0 to 1.

    Raises BadInput that names the line, also where the file cannot be read.
    """
    with open_file(path) as source:
        if source.size > MAX_FILE_BYTES:
            raise BadInput("larger than a recording can be (2 GiB)", str(path), _CHOOSE)
        lines = _Lines(source, path)
        rows = csv.reader(lines)
        try:
            first, header = next(rows, []), next(rows, [])
        except csv.Error as error:
            raise BadInput(f"is no recording of kvplanner ({error})", str(path), _CHOOSE) from None
        if first[:1] != [f"# {FORMAT}"]:
            raise BadInput(_kind_of(first), str(path), _CHOOSE)
        if missing := sorted(set(HEADER) - set(header)):
            raise BadInput(f"lacks the columns {', '.join(missing[:4])}", str(path), _CHOOSE)
        if len(set(header)) != len(header):
            raise BadInput("names a column twice", str(path), _CHOOSE)
        for snapshot in _snapshots(path, header, rows, lines):
            if progress is not None:
                progress(lines.taken / max(1, source.size))
            yield snapshot


def _kind_of(first: list[str]) -> str:
    """What a file without our mark is: that of a newer version, or no recording."""
    text = first[0] if first else ""
    if text.startswith("# kvplanner.recording/"):
        return f"is a recording of another version ({text[2:60]!r})"
    return "is no recording of kvplanner"


class _Lines:
    """The lines of a file, one at a time, each within bounds; read: bytes so far, number: lines so far."""

    def __init__(self, source: LocalFile, path: Path) -> None:
        self.read = self.number = 0
        self._source, self._path = source, path
        self._have = b""
        self._at = 0

    @property
    def taken(self) -> int:
        """Bytes of the lines that were given so far."""
        return self.read - len(self._have) + self._at

    @property
    def cut_off(self) -> bool:
        """Whether the line given last is the file's last and has no end."""
        return self.taken == self._source.size and not self._have.endswith(b"\n")

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> str:
        while (end := self._have.find(b"\n", self._at) + 1) == 0 and self.read < self._source.size:
            part = self._source.read(self.read, min(_PIECE, self._source.size - self.read))
            self.read += len(part)
            self._have, self._at = self._have[self._at :] + part, 0
            if len(self._have) > MAX_LINE + _PIECE:
                break
        line = self._have[self._at : end or None]
        self._at += len(line)
        if not line:
            raise StopIteration
        self.number += 1
        if b"\0" in line or len(line) > MAX_LINE:
            raise BadInput("a line is no text of a recording", f"{self._path}, line {self.number}", _REMEDY)
        return line.decode("utf-8", "replace")


def _rows(path: Path, rows: Iterator[list[str]], lines: _Lines) -> Iterator[list[str]]:
    """What the CSV reader finds, its own errors in our words."""
    while True:
        try:
            row = next(rows, None)
        except csv.Error as error:
            # A quote that is never closed takes the rest of the file for one cell.
            raise BadInput(
                f"a cell is no text of a recording ({error})", f"{path}, line {lines.number}", _REMEDY
            ) from None
        if row is None:
            return
        yield row


def _snapshots(path: Path, header: list[str], rows: Iterator[list[str]], lines: _Lines) -> Iterator[Snapshot]:
    current: Snapshot | None = None
    gpus: dict[str, GpuSample] = {}
    processes: dict[str, list[ProcessSample]] = {}
    held = 0
    for row in _rows(path, rows, lines):
        number = lines.number
        if len(row) != len(header):
            if not row:
                continue
            if lines.cut_off:  # its program was killed, or its disk was full: what came last is not whole
                return
            raise BadInput(f"{len(row)} cells where {len(header)} are expected", f"{path}, line {number}", _REMEDY)
        held += 1
        if len(gpus) > MAX_GPUS or held > MAX_ROWS:
            many = f"{MAX_GPUS:,} GPUs" if len(gpus) > MAX_GPUS else f"{MAX_ROWS:,} rows"
            raise BadInput(f"a snapshot of more than {many}", f"{path}, line {number}", _REMEDY)
        cells = dict(zip(header, map(printable, row), strict=True))
        try:
            head = _head(cells)
            if current is not None and head.seq != current.seq:
                yield _whole(current, gpus, processes)
                gpus, processes, held = {}, {}, 1
            if cells["kind"] == "gpu":
                current = head
                gpus[cells["uuid"]] = _gpu(cells)
            elif cells["kind"] == "process" and current is not None and cells["uuid"] in gpus:
                processes.setdefault(cells["uuid"], []).append(_process(cells))
            else:
                raise BadInput(f"a line of the kind {cells['kind']!r} stands here", f"{path}, line {number}", _REMEDY)
        except (ValueError, OverflowError) as error:
            raise BadInput(f"a cell is no number of a recording ({cut(str(error), 80)})", f"{path}, line {number}",
                           _REMEDY) from None  # fmt: skip
    if current is not None:
        yield _whole(current, gpus, processes)


def _whole(head: Snapshot, gpus: dict[str, GpuSample], processes: dict[str, list[ProcessSample]]) -> Snapshot:
    filled = tuple(g._replace(processes=tuple(processes.get(uuid, ()))) for uuid, g in gpus.items())
    roots = {p.root_pid: p for found in processes.values() for p in found if p.root_pid is not None}
    engines = tuple(EngineSeen(pid, 0.0, p.engine, p.engine, (), p.user) for pid, p in sorted(roots.items()))
    return head._replace(gpus=filled, engines=engines, processes_at=head.monotonic)


def _head(cells: dict[str, str]) -> Snapshot:
    wall, monotonic, interval = (_seconds(cells[k]) for k in ("wall_s", "monotonic_s", "interval_s"))
    return Snapshot(_whole_number(cells["seq"]), monotonic, wall, interval=interval)


def _seconds(text: str) -> float:
    """Seconds of a clock that a date can be made of."""
    value = float(text or 0)
    if not 0 <= value <= LATEST_S:
        raise ValueError(text)
    return value


def _whole_number(text: str) -> int:
    value = int(text) if len(text) <= _MOST_DIGITS else -1
    if not 0 <= value <= LARGEST:
        raise ValueError(text)
    return value


def _reading(text: str, reason: str) -> Reading:
    return Reading(_whole_number(text)) if text else Reading(None, reason or "not recorded")


def _gpu(cells: dict[str, str]) -> GpuSample:
    note = cells["note"]
    if cells["status"] not in _STATUS:
        raise ValueError(cells["status"])
    return GpuSample(
        _whole_number(cells["number"]), cells["uuid"], cells["pci"], cells["name"],
        kind="mig" if cells["device_kind"] == "mig" else "gpu", parent_uuid=cells["parent_uuid"],
        gpu_instance=_whole_number(cells["gpu_instance"]) if cells["gpu_instance"] else None,
        total=_reading(cells["total_bytes"], note), reserved=_reading(cells["reserved_bytes"], note),
        allocated=_reading(cells["allocated_bytes"], note), free=_reading(cells["free_bytes"], note),
        shared=cells["shared"] == "1", utilization=_reading(cells["utilization_percent"], ""),
        temperature=_reading(cells["temperature_c"], ""), power_mw=_reading(cells["power_mw"], ""),
        processes=(), status=_STATUS[cells["status"]], message=note if cells["status"] != "ok" else "",
    )  # fmt: skip


def _process(cells: dict[str, str]) -> ProcessSample:
    return ProcessSample(
        _whole_number(cells["pid"]), _reading(cells["process_bytes"], cells["note"]),
        tuple(cells["process_kinds"].split()), cells["process_name"], cells["user"], engine=cells["engine"],
        root_pid=_whole_number(cells["root_pid"]) if cells["root_pid"] else None,
    )  # fmt: skip
