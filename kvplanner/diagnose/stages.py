"""A log's own figures laid over a plan: per device what each part measured, and how full it was at each stage."""

from __future__ import annotations

from typing import Final

from kvplanner.diagnose.diagnosis import Diagnosis
from kvplanner.engine.plan import DevicePlan, Plan
from kvplanner.engine.segment import SegmentKind
from kvplanner.record import NamedTuple

# Parts that a log measures under their own name, and the figures that stand for them.
_FIGURES: Final[dict[SegmentKind, str]] = {
    "weights": "weights", "runtime": "runtime", "activations": "activations", "cuda_graphs": "cuda_graphs",
    "kv_cache": "kv_cache", "compute": "compute",
}  # fmt: skip
_LAST: Final[tuple[SegmentKind, ...]] = ("fragmentation", "headroom")


class LoggedPart(NamedTuple):
    """A part of the device in the plan's order, in bytes; measured: by the log, else it is the plan's."""

    kind: SegmentKind
    bytes: int
    measured: bool


class LoggedStage(NamedTuple):
    """How full the device was at the end of a stage and at its highest, in bytes from zero; peak None where unknown."""

    stage: str
    end_bytes: int
    peak_bytes: int | None = None


class Logged(NamedTuple):
    """A log over one device of a plan (a position in plan.devices)."""

    device: int
    parts: tuple[LoggedPart, ...]
    stages: tuple[LoggedStage, ...]


def over(found: Diagnosis, plan: Plan) -> tuple[Logged, ...]:
    """The log over each device that it has figures of; those of one process that counts stand for all devices alike."""
    out: list[Logged] = []
    names = found.devices
    for position, device in enumerate(plan.devices):
        if device.device.kind != "gpu":
            continue
        name = names[device.device.index] if len(names) > 1 and device.device.index < len(names) else ""
        sizes = {
            kind: size
            for kind, figure in _FIGURES.items()
            if (size := found.of_device(figure, name) if name else found.size(figure)) is not None and size >= 0
        }
        if not sizes:
            continue
        free = found.of_device("free_at_start", name) if name else found.size("free_at_start")
        after = found.size("free_after_load")
        out.append(Logged(position, _parts(device, sizes), _stages(device, sizes, free, after)))
    return tuple(out)


def _parts(device: DevicePlan, sizes: dict[SegmentKind, int]) -> tuple[LoggedPart, ...]:
    return tuple(
        LoggedPart(s.kind, sizes.get(s.kind, s.bytes), s.kind in sizes) for s in device.segments if s.kind not in _LAST
    )


def _stages(
    device: DevicePlan, sizes: dict[SegmentKind, int], free: int | None, after_load: int | None
) -> tuple[LoggedStage, ...]:
    """Only stages all of whose parts the log measures, above what was there before: that is the plan's where the log
    does not state what was free.
    """
    planned = {s.kind: s.bytes for s in device.segments}
    before = sum(planned.get(kind, 0) for kind in ("driver_reserved", "other", "runtime_outside"))
    in_use = device.total_bytes - free if free is not None else before
    made: dict[str, LoggedStage] = {}
    if free is not None:
        made["start"] = LoggedStage("start", in_use)
    if "weights" not in sizes and after_load is None:
        return tuple(made[s.stage] for s in device.stages if s.stage in made)
    loaded = device.total_bytes - after_load if after_load is not None else in_use + sizes["weights"]
    made["load"] = LoggedStage("load", loaded)
    runtime = sizes.get("runtime", 0)
    if "activations" in sizes:
        made["profile"] = LoggedStage("profile", loaded + runtime, loaded + runtime + sizes["activations"])
    if "kv_cache" in sizes:
        loaded += runtime + sizes["kv_cache"]
        made["allocate"] = LoggedStage("allocate", loaded)
        made["cache"] = LoggedStage("cache", loaded)
        if "cuda_graphs" in sizes:
            made["graphs"] = LoggedStage("graphs", loaded + sizes["cuda_graphs"])
        if "compute" in sizes:
            made["reserve"] = LoggedStage("reserve", loaded + sizes["compute"])
    return tuple(made[s.stage] for s in device.stages if s.stage in made)
