"""What a run teaches about plans of its neighbourhood, and where it contradicts a figure that is exact.

A run's own figures stand beside what the rules say of that very run. What it left for its KV cache tells of everything
else together: the difference is shared out among the estimates by how wide their bands are, so that the least sure one
takes most of it (the conditional mean of independent normal terms given their sum).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from kvplanner.diagnose.diagnosis import Diagnosis, request_of
from kvplanner.diagnose.findings import Finding, contradictions
from kvplanner.diagnose.implied import machine_of
from kvplanner.diagnose.privacy import looks_like_path
from kvplanner.diagnose.runs import Run, run_of
from kvplanner.engine.plan import DevicePlan, Plan
from kvplanner.engine.registry import engine
from kvplanner.engine.request import Calibration, MeasuredKind
from kvplanner.engine.segment import SegmentKind
from kvplanner.engine.shared.calibration import OF_ANY_MODEL, family_of, ranks, release_of
from kvplanner.estimate import Estimate
from kvplanner.gpu.spec import Machine
from kvplanner.model.model import Model
from kvplanner.record import NamedTuple
from kvplanner.units import GIB, MIB

# Kinds that a log's figure of the same name measures.
_DIRECT: Final[tuple[SegmentKind, ...]] = ("runtime", "activations", "compute")
# Kinds that share what the KV cache tells of all of them together.
_SHARING: Final[tuple[SegmentKind, ...]] = ("runtime", "workspace", "activations", "cuda_graphs")
# What takes what the bands of those cannot bear, in this order.
_REST: Final[tuple[SegmentKind, ...]] = ("runtime", "activations")
# What is taken before the engine looks is its context, unless it is more than this above the rules' range: others'.
_CONTEXT_SLACK: Final = 512 * MIB
_PRINTED: Final = round(0.005 * GIB)
# A difference beyond this share of the GPU is none of the engine's: another GPU than the plan's, or another program.
_MOST_MISSING: Final = 0.25


class Figures(NamedTuple):
    """What a run printed of one device, by name, in bytes. checked: it stopped at the check of free memory, so that
    what was free is no matter of the engine's. by_device: its cache is no rest of a budget.
    """

    sizes: Mapping[str, int]
    checked: bool = False
    by_device: bool = False


class Learned(NamedTuple):
    """What a run taught. why: in words, where it taught nothing."""

    calibrations: tuple[Calibration, ...]
    findings: tuple[Finding, ...] = ()
    why: str = ""


def learn(found: Diagnosis, model: Model, machine: Machine, source: str) -> Learned:
    """What a log teaches. machine: that it ran on, where it does not name it itself. Raises PlannerError."""
    used = machine_of(found, machine) or machine
    request = request_of(found, model, used)
    plan = engine(found.engine).plan(request)
    if plan.fits is None:
        return Learned((), (), "there is no plan of this start")
    if not _same_memory(found, plan):
        return Learned((), (), "the log is of a GPU with another memory than the planned one: name its GPU")
    findings = contradictions(found, plan)
    seen = measured_of(figures_of(found), plan)
    if seen is None:
        why = "its KV cache is of another GPU, or another program stood beside the engine"
        return Learned((), findings, why)
    made = tuple(_entries(plan, seen, source))
    return Learned(made, findings, "" if made else "the log holds none of the figures that the plan estimates")


def run_of_log(found: Diagnosis, learned: Learned, model: Model, machine: Machine) -> Run:
    """What a log taught, to be kept: without anything that tells whose it is."""
    gpu = learned.calibrations[0].gpu if learned.calibrations else machine.devices[0].gpu.name
    name = model.id if looks_like_path(found.model or "") else found.model or model.id
    driver = next((d.driver for d in machine.devices if d.driver), "")
    version = found.version or ""
    return run_of(learned.calibrations, engine=found.engine, version=version, model=name, gpu=gpu, driver=driver)


def run_of_server(learned: Learned, plan: Plan) -> Run:
    """What a running server taught, to be kept: without anything that tells whose it is."""
    device = plan.devices[plan.tightest].device
    return run_of(
        learned.calibrations, engine=plan.request.engine, version=plan.engine_version, model=plan.request.model.id,
        gpu=device.gpu.name, driver=device.driver, origin="server",
    )  # fmt: skip


def figures_of(found: Diagnosis) -> Figures:
    """The figures of a log; of several devices none that stands for one."""
    one = len(found.devices) < 2
    names = {stated.name for stated in found.reading.stated if stated.size}
    sizes = {name: size for name in sorted(names) if one and (size := found.size(name)) is not None}
    return Figures(sizes, found.stage == "free_memory_check", found.reading.grammar.by_device)


def measured_of(figures: Figures, plan: Plan) -> dict[MeasuredKind, int] | None:
    """What a run measured of the plan's estimates, by kind, in bytes; None where its cache is not this plan's."""
    device, sizes = plan.devices[plan.tightest], figures.sizes
    seen: dict[MeasuredKind, int] = {}
    for kind in _DIRECT:
        size = sizes.get(kind)
        if size is not None and size >= 0 and device.segment(kind) is not None:
            seen[kind] = size
    estimated, actual = sizes.get("cuda_graphs_estimated"), sizes.get("cuda_graphs")
    graphs = device.segment("cuda_graphs")
    inside = graphs is not None and graphs.in_budget
    if inside and estimated is not None and estimated >= 0:
        seen["cuda_graphs_estimated"] = estimated
        _without_estimate(sizes, seen, estimated)
    elif not inside and graphs is not None and actual is not None and actual >= 0:
        seen["cuda_graphs"] = actual
    context = _context(figures, device)
    if context is not None:
        seen["runtime_outside"] = context
    missing = _missing(figures, plan, seen)
    if missing is None or abs(missing) <= _PRINTED:
        return seen
    if abs(missing) > _MOST_MISSING * device.total_bytes:
        return None
    return _shared_out(device, seen, missing)


def of_cache(plan: Plan, available_bytes: int) -> dict[MeasuredKind, int] | None:
    """What a running server's KV cache of this size per device tells of the plan's other estimates."""
    device = plan.devices[plan.tightest]
    if device.budget is None or plan.cache_given:
        return None
    missing = _available(device, {}, device.budget.value) - available_bytes
    return None if abs(missing) > _MOST_MISSING * device.total_bytes else _shared_out(device, {}, missing)


def entries(plan: Plan, seen: dict[MeasuredKind, int], source: str) -> tuple[Calibration, ...]:
    """The calibrations of measured kinds beside what the rules say of the run."""
    return tuple(_entries(plan, seen, source))


def _entries(plan: Plan, seen: dict[MeasuredKind, int], source: str) -> Iterator[Calibration]:
    device, request = plan.devices[plan.tightest], plan.request
    together, resolved = _ranks(plan), plan.options.get("dtype")
    dtype = str(resolved.value) if resolved is not None and request.engine == "vllm" else ""
    for kind, size in seen.items():
        law = _law(device, kind)
        if law is None or law.basis in ("exact", "measured") or law.low == law.high:
            continue
        family = "" if kind in OF_ANY_MODEL else family_of(request.model.spec.model_type, dtype)
        gpu = device.device.gpu.name
        yield Calibration(
            kind, size, plan.rules, gpu, family, source, request.engine, law.value, together,
            driver=device.device.driver, release=release_of(plan.engine_version),
        )  # fmt: skip


def _ranks(plan: Plan) -> str:
    own = [d for d in plan.gpus if d.replica == plan.devices[plan.tightest].replica]
    pipeline = len({part for d in own for part in d.role.split("/") if part.startswith("pp")}) or 1
    return ranks(len(own) // pipeline, pipeline)


def _law(device: DevicePlan, kind: MeasuredKind) -> Estimate | None:
    segment = device.segment("cuda_graphs" if kind == "cuda_graphs_estimated" else kind)
    return segment.estimate if segment is not None else None


def _same_memory(found: Diagnosis, plan: Plan) -> bool:
    stated, total = found.size("gpu_total"), plan.devices[plan.tightest].cuda_total_bytes
    return stated is None or not total or len(found.devices) > 1 or abs(stated / total - 1) <= 0.02


def _without_estimate(sizes: Mapping[str, int], seen: dict[MeasuredKind, int], estimated: int) -> None:
    """Newer releases print a peak that holds the graphs' estimate: budget − consumed − peak is then the cache."""
    budget, consumed, cache = (sizes.get(name) for name in ("budget", "consumed", "kv_cache"))
    peak = seen.get("activations")
    if budget is None or consumed is None or cache is None or peak is None:
        return
    if abs(budget - consumed - peak - cache) <= 4 * _PRINTED and peak >= estimated:
        seen["activations"] = peak - estimated


def _context(figures: Figures, device: DevicePlan) -> int | None:
    """What the engine itself took before it looked, None where others may have part in it."""
    free, outside = figures.sizes.get("free_at_start"), device.segment("runtime_outside")
    if free is None or outside is None or not device.cuda_total_bytes or figures.checked:
        return None
    taken = device.cuda_total_bytes - free
    return taken if 0 <= taken <= outside.estimate.high + _CONTEXT_SLACK else None


def _missing(figures: Figures, plan: Plan, seen: dict[MeasuredKind, int]) -> int | None:
    """How much smaller the run's KV cache is than the plan's with the run's own figures; None where none is stated."""
    stated, device = figures.sizes.get("kv_cache"), plan.devices[plan.tightest]
    if stated is None or device.budget is None or plan.cache_given or figures.by_device:
        return None
    # With the weights as they are planned: what the log prints of them holds buffers that are planned apart. With the
    # budget that the log states: its card may have a little more or less than the planned one.
    return _available(device, seen, figures.sizes.get("budget", device.budget.value)) - stated


def _available(device: DevicePlan, known: dict[MeasuredKind, int], budget: int) -> int:
    """The budget less all that is charged to it, with known sizes in place of planned ones."""
    charged = (s for s in device.segments if s.in_budget and s.kind != "kv_cache")
    return budget - sum(known.get(_named(s.kind), known.get(s.kind, s.bytes)) for s in charged)


def _named(kind: SegmentKind) -> MeasuredKind:
    """What is charged to a budget of graphs is the engine's estimate of them."""
    return "cuda_graphs_estimated" if kind == "cuda_graphs" else kind


def _shared_out(device: DevicePlan, seen: dict[MeasuredKind, int], missing: int) -> dict[MeasuredKind, int]:
    """The measured sizes, with what is missing shared out among the others by the squares of their bands' halves.

    None takes more than its band allows: what is left then is runtime, the one term that holds whatever nobody names.
    """
    made, left = dict(seen), missing
    open_ = dict(_open(device, seen))
    halves = {name: (e.high - e.value) if missing > 0 else (e.value - e.low) for name, e in open_.items()}
    whole = sum(half**2 for half in halves.values())
    for name, estimate in open_.items():
        share = round(missing * halves[name] ** 2 / whole) if whole else 0
        share = max(min(share, halves[name]), -halves[name])
        made[name] = max(estimate.value + share, 0)
        left -= made[name] - estimate.value
    for kind in _REST:
        segment = device.segment(kind)
        if segment is None or not segment.in_budget or not left:
            continue
        before = made.get(kind, segment.bytes)
        made[kind] = max(before + left, 0)
        left -= made[kind] - before
    return made


def _open(device: DevicePlan, seen: Mapping[MeasuredKind, int]) -> Iterator[tuple[MeasuredKind, Estimate]]:
    """The estimates inside the budget that no figure of the run replaces."""
    for kind in _SHARING:
        segment, name = device.segment(kind), _named(kind)
        if segment is None or not segment.in_budget or name in seen or segment.estimate.low == segment.estimate.high:
            continue
        yield name, segment.estimate
