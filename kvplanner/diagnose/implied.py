"""The plan that a log implies, the same with what the log measured in place of estimates, and what to change."""

from __future__ import annotations

from typing import Final, Literal

from kvplanner.catalog import gpus
from kvplanner.diagnose.diagnosis import Diagnosis, request_of
from kvplanner.diagnose.findings import Finding, contradictions
from kvplanner.engine.plan import Plan
from kvplanner.engine.registry import engine
from kvplanner.engine.request import PlanRequest
from kvplanner.gpu.spec import Device, GpuSpec, Machine
from kvplanner.model.model import Model
from kvplanner.record import NamedTuple
from kvplanner.solve.others import more_gpus, others
from kvplanner.solve.remedies import Remedy, aim_of, remedies
from kvplanner.units import MIB

# Estimates that a log's figure may replace: what is exact (weights, the cache's layout) stays as it is planned.
_REPLACED: Final = ("runtime", "activations", "cuda_graphs", "compute")
# A cache that is smaller than the log's other figures leave is met by more runtime, up to this share of the GPU: more
# is another GPU than the plan's, or another program beside the engine.
_MOST_UNACCOUNTED: Final = 0.25
_CLOSE: Final = 64 * MIB
# Of the GPU's memory, as the log states it and as the catalogue knows it.
_OTHER_GPU: Final = 0.02
_FREE_SOURCE: Final = "the log"

# same: both start, or both fail at one stage. doubt: the plan may fail where the log does. stage: the plan fails
# elsewhere. log: the log alone fails. plan: the plan alone does.
Agreement = Literal["same", "doubt", "stage", "log", "plan"]


class Implied(NamedTuple):
    """plan: of the log's options alone. measured: the same with the log's own figures; the remedies are of it.

    findings: exact figures of the plan that the log prints otherwise.
    unaccounted_bytes: KV cache that the log has less than its figures explain, counted as runtime in `measured` unless
    unexplained. other_total_bytes: the GPU's memory by the log where that is another than the plan's GPU, else None.
    """

    plan: Plan
    measured: Plan
    remedies: tuple[Remedy, ...]
    agreement: Agreement
    unaccounted_bytes: int = 0
    unexplained: bool = False
    other_total_bytes: int | None = None
    findings: tuple[Finding, ...] = ()

    @property
    def of_another_machine(self) -> bool:
        """Whether the log's figures cannot be of the plan's GPUs: there are no remedies then."""
        return self.unexplained or self.other_total_bytes is not None

    @property
    def request(self) -> PlanRequest:
        """The request that the remedies change."""
        return self.measured.request


def implied(found: Diagnosis, model: Model, machine: Machine) -> Implied:
    """Plans what a log started. machine: of one GPU stands for as many as the log's options use.

    Raises PlannerError where there is no plan.
    """
    request = request_of(found, model, _enough(found, machine))
    chosen = engine(found.engine)
    plan = chosen.plan(request)
    other = _other_total(found, plan)
    if other is not None:
        return Implied(plan, plan, (), agreement(found, plan), other_total_bytes=other)
    with_figures = _with_figures(found, request, plan)
    measured = chosen.plan(with_figures) if with_figures != request else plan
    closed, unaccounted = _closed(found, measured)
    if closed is None:
        return Implied(plan, measured, (), agreement(found, measured), unaccounted, unexplained=True)
    findings = contradictions(found, plan)
    return Implied(plan, closed, _remedies(found, closed), agreement(found, closed), unaccounted, findings=findings)


def gpus_named(found: Diagnosis) -> str:
    """The machine as --gpu reads it, where the log names all its GPUs: "" otherwise."""
    if not found.devices:
        return _listed(found)
    parts: list[str] = []
    for device in found.devices:
        number = device[len(device.rstrip("0123456789")) :]  # as lists of what there is name it
        name = found.stated_of("gpu_name", device) or found.stated_of("gpu_name", number)
        total = found.of_device("gpu_total", device)
        if name is None:
            return ""
        spec = gpus.by_nvml_name(str(name.value), total)
        if spec is None and total is None:
            return ""
        parts.append(f"1x{_board(spec, total)}" if spec is not None else f"1x{(total or 0) // MIB}MiB")
    return ",".join(parts)


def _listed(found: Diagnosis) -> str:
    """As many GPUs as its options use, of those that stand listed beside the log, where all of these are alike."""
    listed = [str(s.value) for s in found.reading.stated if s.name == "gpu_name"]
    spec = gpus.by_nvml_name(listed[0]) if listed and len(set(listed)) == 1 else None
    total = found.size("gpu_total")
    if spec is None or len(listed) < found.gpus:
        return ""
    if total is not None and spec.cuda_total is not None and abs(total / spec.cuda_total.value - 1) > _OTHER_GPU:
        return ""
    return f"{found.gpus}x{spec.id}"


def gpus_of_its_size(found: Diagnosis) -> str:
    """As many GPUs as the log's options use, of the memory that it states, as --gpu reads them; "" where it has none.

    For where nobody names the GPU: its name decides more than its memory.
    """
    total = found.size("gpu_total")
    return f"{found.gpus}x{total // MIB}MiB" if total else ""


def has_memory_of(found: Diagnosis, machine: Machine) -> bool:
    """Whether a machine's first GPU may be the log's, by its memory; true where either is not known."""
    stated, seen = found.size("gpu_total"), machine.devices[0].gpu.cuda_total
    return stated is None or seen is None or abs(stated / seen.value - 1) <= _OTHER_GPU


def _board(spec: GpuSpec, seen: int | None) -> str:
    """A GPU as --gpu reads it, with its memory where CUDA sees another than the catalogue's card has."""
    if seen is None or spec.total is None or spec.cuda_total is None:
        return spec.id
    if abs(seen / spec.cuda_total.value - 1) <= _OTHER_GPU:
        return spec.id
    return f"{spec.id} {(seen + spec.total.value - spec.cuda_total.value) // MIB}MiB"


def machine_of(found: Diagnosis, machine: Machine | None = None) -> Machine | None:
    """The GPUs that the log names, else those of a machine; of one GPU as many as the log's options use.

    Raises PlannerError.
    """
    named = gpus_named(found)
    chosen = gpus.machine(named) if named else machine
    return None if chosen is None else _enough(found, chosen)


def _enough(found: Diagnosis, machine: Machine) -> Machine:
    return more_gpus(machine, found.gpus) if len(machine.devices) == 1 and found.gpus > 1 else machine


def agreement(found: Diagnosis, plan: Plan) -> Agreement:
    """How a plan's end compares with the log's."""
    if found.stage is None:
        return "plan" if plan.fits is False and found.reading.started else "same"
    if plan.stage == found.stage:
        return "same"
    if plan.stage is not None:
        return "stage"
    doubt = plan.verdict.doubt
    return "doubt" if doubt is not None and doubt.stage == found.stage else "log"


def _other_total(found: Diagnosis, plan: Plan) -> int | None:
    if len(found.devices) > 1:
        return None
    stated, planned = found.size("gpu_total"), plan.devices[plan.tightest].cuda_total_bytes
    if stated is None or not planned or abs(stated / planned - 1) <= _OTHER_GPU:
        return None
    return stated


def _with_figures(found: Diagnosis, request: PlanRequest, plan: Plan) -> PlanRequest:
    """The request with what the log measured; what was free at the start only where that is why it failed."""
    one = len(found.devices) < 2  # figures of unlike devices are no one figure
    sizes = {name: size for name in _REPLACED if one and (size := found.size(name)) is not None and size >= 0}
    changed = request._replace(measured={**request.measured, **sizes})
    if found.stage != "free_memory_check" and not found.devices:
        return changed
    # The engine asks CUDA, whose context is there by then.
    context = plan.devices[plan.tightest].segment("runtime_outside")
    devices: list[Device] = []
    for place, device in enumerate(request.machine.devices):
        name = found.devices[place] if place < len(found.devices) else ""
        free = found.of_device("free_at_start", name) if name else found.size("free_at_start")
        before = None if free is None else free + (context.bytes if context else 0)
        devices.append(device if before is None else device._replace(free_bytes=before, free_source=_FREE_SOURCE))
    return changed._replace(machine=request.machine._replace(devices=tuple(devices)))


def _closed(found: Diagnosis, plan: Plan) -> tuple[Plan | None, int]:
    """The plan whose cache is as large as the log's, with what was still missing; None where too much is.

    Only what the engine leaves for the cache can tell: a cache of a size that was asked for cannot, and gives the plan
    as it is.
    """
    cache, stated, device = plan.kv_cache, found.size("kv_cache"), plan.devices[plan.tightest]
    runtime = device.segment("runtime")
    summed = found.reading.best("kv_cache") is None  # a pool beside others: those of states, those of a draft
    if cache is None or stated is None or runtime is None or device.budget is None or summed:
        return plan, 0
    missing = cache.available.value - stated
    if missing > _MOST_UNACCOUNTED * device.total_bytes:
        return None, missing
    if runtime.bytes + missing < 0:
        return plan, 0
    request = plan.request._replace(measured={**plan.request.measured, "runtime": runtime.bytes + missing})
    closed = engine(found.engine).plan(request)
    if closed.kv_cache is None or abs(closed.kv_cache.available.value - stated) > _CLOSE:
        return plan, 0
    return closed, missing


def _remedies(found: Diagnosis, plan: Plan) -> tuple[Remedy, ...]:
    """What to change. Where the log alone fails, no plan can be mended: what leaves more memory free is what helps."""
    if plan.fits is None:
        return ()
    every = remedies(plan.request, plan, others)
    if found.stage is None or aim_of(plan) == "fit":
        return every
    left = _left(plan)
    return tuple(remedy for remedy in every if remedy.sure and _left(remedy.plan) > left)


def _left(plan: Plan) -> int:
    return min((s.bytes for device in plan.devices if (s := device.segment("headroom")) is not None), default=0)


def missing(found: Diagnosis) -> tuple[str, ...]:
    """What a plan needs and the log does not state: of "model", "gpus", "version"."""
    named = gpus_named(found)
    return tuple(
        name for name, there in (("model", found.model), ("gpus", named), ("version", found.version)) if not there
    )
