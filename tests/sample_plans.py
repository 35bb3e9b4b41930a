"""Hand-made plans for tests of everything that shows or stores a plan, so that those need no engine.

Sums hold as the contract says; the figures are plausible, not what an engine would print. `ALL` names them all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from kvplanner.engine.option import OptionValue, Resolved
from kvplanner.engine.plan import CacheGroup, DevicePlan, KvCache, Limits, Plan, StageMemory
from kvplanner.engine.request import Load, PlanRequest
from kvplanner.engine.segment import Segment, SegmentKind
from kvplanner.engine.verdict import Bytes, Reason, Shortfall, Verdict
from kvplanner.estimate import Estimate, Input, banded, exact, measured
from kvplanner.gpu.spec import Device, GpuSpec, Machine, Vendor
from kvplanner.model.model import Model
from kvplanner.model.spec import Attention, LayerSpec, Mlp, ModelSpec
from kvplanner.units import GIB, MIB, ceil_div
from tests.engine import verdicts

BLOCK: Final = 16
BUDGET_KINDS: Final[tuple[SegmentKind, ...]] = (
    "runtime", "weights", "workspace", "activations", "cuda_graphs", "kv_cache",
)  # fmt: skip


def llama_8b() -> Model:
    """Llama-3.1-8B-Instruct, without an inventory."""
    return _llama("meta-llama/Llama-3.1-8B-Instruct", 32, 4096, 14336, 32, 8_030_261_248, tied=False)


def llama_70b() -> Model:
    """Llama-3.3-70B-Instruct, without an inventory."""
    return _llama("meta-llama/Llama-3.3-70B-Instruct", 80, 8192, 28672, 64, 70_553_706_496, tied=False)


def _llama(name: str, depth: int, hidden: int, width: int, heads: int, parameters: int, *, tied: bool) -> Model:
    layer = LayerSpec((Attention(heads, 8, 128, 128),), (Mlp(width),))
    spec = ModelSpec(
        "LlamaForCausalLM", "llama", hidden, 128_256, (layer,), (0,) * depth, 131_072, "bfloat16", tied_embeddings=tied
    )
    stored = exact(
        2 * parameters,
        "{parameters} × {bytes}",
        Input("parameters", parameters, "", "catalogue"),
        Input("bytes", 2, "B", "bfloat16"),
    )
    return Model(name, spec, None, "catalogue", "bundled catalogue", "bfloat16", parameters, stored)


def gpu(name: str, total_mib: int, cuda_mib: int, capability: tuple[int, int], vendor: Vendor = "nvidia") -> GpuSpec:
    """A GPU whose two totals are printed publicly."""
    total = exact(total_mib * MIB, "{total}", Input("total", total_mib * MIB, "B", "nvidia-smi"))
    cuda = exact(cuda_mib * MIB, "{cuda_total}", Input("cuda_total", cuda_mib * MIB, "B", "torch"))
    short = name.replace("NVIDIA ", "").replace("GeForce ", "")
    return GpuSpec(short.lower().replace(" ", "-"), name, vendor, total, cuda, capability, aliases=(short,))


H100: Final = gpu("NVIDIA H100 80GB HBM3", 81_559, 81_081, (9, 0))
RTX4090: Final = gpu("NVIDIA GeForce RTX 4090", 24_564, 24_081, (8, 9))
RTX3090: Final = gpu("NVIDIA GeForce RTX 3090", 24_576, 24_124, (8, 6))
MI300X: Final = gpu("AMD Instinct MI300X", 196_592, 196_288, (9, 4), vendor="amd")


def machine(*gpus: GpuSpec, free: Mapping[int, int] | None = None) -> Machine:
    """A machine of these GPUs; free: what is free on some of them, as if --free said so."""
    free = free or {}
    return Machine(tuple(Device(i, g, free.get(i), "--free" if i in free else "", uuid="") for i, g in enumerate(gpus)))


def _segments(model: Model, device: Device, tp: int) -> dict[SegmentKind, Estimate]:
    """Everything but the KV cache and the headroom."""
    spec = device.gpu
    assert spec.total is not None
    assert spec.cuda_total is not None
    assert model.stored is not None
    cuda = spec.cuda_total.value
    reserved = spec.total.value - cuda
    weights = model.stored.value // tp
    outside = (560 if tp == 1 else 980) * MIB
    kinds: dict[SegmentKind, Estimate] = {
        "driver_reserved": exact(
            reserved,
            "{total} − {cuda_total}",
            Input("total", spec.total.value, "B", "catalogue: nvidia-smi"),
            Input("cuda_total", cuda, "B", "catalogue: torch"),
        )
    }
    if device.free_bytes is not None and device.free_bytes < cuda:
        kinds["other"] = measured(cuda - device.free_bytes, device.free_source)
    kinds["runtime_outside"] = banded(
        outside,
        outside * 9 // 10,
        outside * 11 // 10,
        "calibrated",
        "{context} + {nccl}",
        Input("context", 560 * MIB, "B", "calibrated on public start-up logs"),
        Input("nccl", outside - 560 * MIB, "B", "calibrated on public start-up logs"),
    )
    kinds["runtime"] = banded(220 * MIB, 120 * MIB, 380 * MIB, "analytic", "{libraries}", _mib("libraries", 220))
    kinds["weights"] = exact(
        weights,
        "{stored} ÷ {tp}",
        Input("stored", model.stored.value, "B", "catalogue"),
        Input("tp", tp, "ranks", "--tensor-parallel-size"),
    )
    kinds["workspace"] = banded(394 * MIB, 394 * MIB, 402 * MIB, "analytic", "{buffers}", _mib("buffers", 394))
    kinds["activations"] = banded(1250 * MIB, 1100 * MIB, 1500 * MIB, "calibrated", "{peak}", _mib("peak", 1250))
    kinds["cuda_graphs"] = banded(480 * MIB, 300 * MIB, 700 * MIB, "calibrated", "{graphs}", _mib("graphs", 480))
    return kinds


def _mib(name: str, mib: int) -> Input:
    return Input(name, mib * MIB, "B", "calibrated on public start-up logs")


def _stages(segments: tuple[Segment, ...], failing: str | None) -> tuple[StageMemory, ...]:
    """Start-up told from the segments: what is in use at the end of each stage and at its highest."""
    size = {s.kind: s.bytes for s in segments}
    now = size["driver_reserved"] + size.get("other", 0)
    steps: tuple[tuple[str, str, tuple[SegmentKind, ...], int], ...] = (
        ("free_memory_check", "check free memory", ("runtime_outside",), 0),
        ("weights", "load weights", ("runtime", "weights"), 0),
        ("profile", "profile run", ("workspace",), size.get("activations", 0)),
        ("kv_cache_allocation", "allocate the KV cache", ("kv_cache",), 0),
        ("graph_capture", "capture CUDA graphs", ("cuda_graphs",), 0),
        ("runtime", "serve", (), size.get("activations", 0)),
    )
    made: list[StageMemory] = []
    for stage, label, kinds, transient in steps:
        now += sum(size.get(kind, 0) for kind in kinds)
        reached = not any(step.failing for step in made)
        end, peak = (now, now + transient) if reached else (0, 0)
        made.append(StageMemory(stage, label, end, peak, failing=stage == failing, reached=reached))
    return tuple(made)


def _device(model: Model, device: Device, tp: int, utilisation: float, stage: str | None) -> DevicePlan:
    spec = device.gpu
    assert spec.total is not None
    assert spec.cuda_total is not None
    total, cuda = spec.total.value, spec.cuda_total.value
    budget = exact(
        int(cuda * utilisation),
        "{utilisation} × {cuda_total}",
        Input("utilisation", utilisation, "", "vLLM 0.33 default"),
        Input("cuda_total", cuda, "B", "catalogue"),
    )
    kinds = _segments(model, device, tp)
    inside = sum(e.value for k, e in kinds.items() if k in BUDGET_KINDS)
    left = budget.value - inside
    if left > 0:
        kinds["kv_cache"] = banded(
            left,
            left - 420 * MIB,
            left + 360 * MIB,
            "rest",
            "{budget} − {inside}",
            Input("budget", budget.value, "B", "utilisation × CUDA total"),
            Input("inside", inside, "B", "the segments before"),
        )
    spare = total - sum(e.value for e in kinds.values())
    if spare >= 0 and stage is None:
        kinds["headroom"] = banded(
            spare,
            max(0, spare - 200 * MIB),
            spare + 200 * MIB,
            "rest",
            "{total} − {taken}",
            Input("total", total, "B", "catalogue: nvidia-smi"),
            Input("taken", total - spare, "B", "the segments before"),
        )
    segments = tuple(Segment(kind, estimate, in_budget=kind in BUDGET_KINDS) for kind, estimate in kinds.items())
    block = _block_bytes(model, tp)
    overflow = max(0, -spare)
    return DevicePlan(
        device, f"tp{device.index}", total, cuda, budget, segments, block, overflow, _stages(segments, stage),
        budget_share=utilisation,
    )  # fmt: skip


def _block_bytes(model: Model, tp: int) -> int:
    return model.spec.num_layers * BLOCK * max(1, 8 // tp) * 128 * 2 * 2


def _cache(model: Model, tp: int, available: Estimate, context: int) -> KvCache:
    block = _block_bytes(model, tp)
    blocks = max(0, available.value) // block
    per_request = ceil_div(context, BLOCK)
    fits = blocks >= per_request
    return KvCache(
        available,
        block,
        BLOCK,
        blocks,
        blocks * BLOCK,
        max(0, available.low) // block * BLOCK,
        max(0, available.high) // block * BLOCK,
        blocks / per_request,
        context,
        block / BLOCK,
        (CacheGroup("full", model.spec.num_layers, BLOCK, block // model.spec.num_layers, per_request),),
        None if fits else f"To serve at least one request with the model's max seq len ({context}), more is needed.",
        None if fits else blocks * BLOCK,
    )


def _options(tp: int, context: int, user: Mapping[str, OptionValue]) -> dict[str, Resolved]:
    options = {
        "tensor_parallel_size": Resolved(tp, "user" if tp > 1 else "default"),
        "max_model_len": Resolved(context, "derived", "the config's max_position_embeddings"),
        "gpu_memory_utilization": Resolved(0.92, "default", "vLLM 0.33"),
        "max_num_batched_tokens": Resolved(8192, "default", "GPU of at least 70 GiB"),
        "max_num_seqs": Resolved(1024, "default", "GPU of at least 70 GiB"),
        "kv_cache_dtype": Resolved("auto", "default", "as the model: bfloat16"),
        "enforce_eager": Resolved(value=False, origin="default"),
    }
    return options | {name: Resolved(value, "user") for name, value in user.items()}


def _plan(
    model: Model,
    planned: Machine,
    *,
    load: Load | None = None,
    context: int = 131_072,
    stage: str | None = None,
    user: Mapping[str, OptionValue] | None = None,
    reason: Reason | None = None,
    missing: int = 0,
    message: str = "",
    warnings: tuple[str, ...] = (),
) -> Plan:
    tp = len(planned.devices)
    options = dict(user or {})
    if tp > 1:
        options["tensor_parallel_size"] = tp
    request = PlanRequest(model, planned, options=options, load=load)
    devices = tuple(_device(model, d, tp, 0.92, stage) for d in planned.devices)
    found = [s.estimate for d in devices if (s := d.segment("kv_cache"))]
    available = min(found, key=lambda e: e.value) if found else None
    cache = _cache(model, tp, available, context) if available else None
    users = serves = blocks = None
    if load:
        users, blocks = load.users, ceil_div(load.tokens_per_user, BLOCK)
        serves = min(users, cache.units // blocks) if cache and stage is None else 0
    works = stage is None and cache is not None
    limits = Limits(
        min(context, cache.tokens) if cache else None,
        int(cache.max_concurrency) if cache and works else None,
        serves,
        blocks,
        "kv_cache" if serves is not None and users is not None and serves < users else "",
        max_requests=1024,
        bytes_per_user=blocks * cache.bytes_per_unit if blocks and cache else None,
    )
    verdict = Verdict("fits")
    if stage is not None:
        assert reason is not None
        verdict = Verdict("does_not_fit", failing=Shortfall(stage, 0, missing, missing, missing, reason, message))
    plan = Plan(
        request=request,
        engine_version="0.33.0",
        rules="0.27–0.33, V2 runner",
        verdict=verdict,
        devices=devices,
        options=_options(tp, context, options),
        kv_cache=cache,
        limits=limits,
        warnings=warnings,
    )
    return verdicts.again(plan)


def fits() -> Plan:
    """The 8B on one H100, with a load that it serves."""
    return _plan(llama_8b(), machine(H100), load=Load(32, 1500, 500), context=32_768, user={"max_model_len": 32_768})


def too_big() -> Plan:
    """The 70B on one H100: loading the weights fails, and the segments overflow."""
    return _plan(
        llama_70b(),
        machine(H100),
        stage="weights",
        reason=Reason(
            "weights",
            "the weights need {needed} and the GPU offers {free}",
            {"needed": Bytes(131.42 * GIB), "free": Bytes(79.18 * GIB)},
        ),
        missing=int(53.2 * GIB),
        message="torch.OutOfMemoryError: CUDA out of memory.",
    )


def kv_too_small() -> Plan:
    """The 8B on one RTX 4090 at its whole context: everything fits but one full-length request."""
    return _plan(
        llama_8b(),
        machine(RTX4090),
        stage="kv_cache_too_small",
        reason=Reason(
            "one_request",
            "one request of {length} tokens needs {needed} of KV cache",
            {"length": 131_072, "needed": Bytes(16 * GIB)},
        ),
        missing=int(11.6 * GIB),
        message="To serve at least one request with the model's max seq len (131072), more is needed.",
    )


def eight_gpus() -> Plan:
    """The 70B on eight equal H100."""
    return _plan(llama_70b(), machine(*([H100] * 8)), load=Load(200, 3000, 1000))


def other_programs() -> Plan:
    """The 8B on two RTX 4090, other programs holding some of the first."""
    return _plan(
        llama_8b(),
        machine(RTX4090, RTX4090, free={0: 24_081 * MIB - 635 * MIB}),
        load=Load(32, 1500, 500),
        context=32_768,
        user={"max_model_len": 32_768},
        warnings=("Other programs hold 0.62 GiB of GPU 0",),
    )


def mixed() -> Plan:
    """The 8B on an RTX 4090 and an RTX 3090."""
    return _plan(llama_8b(), machine(RTX4090, RTX3090), context=8_192, user={"max_model_len": 8_192})


def cannot_tell() -> Plan:
    """The 8B on a GPU of another vendor: no verdict, and a warning that says why."""
    request = PlanRequest(llama_8b(), machine(MI300X))
    device = DevicePlan(request.machine.devices[0], "tp0", 196_592 * MIB, 196_288 * MIB, None, ())
    return Plan(
        request=request,
        engine_version="0.33.0",
        rules="0.27–0.33, V2 runner",
        verdict=verdicts.cannot_tell("vLLM's memory use on AMD GPUs is not modelled"),
        devices=(device,),
        options=_options(1, 131_072, {}),
        kv_cache=None,
        limits=Limits(None, None),
        warnings=("AMD Instinct MI300X: vLLM on ROCm allocates differently, and nothing here was measured on it",),
    )


ALL: Final[dict[str, Callable[[], Plan]]] = {
    "fits": fits,
    "too_big": too_big,
    "kv_too_small": kv_too_small,
    "eight_gpus": eight_gpus,
    "other_programs": other_programs,
    "mixed": mixed,
    "cannot_tell": cannot_tell,
}
