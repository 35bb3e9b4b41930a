"""The vLLM engine: from a request to a plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from kvplanner.engine.option import FlagRule, Option, OptionValue, Resolved
from kvplanner.engine.plan import DevicePlan, Limits, Plan
from kvplanner.engine.request import PlanRequest
from kvplanner.engine.segment import Segment, SegmentKind
from kvplanner.engine.shared.device import at_stage, described, unplannable
from kvplanner.engine.stage import StageRule
from kvplanner.engine.values import check_ranges
from kvplanner.engine.verdict import Reason, Verdict
from kvplanner.engine.vllm import TITLE
from kvplanner.engine.vllm.releases import release_of, spelled
from kvplanner.engine.vllm.settings import Settings
from kvplanner.engine.vllm.settle import formats, parallel, support
from kvplanner.engine.vllm.settle import settle as defaults
from kvplanner.engine.vllm.settle.draft import draft_wanted
from kvplanner.engine.vllm.startup import host, limits, stages
from kvplanner.engine.vllm.startup.rank import Rank, rank_key
from kvplanner.engine.vllm.startup.replica import Replica, solve
from kvplanner.engine.vllm.words import figures, notes
from kvplanner.engine.vllm.words.verdict import verdict
from kvplanner.engine.whatif import with_format
from kvplanner.errors import BadInput, NotModelled
from kvplanner.estimate import Estimate, Input, banded
from kvplanner.gpu.spec import Machine
from kvplanner.model.model import Model
from kvplanner.record import later
from kvplanner.units import counted

if TYPE_CHECKING:
    from kvplanner.engine.draft import DraftWish
    from kvplanner.engine.lever import Lever
    from kvplanner.engine.probe import Probe

__all__ = ["ENGINE", "Vllm"]


class Vllm:
    """vLLM, by the rule era of the version that is asked for."""

    name: Final = "vllm"
    title: Final = TITLE
    versions: Final = ("0.33", "0.32", "0.30", "0.28", "0.26", "0.24", "0.22", "0.20", "0.18", "0.16", "0.11", "0.9",
                       "0.8", "0.6.6")  # fmt: skip
    launch: Final = ("vllm", "serve")
    stages: Final = stages.RULES

    def ignored_flags(self) -> Mapping[str, FlagRule]:
        """Flags and variables that are no option: left out, refused, or another's spelling."""
        from kvplanner.engine.vllm.options.ignored import IGNORED_FLAGS

        return IGNORED_FLAGS

    def options(self, version: str | None = None) -> tuple[Option, ...]:
        """The options that exist in a version (the newest when None)."""
        from kvplanner.engine.vllm.options.declared import options_of

        return options_of(release_of(version).version)

    def allowed(self, name: str, model: Model) -> tuple[int, ...]:
        """The parallel sizes that a model's heads, tensors and layers allow; nothing is ruled out for other options."""
        return parallel.allowed(name, model)

    def cannot_load(self, method: str, version: str | None = None, machine: Machine | None = None) -> str:
        """Why a version loads no weights of a quantisation method on a machine, "" when it does."""
        release = release_of(version).version
        why = formats.cannot_load(method, release)
        if why or machine is None or not machine.devices:
            return why
        return support.no_kernels_for(method, release, machine.devices[0].gpu)

    def segment_words(self) -> Mapping[SegmentKind, Mapping[str, str]]:
        """vLLM cuts its cache into blocks, and has a flag that leaves out graphs."""
        return _SEGMENT_WORDS

    def rules_between(self, first: str | None, second: str | None) -> tuple[str, ...]:
        """The rules that differ between two releases, each with its source."""
        from kvplanner.engine.vllm.changes import between

        return between(first, second)

    def as_started(self, options: Mapping[str, OptionValue], version: str | None = None) -> dict[str, OptionValue]:
        """The options of a server that is started so: one GPU unless its command line names a parallel size."""
        return parallel.as_started(options)

    def draft_wanted(self, options: Mapping[str, OptionValue]) -> DraftWish | None:
        """The draft model whose layers count, None for none. Raises BadInput where it must be named."""
        return draft_wanted(options)

    def levers(self, request: PlanRequest, plan: Plan) -> tuple[Lever, ...]:
        """What may be changed about a request, given its plan: proposals, each with its cost."""
        from kvplanner.engine.shared.levers import see
        from kvplanner.engine.vllm.levers import levers

        options = self.options(request.version)
        return levers(see(request, plan, options=options, stages=self.stages, allowed=self.allowed))

    def serves_at_most(self, request: PlanRequest) -> float | None:
        """Not known: what the memory holds decides."""
        del request
        return None

    def makes_room(self, request: PlanRequest, running: int) -> bool:
        """Never: a server has one model."""
        del request, running
        return False

    def probe(self) -> Probe | None:
        """Nothing of its own says sizes without loading a model."""
        return None

    def plan(self, request: PlanRequest) -> Plan:
        """The plan. Raises BadInput for values that vLLM refuses, NotModelled for what is not known."""
        if request.options:
            from kvplanner.engine.vllm.options.declared import declared

            check_ranges(declared(), request.options)
        request, derived = parallel.derive(with_format(request))
        settings, resolved, warnings = defaults.resolve(request)
        resolved = {**resolved, **derived}
        cannot_tell = unplannable(request.machine, TITLE)
        devices, unused = parallel.devices_of(request, settings)
        if unused:
            of = f"of {counted(len(request.machine.devices), 'GPU', 'GPUs')}"
            warnings = (f"{counted(unused, f'{of} is', f'{of} are')} not used by this plan", *warnings)
        ranks = [device for stage in devices[0] for device in stage]  # of a replica
        if len(ranks) > 1:
            from kvplanner.gpu.slices import said_of_slices

            said = said_of_slices(ranks)
            warnings = (*warnings, said) if said else warnings
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

_SEGMENT_WORDS: Final[Mapping[SegmentKind, Mapping[str, str]]] = {
    "cuda_graphs": {
        "detail": "One recording for each batch size; without them (--enforce-eager) decoding is slower.",
    },
    "kv_cache": {
        "meaning": "what is left of the budget, cut into blocks",
        "title": "KV cache: what is left of the budget",
        "detail": "Cut into blocks of a fixed number of tokens and taken whole at start, used or not.",
    },
}
_AFTER_CACHE: Final = "recorded kernels and their pools: captured after the cache, outside the budget"
_GIVEN: Final = "of the size that was given, cut into blocks"


def _plan(
    request: PlanRequest,
    settings: Settings,
    resolved: dict[str, Resolved],
    warnings: tuple[str, ...],
    devices: Sequence[parallel.Stages],
) -> Plan:
    """devices: of each replica."""
    settings = _with_given_cache(request, settings)
    replicas = _replicas(request, settings, devices)
    worst = min(range(len(replicas)), key=lambda i: _order(replicas[i]))
    replica = replicas[worst]
    cache = figures.kv_cache(replica) if replica.sized else None
    found = limits.limits(
        request, settings, replicas, lambda length, surely: _works_at(request, length, surely, devices)
    )
    if settings.model.auto_fit:
        fitted = replica.sizing.max_model_len
        resolved["max_model_len"] = Resolved(fitted, "derived", "the longest that fits (--max-model-len auto)")
    answer = verdict(replicas, worst, _without_kernels(replicas, settings))
    rule = (
        stages.rule_of(answer.failing.stage, graphs_in_budget=settings.era.graphs_in_budget) if answer.failing else None
    )
    tightest = worst * len(replica.ranks) + replica.tightest
    given = replica.ranks[0].given_kv is not None
    every = [rank for each in replicas for rank in each.ranks]
    caches = bool(replica.layout.tables)

    def devices_() -> tuple[DevicePlan, ...]:
        beside = host.host_plan(request.options, every, rule, caches=caches)
        made = (*_device_plans(replicas, settings, rule), *([beside] if beside is not None else []))
        return described(made, verdict=answer, rule=rule, tightest=tightest, cache=cache, cache_given=given)

    def warnings_() -> tuple[str, ...]:
        found = (*host.warnings(request.options, every, caches=caches), *warnings)
        return notes.warnings(request, settings, replica, found)

    return Plan(
        request=request,
        engine_version=spelled(settings.version),
        rules=settings.era.name,
        verdict=answer,
        devices=later(devices_),
        options=resolved,
        kv_cache=cache,
        limits=found,
        warnings=later(warnings_),
        tightest=tightest,
        replicas=settings.parallel.dp,
        cache_given=given,
        step=limits.step_of(settings, replica),
    )


def _with_given_cache(request: PlanRequest, settings: Settings) -> Settings:
    """A measured cache stands above the engine's own overrides."""
    if "kv_cache" not in request.measured:
        return settings
    return settings._replace(cache=settings.cache._replace(memory_bytes=None, num_gpu_blocks_override=None))


def _replicas(request: PlanRequest, settings: Settings, devices: Sequence[parallel.Stages]) -> tuple[Replica, ...]:
    """Every replica; those on devices of one kind are solved once."""
    solved: dict[tuple[object, ...], Replica] = {}
    out: list[Replica] = []
    for stages_ in devices:
        key = tuple(rank_key(stage, device) for stage, row in enumerate(stages_) for device in row)
        if key not in solved:
            solved[key] = solve(request, settings, stages_)
        out.append(solved[key]._replace(devices=tuple(device for row in stages_ for device in row)))
    return tuple(out)


def _order(replica: Replica) -> tuple[bool, int, int]:
    """Failing replicas first, by how early they fail and by what they miss; then those with the fewest blocks."""
    if replica.failure is not None:
        return False, stages.ORDER.index(replica.failure.stage), -replica.failure.missing_bytes
    return True, replica.sizing.num_blocks, 0


def _without_kernels(replicas: Sequence[Replica], settings: Settings) -> str:
    """Why this release does not run on one of the GPUs, "" when it does."""
    gpus = {device.gpu.id: device.gpu for replica in replicas for device in replica.devices}
    return next((why for gpu in gpus.values() if (why := support.no_kernels(gpu, settings.version))), "")


def _works_at(request: PlanRequest, length: int, surely: bool, devices: Sequence[parallel.Stages]) -> bool:
    """Whether the plan works with another context length, its defaults resolved anew; surely: at every band's end.

    A length that the other options do not go with (more than the tokens of a step, without chunked prefill) does not.
    """
    other = request._replace(options={**request.options, "max_model_len": length})
    try:
        settings = _with_given_cache(other, defaults.resolve(other)[0])
    except BadInput:
        return False
    return all(r.sure if surely else r.failure is None for r in _replicas(other, settings, devices))


def _device_plans(replicas: Sequence[Replica], settings: Settings, rule: StageRule | None) -> tuple[DevicePlan, ...]:
    planned: dict[tuple[int, int, str, int | None], DevicePlan] = {}
    plans: list[DevicePlan] = []
    for number, replica in enumerate(replicas):
        for index, (device, rank, kv) in enumerate(zip(replica.devices, replica.ranks, replica.kv_bytes, strict=True)):
            places = [f"dp{number}"] if settings.parallel.dp > 1 else []
            places += [f"pp{rank.stage}"] if settings.parallel.pp > 1 else []
            role = "/".join((*places, f"tp{index % settings.parallel.tp}"))
            key = (kv, *rank_key(rank.stage, device))
            if key not in planned:
                planned[key] = _device_plan(rank, kv, replica.sizing.bytes_per_block[rank.stage], rule)
            plans.append(planned[key]._replace(device=device, role=role, replica=number))
    return tuple(plans)


def _device_plan(rank: Rank, kv: int, bytes_per_block: int, rule: StageRule | None) -> DevicePlan:
    inside = rank.settings.era.graphs_in_budget
    graphs = rank.graphs_charged if inside else rank.graphs
    # Graphs that are captured after the cache, outside the budget, stand behind it.
    late = not inside and graphs.value > 0
    capture = Segment("cuda_graphs", graphs, in_budget=inside, meaning=_AFTER_CACHE if late else "")
    segments = [
        Segment("driver_reserved", figures.driver_reserved(rank)),
        Segment("other", rank.other),
        Segment("runtime_outside", rank.outside),
        Segment("runtime", rank.runtime, in_budget=True),
        Segment("weights", rank.weights, in_budget=True),
        Segment("workspace", rank.workspace, in_budget=True),
        Segment("activations", rank.activations, in_budget=True),
        *([] if late else [capture]),
    ]
    if kv:
        given = rank.given_kv is not None
        cache = _kv_segment(rank, kv, bytes_per_block)
        segments.append(Segment("kv_cache", cache, in_budget=not given, meaning=_GIVEN if given else ""))
    segments += [capture] if late else []
    segments += [Segment("fragmentation", rank.fragmentation)] if rank.fragmentation.high else []
    left = rank.total.value - sum(s.bytes for s in segments)
    if rule is None:
        segments.append(Segment("headroom", figures.headroom(rank, left)))
    return DevicePlan(
        device=rank.device,
        role="",
        total_bytes=rank.total.value,
        cuda_total_bytes=rank.cuda_total.value,
        budget=rank.budget,
        segments=at_stage(segments, rule),
        bytes_per_unit=bytes_per_block,
        overflow_bytes=max(-left, 0),
        stages=stages.timeline(rank, kv, rule),
        budget_share=rank.settings.cache.utilization,
    )


def _kv_segment(rank: Rank, kv: int, bytes_per_block: int) -> Estimate:
    """The allocated cache: whole blocks of the tightest rank, with the band of what is available here."""
    free = rank.available
    low, high = max(kv - (free.value - free.low), 0), kv + free.high - free.value
    if not bytes_per_block or kv % bytes_per_block:
        return free._replace(value=kv, low=low, high=high)
    memory = "available memory" if rank.given_kv is None else "the given size"
    inputs = (
        Input("blocks", kv // bytes_per_block, "", f"{memory} ÷ bytes per block, the least of all ranks"),
        Input("bytes per block", bytes_per_block, "B", "all cached layers of this rank"),
    )
    return Estimate(kv, low, high, free.basis, "{blocks} × {bytes per block}", inputs)


def _cannot_tell(
    request: PlanRequest,
    settings: Settings,
    resolved: dict[str, Resolved],
    warnings: tuple[str, ...],
    devices: Sequence[parallel.Stages],
) -> Plan:
    """A plan without numbers: for devices whose memory use vLLM's rules here do not describe."""
    plans: list[DevicePlan] = []
    untold = Verdict("cannot_tell", blocked=(Reason("unplannable", "{why}", {"why": warnings[-1]}),))
    for place, device in enumerate(d for stages_ in devices for row in stages_ for d in row):
        total = device.gpu.total.value if device.gpu.total else 0
        cuda_total = device.gpu.cuda_total.value if device.gpu.cuda_total else total
        whole = Input("not told apart", total, "B", "the memory of the GPU, of which nothing more is known")
        unknown = Segment("headroom", banded(total, 0, total, "assumed", "{not told apart}", whole))
        plans.append(DevicePlan(device, f"tp{place}", total, cuda_total, None, (unknown,) if total else ()))
    return Plan(
        request=request,
        engine_version=spelled(settings.version),
        rules=settings.era.name,
        verdict=untold,
        devices=described(plans, verdict=untold, rule=None, tightest=0, cache=None, cache_given=False),
        options=resolved,
        kv_cache=None,
        limits=Limits(None, None),
        warnings=warnings,
        replicas=settings.parallel.dp,
    )
