"""One rank's memory: the budget, what lies in it and outside it, and what is left for the KV cache.

The arithmetic is that of v1/worker/gpu_worker.py (0.33): requested = ceil(total × utilisation); available KV =
requested − everything that the profile run found in use − its transient peak − the graph estimate.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import cast

from kvplanner.engine.request import MeasuredKind, PlanRequest
from kvplanner.engine.segment import SegmentKind
from kvplanner.engine.shared.calibration import Place, calibrate, family_of, ranks
from kvplanner.engine.vllm import rules
from kvplanner.engine.vllm.gpu import Gpu, gpu_of
from kvplanner.engine.vllm.kv.layout import CacheLayout
from kvplanner.engine.vllm.kv.sizing import given_cache
from kvplanner.engine.vllm.memory import activations, fragmentation, graphs, runtime, workspace
from kvplanner.engine.vllm.settings import Settings, Speculative
from kvplanner.engine.vllm.weights import rank as weights
from kvplanner.estimate import Estimate, Input, band_of_sum, banded, exact, least_sure, measured
from kvplanner.gpu.spec import Device
from kvplanner.record import Later, NamedTuple, late, later
from kvplanner.sized_text import SizedText, size_mark

_ZERO = exact(0, "0")


@late(
    "runtime", "workspace", "activations", "graphs_charged", "graphs", "after", "fragmentation", "serving", "available",
    "cold_extra_bytes",
)  # fmt: skip
class Rank(NamedTuple):
    """What one tensor-parallel rank of a pipeline stage holds on one device; all sizes in bytes.

    other: what others hold before the engine starts. budget: requested memory. staging: beyond the weights, while
    they load. graphs_charged: the part of the graph memory that is taken off the budget. after: allocated after the
    measurement, out of the slack. fragmentation: reserved by the allocator outside the budget, and of no use. serving:
    the activations of a full step, nothing compiled. available: what the engine prints as available KV cache memory,
    or the given size; negative when nothing is left. cold_extra_bytes: activations of a first start beyond a later one.
    """

    device: Device
    stage: int
    settings: Settings
    gpu: Gpu
    total: Estimate
    cuda_total: Estimate
    other: Estimate
    outside: Estimate
    budget: Estimate
    runtime: Estimate
    weights: Estimate
    staging: Estimate
    workspace: Estimate
    activations: Estimate
    graphs_charged: Estimate
    graphs: Estimate
    after: Estimate
    fragmentation: Estimate
    serving: Estimate
    given_kv: Estimate | None
    available: Estimate
    cold_extra_bytes: int

    @property
    def reserved_bytes(self) -> int:
        """What the driver keeps: NVML's total less CUDA's."""
        return self.total.value - self.cuda_total.value

    @property
    def free_at_start_bytes(self) -> int:
        """What the engine's first snapshot finds free."""
        return self.cuda_total.value - self.other.value - self.outside.value

    @property
    def context_bytes(self) -> int:
        """The CUDA context, the first that the engine makes on the device; all of `outside` where that is given."""
        return next((int(i.value) for i in self.outside.inputs if i.name == "context"), self.outside.value)

    @property
    def context_fits(self) -> bool:
        """Whether the CUDA context finds room."""
        return self.cuda_total.value - self.other.value >= self.context_bytes

    @property
    def resident_bytes(self) -> int:
        """In use on the device after the profile run: everything but the transient peak, graphs and KV cache."""
        return self.other.value + self.outside.value + self.runtime.value + self.weights.value + self.workspace.value


def rank_key(stage: int, device: Device) -> tuple[int, str, int | None]:
    """What tells ranks apart: ranks of one key use the same memory."""
    return stage, device.gpu.id, device.free_bytes


def plan_rank(request: PlanRequest, settings: Settings, stage: int, device: Device, layout: CacheLayout) -> Rank:
    """One rank's memory; the request's measured bytes replace estimates, its calibration narrows them."""
    model, gpu = request.model, gpu_of(device.gpu)
    total, cuda_total = device.gpu.total, device.gpu.cuda_total
    assert total is not None  # refused before any rank is planned
    assert cuda_total is not None

    here = _place(request, settings, device) if request.calibration else None

    def term(kind: SegmentKind, estimated: Estimate, seen: MeasuredKind | None = None) -> Estimate:
        if kind in request.measured:
            return measured(request.measured[kind], "--measured")
        return estimated if here is None else calibrate(estimated, seen or kind, request.calibration, here)

    # What most candidates of a search fail before is worked out when it is read.
    profiled = Later(partial(activations.profiled, model, settings, gpu, stage))
    states = model.spec.has_states
    inside = Later(lambda: term("runtime", runtime.inside(settings, gpu, stage, states=states)))
    kept = Later(lambda: term("workspace", workspace.persistent(model, settings, gpu, stage)))
    peak = Later(lambda: term("activations", profiled().peak))
    captured = Later(lambda: term("cuda_graphs", graphs.estimate(model, settings, gpu, stage), "cuda_graphs_estimated"))

    def serving() -> Estimate:
        found: Estimate = profiled().serving
        return _of_a_step(profiled(), peak()) if "activations" in request.measured else found

    own = term("weights", _weights(request, settings, gpu, stage))
    budget = _budget(cuda_total, settings.cache.utilization)
    other = term("other", _other(device))
    given = _measured_cache(request) or given_cache(settings, layout.bytes_per_block[stage])

    def rest() -> Estimate:
        charged = {"runtime": inside(), "weights": own, "workspace": kept(), "activations": peak()}
        if settings.era.graphs_in_budget:
            charged["CUDA graphs"] = captured()
        if other.value and others_charged(settings):
            charged["other programs"] = other
        if settings.multimodal.ipc_bytes:
            # Left free for the front end, which decodes media on this GPU (v1/worker/gpu_worker.py, 0.33).
            charged["media decoding"] = exact(settings.multimodal.ipc_bytes)
        return _rest(budget, charged, settings.cache.utilization)

    return Rank(
        device=device,
        stage=stage,
        settings=settings,
        gpu=gpu,
        total=total,
        cuda_total=cuda_total,
        other=other,
        outside=term("runtime_outside", runtime.outside(settings, gpu)),
        budget=budget,
        runtime=later(inside),
        weights=own,
        staging=weights.loading_peak(model, settings, gpu, stage),
        workspace=later(kept),
        activations=later(peak),
        graphs_charged=later(captured) if settings.era.graphs_in_budget else _ZERO,
        graphs=later(lambda: term("cuda_graphs", graphs.actual(model, settings, gpu, stage))),
        after=later(lambda: workspace.after_profile(model, settings, layout)),
        fragmentation=later(lambda: term("fragmentation", fragmentation.gaps(model, settings, gpu, stage, serving()))),
        serving=later(serving),
        given_kv=given,
        available=given or later(rest),
        cold_extra_bytes=later(lambda: int(profiled().cold_extra_bytes)),
    )


def _place(request: PlanRequest, settings: Settings, device: Device) -> Place:
    return Place(
        request.engine,
        settings.era.name,
        device.gpu.name,
        family_of(request.model.spec.model_type, settings.model.dtype),
        ranks(settings.parallel.tp, settings.parallel.pp),
        device.driver,
        "0.{}.{}".format(*settings.version),
    )


def others_charged(settings: Settings) -> bool:
    """Whether the engine takes what other programs hold for its own, and so off its budget."""
    return settings.era.runner in rules.OTHERS_CHARGED.at(settings.version)


def _rest(budget: Estimate, charged: Mapping[str, Estimate], utilization: float) -> Estimate:
    """The budget less what is charged to it: negative when nothing is left, else never below 0."""
    value = budget.value - sum(term.value for term in charged.values())
    below, above = band_of_sum(charged.values())
    budget_below, budget_above = band_of_sum((budget,))
    inputs = (
        Input("budget", budget.value, "B", f"{utilization:g} × CUDA total"),
        *(Input(name, term.value, "B", term.basis) for name, term in charged.items()),
    )
    low, high = value - math.isqrt(above**2 + budget_below**2), value + math.isqrt(below**2 + budget_above**2)
    formula = " − ".join(("{budget}", *(f"{{{name}}}" for name in charged)))
    return banded(value, low, high, "rest" if low < high else "exact", formula, *inputs)


def _weights(request: PlanRequest, settings: Settings, gpu: Gpu, stage: int) -> Estimate:
    """The model's weights, and on the last stage those of the draft model beside them."""
    own = weights.rank_weights(request.model, settings, gpu, stage)
    if request.draft is None or settings.speculative.method != "draft_model" or stage != settings.parallel.pp - 1:
        return own
    alone = settings._replace(
        parallel=settings.parallel._replace(pp=1, pp_partition=()), speculative=Speculative(),
        model=settings.model._replace(quantization=None),
    )  # fmt: skip
    draft = weights.rank_weights(request.draft, alone, gpu, 0)
    return own._replace(
        value=own.value + draft.value,
        low=own.low + draft.low,
        high=own.high + draft.high,
        basis=least_sure((own, draft)),
        formula=own.formula + " + {draft model}",
        inputs=(*own.inputs, Input("draft model", draft.value, "B", request.draft.id)),
    )


def _of_a_step(profiled: activations.Profiled, given: Estimate) -> Estimate:
    """A full step where the profile's peak is given: that peak, or where compiling may have made it no more than it."""
    step = profiled.serving
    if profiled.peak is step:
        return given
    low, value, high = (min(size, given.value) for size in (step.low, step.value, step.high))
    return step._replace(value=value, low=low, high=high)


def _measured_cache(request: PlanRequest) -> Estimate | None:
    given = request.measured.get("kv_cache")
    return None if given is None else measured(given, "--measured")


def _other(device: Device) -> Estimate:
    if device.free_bytes is None:
        return exact(0, "{nothing}", Input("nothing", 0, "B", "no other program was named"))
    cuda_total = cast(Estimate, device.gpu.cuda_total).value
    source = device.free_source or "given"
    return Estimate(
        value := max(cuda_total - device.free_bytes, 0),
        value,
        value,
        "measured",
        "{CUDA total} − {free}",
        (Input("CUDA total", cuda_total, "B", device.gpu.name), Input("free", device.free_bytes, "B", source)),
    )


def _budget(cuda_total: Estimate, utilization: float) -> Estimate:
    """ceil(CUDA total × utilisation) (v1/worker/utils.py, 0.33)."""
    value, low, high = (math.ceil(size * utilization) for size in (cuda_total.value, cuda_total.low, cuda_total.high))
    source = cuda_total.inputs[0].source if cuda_total.inputs else ""
    inputs = (
        Input("CUDA total", cuda_total.value, "B", source),
        Input("utilisation", utilization, "", "--gpu-memory-utilization"),
    )
    estimate = banded(value, low, high, cuda_total.basis, "ceil({CUDA total} × {utilisation})", *inputs)
    return estimate._replace(notes=later(lambda: (SizedText(
        f"The budget is a share of what CUDA sees ({size_mark(cuda_total.value)}), not of the size on the box."
    ),)))  # fmt: skip
