"""One rank's memory before the pools are made, and what must live in the slack.

The budget's law (mem_cache/kv_cache_configurator.py, 0.5.23): free memory before loading × fraction holds weights and
pools; the rest, the slack, holds everything else.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from kvplanner.engine.request import PlanRequest
from kvplanner.engine.segment import SegmentKind
from kvplanner.engine.sglang.memory import activations, graphs, loading
from kvplanner.engine.sglang.memory.outside import outside
from kvplanner.engine.sglang.memory.workspace import attention_workspace
from kvplanner.engine.sglang.settings import Settings, of_weights
from kvplanner.engine.sglang.weights.rank import RankWeights, mtp_parameters, weights_of
from kvplanner.engine.shared.calibration import Place, calibrate, ranks, release_of
from kvplanner.engine.shared.identity import by_identity
from kvplanner.estimate import Estimate, Input, band_of_sum, banded, exact, least_sure, measured
from kvplanner.gpu.spec import Device
from kvplanner.model.model import Model
from kvplanner.model.spec import ModelSpec
from kvplanner.record import NamedTuple

_KIND_NAMES = {
    "embedding": "embedding", "head": "head", "attention": "attention", "state": "recurrent layers", "mlp": "MLP",
    "experts": "experts", "router": "routers", "norm": "norms", "tower": "towers", "mtp": "MTP", "other": "other",
}  # fmt: skip


class Rank(NamedTuple):
    """What one rank of a pipeline stage holds on one device; all sizes in bytes.

    other: what others hold before the engine starts; outside: taken before the baseline. weights: everything that
    loading takes, drafts included. workspace: attention workspaces, the request table not counted. graphs: all CUDA
    graphs. late: what loads with the first requests. before, after: free memory at the baseline and after loading.
    """

    device: Device
    stage: int
    settings: Settings
    total: Estimate
    cuda_total: Estimate
    other: Estimate
    outside: Estimate
    weights: Estimate
    workspace: Estimate
    graphs: Estimate
    late: Estimate
    before: Estimate
    after: Estimate
    given_kv: int | None

    def free_at(self, end: str, fraction: float) -> tuple[int, int]:
        """Free memory before and after loading by the values ("value"), or where what a budget of that fraction leaves
        is least ("low") or most ("high").

        What is taken before the baseline is taken from both: the rest, after − before × (1 − fraction), loses only the
        fraction's part of it, and all that loading takes. Before keeps its value, and after has what the rest has.
        """
        before, after, weights = self.before, self.after, self.weights
        if end == "low":
            return before.value, after.value - math.isqrt(
                (weights.high - weights.value) ** 2 + round(fraction * (before.value - before.low)) ** 2
            )
        if end == "high":
            return before.value, after.value + math.isqrt(
                (weights.value - weights.low) ** 2 + round(fraction * (before.high - before.value)) ** 2
            )
        return before.value, after.value

    @property
    def budget(self) -> Estimate:
        """What weights and pools may take."""
        return _budget(self.settings, self.before)

    @property
    def reserved_bytes(self) -> int:
        """What the driver keeps: NVML's total less CUDA's."""
        return self.total.value - self.cuda_total.value


def rank_key(stage: int, device: Device) -> tuple[int, str, int | None]:
    """What tells ranks apart: ranks of one key use the same memory."""
    return stage, device.gpu.id, device.free_bytes


class OnDevice(NamedTuple):
    """What the ranks on one kind of device have in common, whatever their stage; sizes as in `Rank`."""

    other: Estimate
    outside: Estimate
    workspace: Estimate
    graphs: Estimate
    late: Estimate
    before: Estimate


def on_device(request: PlanRequest, settings: Settings, device: Device) -> OnDevice:
    """What ranks on a device need and find beside their weights."""
    gpu, spec = device.gpu, request.model.spec
    assert gpu.cuda_total is not None  # refused before any rank is planned
    term = _terms(request, settings, device)
    other, taken = term("other", _other(device)), term("runtime_outside", outside(gpu, settings))
    if request.calibration or "cuda_graphs" in request.measured:
        prefill = exact(0) if "cuda_graphs" in request.measured else graphs.prefill(spec, settings)
        captured = graphs.joined(term("cuda_graphs", graphs.decode(spec, settings)), prefill)
    else:
        captured = graphs.all_graphs(spec, settings)
    return OnDevice(
        other=other,
        outside=taken,
        workspace=attention_workspace(settings),
        graphs=captured,
        late=term("runtime", activations.late(settings)),
        before=_less(gpu.cuda_total, (other, taken)),
    )


def plan_rank(request: PlanRequest, settings: Settings, stage: int, device: Device, here: OnDevice) -> Rank:
    """One rank's memory; the request's measured bytes replace estimates, its calibration moves them.

    here: what ranks on its device share.
    """
    gpu = device.gpu
    assert gpu.total is not None  # refused before any rank is planned
    assert gpu.cuda_total is not None
    weights = _terms(request, settings, device)("weights", loaded(request, settings, stage))
    return Rank(
        device=device,
        stage=stage,
        settings=settings,
        total=gpu.total,
        cuda_total=gpu.cuda_total,
        other=here.other,
        outside=here.outside,
        weights=weights,
        workspace=here.workspace,
        graphs=here.graphs,
        late=here.late,
        before=here.before,
        after=_less(gpu.cuda_total, (here.other, here.outside, weights)),
        given_kv=request.measured.get("kv_cache"),
    )


def _terms(request: PlanRequest, settings: Settings, device: Device) -> Callable[[SegmentKind, Estimate], Estimate]:
    """What puts the request's measured bytes in an estimate's place, and moves it by its calibration."""
    here = _here(request, settings, device) if request.calibration else None

    def term(kind: SegmentKind, estimated: Estimate) -> Estimate:
        if kind in request.measured:
            return measured(request.measured[kind], "--measured")
        return calibrate(estimated, kind, request.calibration, here) if here is not None else estimated

    return term


def eager(request: PlanRequest, spec: ModelSpec, settings: Settings, requests: int) -> Estimate:
    """What a step takes beside its graphs; a given size replaces it."""
    if "activations" in request.measured:
        return measured(request.measured["activations"], "--measured")
    found = activations.eager(spec, settings, requests)
    if not request.calibration:
        return found
    here = _here(request, settings, request.machine.devices[0])
    return calibrate(found, "activations", request.calibration, here)


def _here(request: PlanRequest, settings: Settings, device: Device) -> Place:
    parallel = settings.parallel
    family = request.model.spec.model_type
    return Place(
        request.engine,
        settings.era.name,
        device.gpu.name,
        family,
        ranks(parallel.tp, parallel.pp),
        device.driver,
        release_of(request.version or ""),
    )


def loaded(request: PlanRequest, settings: Settings, stage: int) -> Estimate:
    """What loading takes of the device: tensors, rotary tables, the draft's, and what the driver counts beside them."""
    if request.draft is None:
        return _loaded_alone(request.model, settings, stage)
    return _loaded(request.model, request.draft, settings, stage)


@by_identity(
    256,
    lambda _, settings, stage: (
        of_weights(settings), settings.parallel, settings.lora, settings.cpu_offload_bytes, settings.speculation,
        settings.era.charges_draft, stage,
    ),
)  # fmt: skip
def _loaded_alone(model: Model, settings: Settings, stage: int) -> Estimate:
    return _loaded(model, None, settings, stage)


def _loaded(model: Model, draft_model: Model | None, settings: Settings, stage: int) -> Estimate:
    lora = settings.lora
    own = weights_of(model, settings, stage, lora_slots=lora.slots, lora_rank=lora.rank)
    inputs = [Input(_KIND_NAMES[kind], size, "B", model.source_kind)
              for kind, size in own.kinds.most_common() if size]  # fmt: skip
    inputs += [Input(name, size, "B", source) for name, size, source in _beside(own, settings) if size]
    draft = _draft_bytes(model, draft_model, settings, stage)
    if draft:
        inputs.append(Input("draft model", draft, "B", draft_model.id if draft_model else "the checkpoint's own"))
    offloaded = min(settings.cpu_offload_bytes, own.parameters)
    beside = loading.beside(settings)
    tensors = own.total + draft - offloaded
    doubt = _doubt(model, tensors)
    below, above = band_of_sum((beside, doubt))
    value = tensors + beside.value
    formula = " + ".join(f"{{{i.name}}}" for i in inputs) + " + {allocator and late modules}"
    if offloaded:
        formula += " − {kept on the host}"
        inputs.append(Input("kept on the host", offloaded, "B", "--cpu-offload-gb"))
    return banded(value, value - below, value + above, "calibrated", formula, *inputs, *beside.inputs)


def _beside(own: RankWeights, settings: Settings) -> tuple[tuple[str, int, str], ...]:
    return (
        ("unpacked latents", own.latent_copies, "W_UK and W_UV in 16 bits beside the packed projection"),
        ("rotary tables", own.rotary, "positions × rotary size × 4 bytes, whole on every rank"),
        ("LoRA slots", own.lora, f"{settings.lora.slots} slots of rank {settings.lora.rank}"),
    )


def _draft_bytes(model: Model, draft: Model | None, settings: Settings, stage: int) -> int:
    """The draft's weights, where the engine loads them before it measures: on the last stage."""
    if not settings.speculation.charged or stage != settings.parallel.pp - 1 or not settings.era.charges_draft:
        return 0
    alone = settings._replace(parallel=settings.parallel._replace(pp=1))
    if draft is not None:
        return weights_of(draft, alone, 0).total
    return mtp_parameters(model, settings)


def _doubt(model: Model, value: int) -> Estimate:
    """How far the tensors may lie off by the file's own size."""
    stored = model.stored
    if stored is None or not stored.value or stored.low == stored.high:
        return exact(value)
    low, high = (round(value * bound / stored.value) for bound in (stored.low, stored.high))
    return banded(value, low, high, stored.basis)


def _other(device: Device) -> Estimate:
    if device.free_bytes is None:
        return exact(0, "{nothing}", Input("nothing", 0, "B", "no other program was named"))
    assert device.gpu.cuda_total is not None
    total = device.gpu.cuda_total.value
    inputs = (
        Input("CUDA total", total, "B", device.gpu.name),
        Input("free", device.free_bytes, "B", device.free_source or "given"),
    )
    value = max(total - device.free_bytes, 0)
    return Estimate(value, value, value, "measured", "{CUDA total} − {free}", inputs)


def _less(whole: Estimate, parts: tuple[Estimate, ...]) -> Estimate:
    """What is left of a whole, with the doubts of all."""
    value = whole.value - sum(part.value for part in parts)
    below, above = band_of_sum(parts)
    whole_below, whole_above = band_of_sum((whole,))
    low, high = value - math.isqrt(above**2 + whole_below**2), value + math.isqrt(below**2 + whole_above**2)
    return Estimate(value, low, high, least_sure((whole, *parts)))


def _budget(settings: Settings, before: Estimate) -> Estimate:
    value, low, high = (math.floor(size * settings.fraction) for size in (before.value, before.low, before.high))
    inputs = (
        Input("free before loading", before.value, "B", "CUDA total less what is taken before the baseline"),
        Input("fraction", settings.fraction, "", "--mem-fraction-static"),
    )
    estimate = Estimate(max(value, 0), max(min(low, value), 0), max(high, 0), before.basis,
                        "{free before loading} × {fraction}", inputs)  # fmt: skip
    return estimate.with_notes(
        "SGLang takes a share of the memory that is free before loading, not of the card's total"
    )
