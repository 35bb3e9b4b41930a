"""From sizes to the values of a plan: devices, the host among them, the cache, and notes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from kvplanner.engine.llamacpp import figures, spill, stages
from kvplanner.engine.llamacpp.builds import NO_FLASH
from kvplanner.engine.llamacpp.figures import OnGpu, OnHost
from kvplanner.engine.llamacpp.fit import Fitted
from kvplanner.engine.llamacpp.place import HOST
from kvplanner.engine.llamacpp.settings import Settings
from kvplanner.engine.llamacpp.settle import Settled
from kvplanner.engine.llamacpp.sizes import Sizes, output_bytes
from kvplanner.engine.llamacpp.tensors import Tensors
from kvplanner.engine.plan import CacheGroup, DevicePlan, KvCache
from kvplanner.engine.request import PlanRequest
from kvplanner.engine.segment import Segment, SegmentKind
from kvplanner.engine.shared.device import at_stage
from kvplanner.engine.stage import StageRule
from kvplanner.estimate import Estimate, Input, exact
from kvplanner.gpu.spec import Device, GpuSpec
from kvplanner.model.model import Model
from kvplanner.model.spec import Attention, Mla, State
from kvplanner.record import later
from kvplanner.sized_text import SizedText, size_mark
from kvplanner.units import GIB, counted, format_count

_MAPPED: Final = "mapped from the file: page cache, which the system may drop and read again"
_LOCKED: Final = "mapped from the file and locked in RAM: the system may not drop it"
_PINNED: Final = "copied into RAM that is locked for the GPUs"
_RAM_PER_SECOND: Final = 60 * GIB
_MUCH: Final = GIB // 4


def device_plans(
    model: Model, settled: Settled, sizes: Sizes, gpus: Sequence[OnGpu], host: OnHost, host_total: int | None,
    rule: StageRule | None, *, spilled: bool = False,
) -> list[DevicePlan]:  # fmt: skip
    """Each GPU, then the host. spilled: what a GPU has no room for lies on the host."""
    failing_on_host = rule is not None and rule.stage == "weights" and host_total is not None and host.kept > host_total
    moved: dict[SegmentKind, int] = {}
    plans = [_gpu_plan(sizes, gpu, index, rule, moved if spilled else None) for index, gpu in enumerate(gpus)]
    host_rule = rule if failing_on_host else None
    if moved:
        host = _lending(host, moved)
    return [*plans, _host_plan(model, sizes, host, host_total, host_rule, fails=rule is not None)]


def _lending(host: OnHost, moved: Mapping[SegmentKind, int]) -> OnHost:
    return host._replace(
        weights=spill.with_lent("weights", host.weights, moved), kv=spill.with_lent("kv_cache", host.kv, moved),
        compute=spill.with_lent("compute", host.compute, moved),
    )  # fmt: skip


def _gpu_plan(
    sizes: Sizes, gpu: OnGpu, index: int, rule: StageRule | None, moved: dict[SegmentKind, int] | None
) -> DevicePlan:
    """moved: where what it has no room for goes, by kind; None where nothing may."""
    reserved = gpu.total - gpu.cuda_total
    segments = [
        Segment("driver_reserved", _reserved(gpu, reserved)),
        Segment("other", gpu.other),
        Segment("runtime_outside", gpu.context),
        Segment("weights", gpu.weights),
        Segment("kv_cache", gpu.kv),
        Segment("compute", gpu.compute),
    ]
    if gpu.workspace is not None:
        segments.append(Segment("workspace", gpu.workspace))
    segments.append(Segment("runtime", gpu.late))
    left = gpu.total - sum(segment.bytes for segment in segments)
    if moved is not None and left < 0:
        segments, away = spill.within(segments, -left)
        for kind, size in away.items():
            moved[kind] = moved.get(kind, 0) + size
        left += sum(away.values())
    if rule is None and left < 0:  # beyond what the engine asks for, other programs' memory is theirs to move
        segments = spill.without(segments, -left)
        left = 0
    if rule is None:
        segments.append(Segment("headroom", _rest(gpu.total, left, [s.estimate for s in segments])))
    held = {segment.kind: segment.bytes for segment in segments}
    compute = held["compute"] + held.get("workspace", 0)
    return DevicePlan(
        device=gpu.device,
        role=gpu.role,
        total_bytes=gpu.total,
        cuda_total_bytes=gpu.cuda_total,
        budget=None,
        segments=at_stage(segments, rule),
        bytes_per_unit=sizes.per_cell[index],
        overflow_bytes=max(-left, 0),
        stages=stages.timeline(gpu.base, (held["weights"], held["kv_cache"], compute, held["runtime"]), rule),
    )


def _reserved(gpu: OnGpu, reserved: int) -> Estimate:
    total, seen = gpu.device.gpu.total, gpu.device.gpu.cuda_total
    inputs = (Input("total", gpu.total, "B", "NVML"), Input("seen", gpu.cuda_total, "B", "what CUDA sees"))
    if total is None or seen is None:
        return exact(reserved, "{total} − {seen}", *inputs)
    low, high = gpu.total - seen.high, gpu.total - seen.low
    return Estimate(reserved, min(low, reserved), max(high, reserved), seen.basis, "{total} − {seen}", inputs)


def _rest(total: int, left: int, terms: Sequence[Estimate]) -> Estimate:
    used = figures.total_band(tuple(terms))
    inputs = (Input("total", total, "B", "of the GPU"), Input("all parts", used.value, "B", ""))
    low, high = max(left - (used.high - used.value), 0), left + used.value - used.low
    return Estimate(left, low, high, "rest", "{total} − {all parts}", inputs)


def _host_plan(
    model: Model, sizes: Sizes, host: OnHost, total: int | None, rule: StageRule | None, *, fails: bool
) -> DevicePlan:
    """RAM as a device: what must lie there, and what is page cache."""
    segments = [
        Segment("weights", host.weights, meaning=_meaning(host, sizes)),
        Segment("kv_cache", host.kv),
        Segment("compute", host.compute),
        Segment("output", host.output),
    ]
    segments = [s for s in segments if s.bytes or s.kind == "weights"]
    needed = sum(s.bytes for s in segments)
    whole = total if total is not None else needed
    if total is not None and not fails and needed <= total:
        segments.append(Segment("headroom", _rest(total, total - needed, [s.estimate for s in segments])))
    memory = exact(whole, "{memory}", Input("memory", whole, "B", "given" if total else "as much as is needed"))
    spec = GpuSpec("host", "Host memory", "custom", memory, memory)
    held = [counted(host.layers, "layer", "layers")] if host.layers else []
    held += [f"experts of {counted(host.experts, 'layer', 'layers')}"] if host.experts else []
    role = " and ".join((", ".join(held), "the embedding")) if held else "the embedding"
    return DevicePlan(
        device=Device(0, spec, kind="host"),
        role=role,
        total_bytes=whole,
        cuda_total_bytes=whole,
        budget=None,
        segments=at_stage(segments, rule),
        bytes_per_unit=sizes.per_cell[HOST],
        overflow_bytes=max(needed - whole, 0),
        stages=stages.timeline(0, (host.weights.value, host.kv.value, host.compute.value + host.output.value, 0), rule),
    )


def _meaning(host: OnHost, sizes: Sizes) -> str | SizedText:
    """How the host keeps its weights."""
    if not host.mapped:
        return _PINNED if sizes.how.gpus else "read into RAM"
    mapped = _LOCKED if host.locked else _MAPPED
    if not host.repacked:
        return mapped
    return SizedText(f"{mapped}; and {size_mark(host.repacked)} copied into the order that the processor works in")


def kv_cache(model: Model, settings: Settings, sizes: Sizes, gpus: Sequence[OnGpu]) -> KvCache | None:
    """The context as cells, None for a model that keeps none."""
    if not any(sizes.kv) and not any(sizes.state):
        return None
    cells = sizes.cells
    index = max(range(len(gpus)), key=lambda gpu: sizes.kv[gpu], default=HOST)
    per_cell = sizes.per_cell[index]
    everywhere = sum(sizes.per_cell)
    available = figures.context(model, sizes, index)
    tokens = cells.full * cells.streams
    return KvCache(
        available=available.with_notes(*_cache_notes(settings, sizes)),
        bytes_per_unit=per_cell,
        unit_tokens=1,
        units=tokens,
        tokens=tokens,
        tokens_low=tokens,
        tokens_high=tokens,
        max_concurrency=tokens / max(cells.per_slot, 1),
        context_length=cells.per_slot,
        bytes_per_token=float(everywhere) if everywhere else None,
        groups=later(lambda: tuple(_groups(model, sizes))),
        unit="cells",
    )


def _cache_notes(settings: Settings, sizes: Sizes) -> Iterator[str]:
    slots = counted(settings.context.slots, "slot", "slots")
    if settings.context.unified and settings.context.slots > 1:
        yield f"{slots} share the cells: one request may take them all"
    elif settings.context.slots > 1:
        yield f"Each of {slots} has {format_count(sizes.cells.per_slot)} cells of its own"


def _groups(model: Model, sizes: Sizes) -> Iterator[CacheGroup]:
    """Layers by what they keep."""
    counts: dict[tuple[str, int, int], int] = {}
    types = sizes.shape
    from kvplanner.engine.llamacpp import cache

    for index in model.spec.layer_of:
        for mixer in model.spec.layers[index].mixers:
            if isinstance(mixer, State):
                key = ("state", cache.state_row_bytes(mixer), 1)
            elif isinstance(mixer, Attention | Mla):
                keys, values, side = cache.widths(mixer)
                if not keys:
                    continue
                size = (
                    cache.row_bytes(types.key_type, keys)
                    + (cache.row_bytes(types.value_type, values) if values else 0)
                    + (cache.row_bytes(types.key_type, side) if side else 0)
                )
                windowed = cache.is_windowed(mixer)
                kind = "mla" if isinstance(mixer, Mla) else "sliding" if windowed else "full"
                key = (kind, size, sizes.cells.window if windowed else sizes.cells.per_slot)
            else:
                continue
            counts[key] = counts.get(key, 0) + 1
    for (kind, size, units), layers in counts.items():
        yield CacheGroup(kind, layers, 1, size, units)


def warnings(
    request: PlanRequest, model: Model, tensors: Tensors, settled: Settled, sizes: Sizes, host: OnHost,
    fitted: Fitted | None, host_total: int | None,
) -> Iterator[str]:  # fmt: skip
    """What a reader should know beside the numbers, weightiest first."""
    yield from _fitting(fitted, len(sizes.placed.placement.layers) + 1)
    read = figures.read_per_token(model, tensors, sizes)
    if read:
        milliseconds = 1000 * read / _RAM_PER_SECOND
        yield SizedText(
            f"About {size_mark(read)} of weights are read from RAM for each token: at 60 GiB/s that alone takes "
            f"{milliseconds:,.0f} ms"
        )
    drafts = request.draft.spec.trained_context_length if request.draft is not None else None
    moved = fitted is not None and (fitted.context is not None or bool(fitted.layers))
    if moved and drafts and settled.settings.build.fit_draft and "ctx_size" not in request.options:
        yield f"--fit keeps room for the draft at its whole context of {format_count(drafts)} tokens; set --ctx-size"
    if host.mapped and host.locked and host.weights.value:
        yield SizedText(
            f"--mlock keeps {size_mark(host.weights.value)} in RAM for good: the limit of locked memory (ulimit -l) "
            "must allow it, else llama.cpp warns and goes on without"
        )
    if host_total is not None and host.mapped and not host.locked and host.bytes > host_total:
        yield SizedText(
            f"The machine has {size_mark(host_total)} of RAM and {size_mark(host.bytes)} are wanted there: weights "
            "are read again from the disk for every token"
        )
    yield from _grown(model, settled, sizes)
    load, length = request.load, sizes.cells.per_slot
    if load is not None and load.tokens_per_user > length:
        yield (
            f"A request of {format_count(load.tokens_per_user)} tokens is longer than a slot's context of "
            f"{format_count(length)}: no user of this load is served"
        )
    yield from model.problems
    yield from model.spec.not_modelled
    yield from settled.warnings
    yield from _place_notes(settled, sizes, model)
    yield from (f"{kind} is given, not estimated" for kind in sorted(request.measured))


def _fitting(fitted: Fitted | None, layers: int) -> Iterator[str]:
    if fitted is None:
        return
    if fitted.refused:
        yield f"--fit gives up: {fitted.refused}"
    kept, partial = (sum(counts) for counts in zip(*fitted.layers, strict=True)) if fitted.layers else (layers, 0)
    if kept < layers or partial:
        moved = f", of {partial} the experts stay on the host or on another GPU" if partial else ""
        yield f"--fit leaves {kept} of {layers} layers on the GPUs{moved}"
    if fitted.context is not None:
        yield (f"--fit shortens the context to {format_count(fitted.context)} tokens; set --ctx-size to keep another")


def _grown(model: Model, settled: Settled, sizes: Sizes) -> Iterator[str]:
    """What the host's buffer of outputs grows to with a whole batch that wants a row for each token."""
    context = settled.settings.context
    if context.outputs is None:
        return
    rows = sizes.shape.outputs if context.embeddings else min(context.outputs, sizes.cells.context)
    size = output_bytes(settled.settings, model.spec, rows)
    if size < _MUCH:
        return
    needless = "; embeddings need none of them, and a smaller --ubatch-size keeps fewer" if context.embeddings else ""
    yield SizedText(
        f"A full batch of {format_count(rows)} tokens makes llama.cpp keep {size_mark(size)} of logits in RAM while it "
        f"serves (4 bytes × tokens × vocabulary){needless}"
    )


def _why_off(settled: Settled, sizes: Sizes, model: Model) -> str:
    """What keeps a layer's attention from its own device."""
    if model.spec.model_type in NO_FLASH:
        return "llama.cpp runs this architecture without it"
    if sizes.shape.no_kernel:
        types = f"keys of {sizes.shape.key_type} with values of {sizes.shape.value_type}"
        return f"CUDA has none for {types} in builds of {settled.settings.build.name}"
    if not settled.settings.place.kv_offload:
        return "layers on a GPU read caches that lie on the host"
    return "a GPU has none for the heads of a layer, or an override or a layer on the host draws attention away"


def _place_notes(settled: Settled, sizes: Sizes, model: Model) -> Iterator[str]:
    place = settled.settings.place
    quantised = {sizes.shape.key_type, sizes.shape.value_type} - {"f16", "bf16", "f32"}
    if place.split_mode == "tensor" and settled.settings.build.row_split and quantised:
        yield "The first builds with --split-mode tensor, of April 2026, refuse a quantised cache"
    if not sizes.flash and settled.settings.context.flash == "auto" and settled.settings.build.flash_auto:
        yield f"Flash attention stays off: {_why_off(settled, sizes, model)}"
    if sizes.shape.flash and sizes.shape.no_kernel and settled.gpus:
        types = " and ".join(dict.fromkeys((sizes.shape.key_type, sizes.shape.value_type)))
        yield f"The GPUs have no flash attention for {types} caches: attention runs on the host"
    if settled.wddm:
        beyond = (
            "does not fail beyond that: it moves buffers to RAM, where work is about 8 times slower" if settled.spills
            else "fails beyond that"
        )  # fmt: skip
        yield f"Windows lets a process have 81 to 97 % of a card and {beyond}; --fit counts that part as free"
    if any(spec.vendor not in ("nvidia", "custom") for spec in (device.gpu for device in settled.gpus)):
        yield "Vulkan and ROCm buffers are sized as CUDA's, and what the driver takes is assumed"
    del model
