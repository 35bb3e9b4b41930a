"""The vLLM engine: from a request to a plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from kvplanner.engine.base import (
    DevicePlan,
    KvCache,
    Limits,
    Option,
    Plan,
    PlanRequest,
    Resolved,
    Segment,
    Stage,
)
from kvplanner.engine.command import check_range
from kvplanner.engine.vllm import defaults, explain, kv_layout, kv_sizing, options, parallel, stages, verdict, weights
from kvplanner.engine.vllm.eras import era_of
from kvplanner.engine.vllm.ignored import IGNORED_FLAGS
from kvplanner.engine.vllm.ranks import Rank, plan_rank, rank_key
from kvplanner.engine.vllm.settings import Settings
from kvplanner.engine.whatif import with_format
from kvplanner.errors import NotModelled
from kvplanner.estimate import Estimate, banded
from kvplanner.gpu.spec import Device

__all__ = ["ENGINE", "Vllm"]


class Vllm:
    """vLLM, by the rule era of the version that is asked for."""

    name: Final = "vllm"
    title: Final = "vLLM"
    versions: Final = ("0.33", "0.32", "0.30", "0.28", "0.26", "0.24", "0.22", "0.20", "0.18", "0.16", "0.11", "0.9",
                       "0.8", "0.6.6")  # fmt: skip
    launch: Final = ("vllm", "serve")
    ignored_flags: Final = IGNORED_FLAGS

    def options(self, version: str | None = None) -> tuple[Option, ...]:
        """The options that exist in a version (the newest when None)."""
        return options.options_of(era_of(version).version)

    def plan(self, request: PlanRequest) -> Plan:
        """The plan. Raises BadInput for values that vLLM refuses, NotModelled for what is not known."""
        for option in options.declared():
            if option.name in request.options:
                check_range(option, request.options[option.name])
        request, derived = parallel.derive(with_format(request))
        settings, resolved, warnings = defaults.resolve(request)
        resolved = {**resolved, **derived}
        cannot_tell = parallel.unplannable(request.machine)
        devices, unused = parallel.devices_of(request.machine, settings)
        if unused:
            warnings = (*warnings, f"{unused} of {len(request.machine.devices)} GPUs are not used by this plan")
        if cannot_tell:
            return _cannot_tell(request, settings, resolved, (*warnings, cannot_tell), devices)
        if request.model.inventory is None:
            raise NotModelled(
                f"the tensors of {request.model.spec.architecture} are not known",
                request.model.id,
                "Open the model's folder: its file headers tell",
            )
        return _plan(request, settings, resolved, warnings, devices)


ENGINE: Final = Vllm()


def _plan(
    request: PlanRequest,
    settings: Settings,
    resolved: dict[str, Resolved],
    warnings: tuple[str, ...],
    devices: tuple[tuple[Device, ...], ...],
) -> Plan:
    """devices: those of each pipeline stage, tensor ranks in order; of the first replica."""
    spec = request.model.spec
    partition = weights.partition(spec.num_layers, settings.pp, settings.pp_partition)
    layout = kv_layout.plan_cache(spec, settings, partition, request.draft.spec if request.draft else None)
    ranks = _ranks(request, settings, devices)
    sizing = kv_sizing.size(layout, _by_stage(ranks, settings.pp))
    known = layout.exact
    failure = verdict.before_cache(ranks) or verdict.at_sizing(ranks, sizing, known)
    sized = failure is None or failure.stage == "kv_cache_too_small"
    kv_bytes = tuple(_kv_bytes(rank, sizing, known) if sized else 0 for rank in ranks)
    failure = failure or verdict.after_sizing(ranks, kv_bytes)
    cache = explain.kv_cache(layout, sizing, ranks, settings) if sized and known else None
    limits = _limits(request, settings, layout, sizing, cache)
    narrow = "" if failure else explain.narrow(ranks, kv_bytes)
    warnings = (*((narrow,) if narrow else ()), *warnings, *layout.not_modelled)
    stage = failure.stage if failure else None
    if failure:
        summary = verdict.sentence(failure, ranks)
    else:
        summary = explain.summary(request, cache, limits) if cache else explain.unknown_cache(layout, kv_bytes)
    return Plan(
        request=request,
        engine_version=".".join(str(part) for part in (0, *settings.version)),
        rules=settings.era.name,
        fits=False if failure else True if known else None,
        stage=stage,
        summary=summary,
        devices=_device_plans(ranks, settings, sizing, kv_bytes, stage),
        options=resolved,
        kv_cache=cache,
        limits=limits,
        warnings=(*warnings, *explain.warnings(request, settings, ranks, limits)),
        engine_message=failure.message if failure else "",
        missing_bytes=failure.missing_bytes if failure else 0,
        tightest=failure.rank if failure else min(range(len(ranks)), key=lambda i: ranks[i].available.value),
        replicas=settings.dp,
    )


def _ranks(request: PlanRequest, settings: Settings, devices: Sequence[Sequence[Device]]) -> tuple[Rank, ...]:
    """All ranks of one replica; each distinct (stage, GPU, free memory) is planned once."""
    planned: dict[tuple[int, str, int | None], Rank] = {}
    ranks: list[Rank] = []
    for stage, row in enumerate(devices):
        for device in row:
            key = rank_key(stage, device)
            if key not in planned:
                planned[key] = plan_rank(request, settings, stage, device)
            first = planned[key]
            ranks.append(first if first.device is device else replace(first, device=device))
    return tuple(ranks)


def _kv_bytes(rank: Rank, sizing: kv_sizing.KvSizing, known: bool) -> int:
    """The KV cache that a rank allocates: whole blocks, or all that is left where its blocks are not known."""
    return sizing.num_blocks * sizing.bytes_per_block[rank.stage] if known else max(rank.available.value, 0)


def _by_stage(ranks: Sequence[Rank], pp: int, bound: str = "value") -> tuple[int, ...]:
    """Available KV memory of each stage: the least of its ranks."""
    return tuple(min(int(getattr(r.available, bound)) for r in ranks if r.stage == stage) for stage in range(pp))


def _limits(
    request: PlanRequest,
    settings: Settings,
    layout: kv_layout.CacheLayout,
    sizing: kv_sizing.KvSizing,
    cache: KvCache | None,
) -> Limits:
    if cache is None:
        return Limits(None, None)
    longest = kv_sizing.max_context(layout, sizing)
    at_once = int(sizing.max_concurrency) * settings.dp
    if request.load is None:
        return Limits(longest, at_once)
    tokens = request.load.tokens_per_user
    if tokens > settings.max_model_len:
        return Limits(longest, at_once, 0, None)
    blocks = kv_sizing.blocks_for(layout, tokens)
    served = min((sizing.num_blocks - 1) // max(blocks, 1), settings.max_num_seqs) * settings.dp
    return Limits(longest, at_once, min(served, request.load.users), blocks)


def _device_plans(
    ranks: Sequence[Rank],
    settings: Settings,
    sizing: kv_sizing.KvSizing,
    kv_bytes: Sequence[int],
    failing: Stage | None,
) -> tuple[DevicePlan, ...]:
    planned: dict[tuple[int, str, int | None], DevicePlan] = {}
    plans: list[DevicePlan] = []
    for index, (rank, kv) in enumerate(zip(ranks, kv_bytes, strict=True)):
        role = f"tp{index % settings.tp}" if settings.pp == 1 else f"pp{rank.stage}/tp{index % settings.tp}"
        key = rank_key(rank.stage, rank.device)
        if key not in planned:
            planned[key] = _device_plan(rank, role, kv, sizing.bytes_per_block[rank.stage], failing)
        plans.append(replace(planned[key], device=rank.device, role=role))
    return tuple(plans)


def _device_plan(rank: Rank, role: str, kv: int, bytes_per_block: int, failing: Stage | None) -> DevicePlan:
    reserved = explain.driver_reserved(rank)
    segments = [
        Segment("driver_reserved", reserved),
        Segment("other", rank.other),
        Segment("runtime_outside", rank.outside),
        Segment("runtime", rank.runtime),
        Segment("weights", rank.weights),
        Segment("workspace", rank.workspace),
        Segment("activations", rank.activations),
        Segment("cuda_graphs", rank.graphs_charged if rank.settings.era.graphs_in_budget else rank.graphs),
    ]
    if kv:
        segments.append(Segment("kv_cache", _kv_segment(rank, kv)))
    left = rank.total.value - sum(s.bytes for s in segments)
    if failing is None:
        segments.append(Segment("headroom", explain.headroom(rank, left)))
    return DevicePlan(
        device=rank.device,
        role=role,
        total_bytes=rank.total.value,
        cuda_total_bytes=rank.cuda_total.value,
        budget=rank.budget,
        segments=tuple(segments),
        bytes_per_block=bytes_per_block,
        overflow_bytes=max(-left, 0),
        stages=stages.timeline(rank, kv, failing),
    )


def _kv_segment(rank: Rank, kv: int) -> Estimate:
    """The allocated cache: what is available, in whole blocks of the tightest rank."""
    free = rank.available
    return replace(free, value=kv, low=max(kv - (free.value - free.low), 0), high=kv + free.high - free.value)


def _cannot_tell(
    request: PlanRequest,
    settings: Settings,
    resolved: dict[str, Resolved],
    warnings: tuple[str, ...],
    devices: Sequence[Sequence[Device]],
) -> Plan:
    """A plan without numbers: for devices whose memory use vLLM's rules here do not describe."""
    plans = []
    for place, device in enumerate(d for row in devices for d in row):
        total = device.gpu.total.value if device.gpu.total else 0
        cuda_total = device.gpu.cuda_total.value if device.gpu.cuda_total else total
        unknown = Segment("headroom", banded(total, 0, total, "assumed", "{not told apart}"))
        plans.append(DevicePlan(device, f"tp{place}", total, cuda_total, None, (unknown,) if total else ()))
    return Plan(
        request=request,
        engine_version=".".join(str(part) for part in (0, *settings.version)),
        rules=settings.era.name,
        fits=None,
        stage=None,
        summary=f"Cannot tell: {warnings[-1]}",
        devices=tuple(plans),
        options=resolved,
        kv_cache=None,
        limits=Limits(None, None),
        warnings=warnings,
        replicas=settings.dp,
    )
