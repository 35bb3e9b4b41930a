"""This machine's GPUs for the terminal: as a machine to plan for, as a table, again and again."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kvplanner.cli.output import BAD_INPUT, FITS, emit_json, note, say, written
from kvplanner.report.table import table
from kvplanner.units import format_bytes

if TYPE_CHECKING:
    from kvplanner.gpu.spec import Machine
    from kvplanner.observe.snapshot import GpuSample, ProcessSample, Reading, Snapshot

_CLEAR: Final = "\x1b[2J\x1b[H\x1b[A"
_COMMAND_WIDTH: Final = 60


def machine() -> Machine | None:
    """The GPUs that an engine started here would see, None when there is none to be seen."""
    from kvplanner.observe.local import probe
    from kvplanner.observe.machine import local_machine

    return local_machine(probe())


def show(*, as_json: bool) -> int:
    """Prints what is seen once; status 2 when the driver does not answer."""
    from kvplanner.observe.local import probe

    snapshot = probe()
    _print(snapshot, as_json=as_json)
    return _status(snapshot)


def watch(*, as_json: bool) -> int:
    """Prints every snapshot until interrupted: one JSON document a line, or a table that is drawn anew."""
    from kvplanner.observe.local import watch as snapshots

    status = BAD_INPUT
    try:
        for snapshot in snapshots():
            status = _status(snapshot)
            if not as_json and sys.stdout.isatty():
                say(_CLEAR, painted=True)
            _print(snapshot, as_json=as_json, lines=True)
            with written():
                sys.stdout.flush()
            if snapshot.state == "no_driver":
                break
    except KeyboardInterrupt:
        pass
    return status


def _status(snapshot: Snapshot) -> int:
    return FITS if snapshot.state in ("ok", "asleep") else BAD_INPUT


def _print(snapshot: Snapshot, *, as_json: bool, lines: bool = False) -> None:
    if as_json:
        from kvplanner.observe.snapshot import to_json

        emit_json(to_json(snapshot), on_one_line=lines)
    elif snapshot.gpus:
        say("\n".join(_lines(snapshot)))
    if snapshot.message:
        note(f"{snapshot.message} {snapshot.remedy}")


def _lines(snapshot: Snapshot) -> Iterator[str]:
    heads = ("", "GPU", "total", "free", "in use", "driver's", "busy", "", "")
    yield from table([heads, *map(_gpu_row, snapshot.gpus)], "<<>>>>><<")
    listed = [_process_row(gpu, process) for gpu in snapshot.gpus for process in gpu.processes or ()]
    if listed:
        yield ""
        yield from table([("", "memory", "pid", "user", "what", "command"), *listed], "<>><<<")
    for engine in snapshot.engines:
        yield f"{engine.title} runs as process {engine.pid}: {' '.join(engine.command)[:_COMMAND_WIDTH]}"
    yield from (f"{gpu.label}: {gpu.process_note}" for gpu in snapshot.gpus if gpu.process_note)
    yield from snapshot.notes
    if snapshot.driver:
        yield f"driver {snapshot.driver}" + (f", CUDA {snapshot.cuda}" if snapshot.cuda else "")


def _gpu_row(gpu: GpuSample) -> tuple[str, ...]:
    busy = f"{gpu.utilization.value} %" if gpu.utilization.value is not None else "?"
    sizes = (gpu.total, gpu.free, gpu.allocated, gpu.reserved)
    return (gpu.label, gpu.name, *map(_size, sizes), busy, ", ".join(gpu.marks), gpu.message)


def _size(reading: Reading) -> str:
    return format_bytes(reading.value) if reading.value is not None else "?"


def _process_row(gpu: GpuSample, process: ProcessSample) -> tuple[str, ...]:
    what = process.engine or "/".join(process.kinds)
    command = " ".join(process.command) or process.name
    return (gpu.label, _size(process.memory), str(process.pid), process.user, what, command[:_COMMAND_WIDTH])
