"""The SGLang engine: from a request to a plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from kvplanner.engine.draft import DraftWish
from kvplanner.engine.lever import Lever
from kvplanner.engine.option import FlagRule, Option, OptionValue, Resolved
from kvplanner.engine.plan import DevicePlan, Limits, Plan
from kvplanner.engine.probe import Probe
from kvplanner.engine.request import PlanRequest
from kvplanner.engine.segment import Segment, SegmentKind
from kvplanner.engine.sglang import TITLE
from kvplanner.engine.sglang.eras import era_of, spelled
from kvplanner.engine.sglang.kv.pools import Pools
from kvplanner.engine.sglang.memory import host
from kvplanner.engine.sglang.settings import Settings, with_ranks
from kvplanner.engine.sglang.settle import parallel
from kvplanner.engine.sglang.settle.check import check_model, method_refused, uneven_heads
from kvplanner.engine.sglang.settle.settle import Settled, settle
from kvplanner.engine.sglang.startup import limits, stages
from kvplanner.engine.sglang.startup.checks import Late
from kvplanner.engine.sglang.startup.rank import Rank, rank_key
from kvplanner.engine.sglang.startup.replica import Replica, Stages, replica
from kvplanner.engine.sglang.startup.window import FractionWindow, fraction_window
from kvplanner.engine.sglang.weights.check import check_tensors, splits
from kvplanner.engine.sglang.words import figures, notes
from kvplanner.engine.sglang.words.verdict import verdict
from kvplanner.engine.shared.device import at_stage, described, unplannable
from kvplanner.engine.stage import StageRule
from kvplanner.engine.values import check_ranges
from kvplanner.engine.verdict import Reason, Verdict
from kvplanner.engine.whatif import with_format
from kvplanner.errors import BadInput
from kvplanner.estimate import Estimate, Input, banded
from kvplanner.gpu.spec import Machine
from kvplanner.model.kv import keeps_nothing
from kvplanner.model.model import Model
from kvplanner.record import Later, later
from kvplanner.units import counted

__all__ = ["ENGINE", "Sglang"]

_SEGMENT_WORDS: Final[Mapping[SegmentKind, Mapping[str, str]]] = {
    "runtime": {
        "meaning": "kernels and sampler buffers that load with the first requests, out of the slack",
        "detail": "They load after the pools are sized and have to find room in the slack.",
    },
    "weights": {
        "meaning": "everything that loading takes: tensors, rotary tables, drafts, adapters",
        "detail": "SGLang measures by free memory, so that the allocator's segments count too.",
    },
    "workspace": {
        "meaning": "request table, free lists and attention workspaces, out of the slack",
        "detail": "The request table has a row of the context length for every running request.",
    },
    "activations": {
        "meaning": "what a prefill chunk and the logits work in, out of the slack",
        "title": "Activations: what a step works in",
        "detail": "SGLang measures no step: whatever it needs has to be left over.",
    },
    "cuda_graphs": {
        "meaning": "recorded kernels of decoding and prefill with their memory, out of the slack",
        "detail": "Captured after the pools are made; --disable-cuda-graph leaves them out.",
    },
    "kv_cache": {
        "meaning": "the pools: keys and values, recurrent states, the draft's tokens",
        "title": "KV cache: the pools that the budget holds",
        "detail": "What the static fraction leaves after the weights, in whole pages, taken at start.",
    },
    "headroom": {
        "meaning": "what is left of the slack",
        "title": "Headroom: what is left of the slack",
        "detail": "Longer prompts, larger batches and fragmentation live here.",
    },
}
# SGLang builds BERT's layers with its ordinary attention (models/bert.py: RadixAttention, ENCODER_ONLY), which has a
# place in the pools; how those are sized and filled for encoders was not seen in a log.
_ENCODER: Final = (
    "this model is an encoder, whose layers keep no KV cache, and how SGLang sizes its pools and batches for encoders "
    "is not known here; plan it with --engine vllm"
)


class Sglang:
    """SGLang, by the rule era of the version that is asked for."""

    name: Final = "sglang"
    title: Final = TITLE
    versions: Final = ("0.5.23", "0.5.22", "0.5.20", "0.5.18", "0.5.17", "0.5.14", "0.5.12", "0.5.10", "0.5.9", "0.5.6",
                       "0.5.3", "0.4.10", "0.4.6")  # fmt: skip
    launch: Final = ("sglang", "serve")
    stages: Final = stages.RULES

    def ignored_flags(self) -> Mapping[str, FlagRule]:
        """Flags and variables that are no option: left out, refused, or another's spelling."""
        from kvplanner.engine.sglang.options.ignored import IGNORED_FLAGS

        return IGNORED_FLAGS

    def options(self, version: str | None = None) -> tuple[Option, ...]:
        """The options that exist in a version (the newest when None)."""
        from kvplanner.engine.sglang.options.declared import options_of

        return options_of(era_of(version).version)

    def allowed(self, name: str, model: Model) -> tuple[int, ...]:
        """The parallel sizes that a model's heads and layers allow; nothing is ruled out for other options."""
        return parallel.allowed(name, model)

    def cannot_load(self, method: str, version: str | None = None, machine: Machine | None = None) -> str:
        """Why a version loads no weights of a quantisation method on a machine, "" when it does."""
        arch = machine.devices[0].gpu.compute_capability if machine is not None and machine.devices else None
        return method_refused(method, arch)

    def segment_words(self) -> Mapping[SegmentKind, Mapping[str, str]]:
        """SGLang's budget holds weights and pools; everything else lives in the slack."""
        return _SEGMENT_WORDS

    def rules_between(self, first: str | None, second: str | None) -> tuple[str, ...]:
        """Not told release by release."""
        return ()

    def as_started(self, options: Mapping[str, OptionValue], version: str | None = None) -> dict[str, OptionValue]:
        """The options of a server that is started so: one GPU unless its command line names a parallel size."""
        return parallel.as_started(options)

    def draft_wanted(self, options: Mapping[str, OptionValue]) -> DraftWish | None:
        """The draft model whose layers count, None for none."""
        name = str(options.get("speculative_draft_model_path") or "").strip()
        if not name or not options.get("speculative_algorithm"):
            return None
        return DraftWish(name, "--speculative-draft-model-path")

    def levers(self, request: PlanRequest, plan: Plan) -> tuple[Lever, ...]:
        """What may be changed about a request, given its plan."""
        from kvplanner.engine.sglang.levers import levers
        from kvplanner.engine.shared.levers import see

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
        """The plan. Raises BadInput for values that SGLang refuses, NotModelled for what is not known."""
        if request.options:
            from kvplanner.engine.sglang.options.declared import declared

            check_ranges(declared(), request.options)
        request, (settings, resolved, warnings) = _with_parallel(with_format(request))
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
        check_model(request.model.spec, settings)
        check_tensors(request.model, settings)
        if keeps_nothing(request.model.spec.layers):
            return _cannot_tell(request, settings, resolved, (*warnings, _ENCODER), devices)
        return _plan(request, settings, resolved, warnings, devices)


ENGINE: Final = Sglang()


def _with_parallel(request: PlanRequest) -> tuple[PlanRequest, Settled]:
    """The request with a tensor-parallel size that uses its GPUs, when it sets no parallel size itself, as settled.

    SGLang's own default is 1; a plan for several GPUs is meant for all of them, and its command line says so.
    """
    count = len(request.machine.gpus)
    if count <= 1 or any(name in request.options for name in parallel.SIZES):
        return request, settle(request)
    whole = "attn_dp_size" not in request.options  # all ranks share each layer: what their number does not divide by
    known: Settings | None = None
    for size in range(count, 0, -1):
        if whole and size > 1 and uneven_heads(request.model.spec, size) is not None:
            continue  # is refused, as `check_model` says of settings that would first have to be settled
        if known is not None and size > 1:
            other = with_ranks(known, size)
            if other.parallel.attention_tp < 1 or not splits(request.model, other):
                continue  # as above: of what the split depends on, only the size differs
        tried = request._replace(options={**request.options, parallel.SIZES[0]: size})
        try:
            settled = settle(tried)
            known = settled.settings
            check_model(request.model.spec, settled.settings)
            check_tensors(request.model, settled.settings)
        except BadInput:
            if size > 1:
                continue
            settled = settle(tried)
        break
    reason = f"{count} GPUs given: the largest size up to {count} that the model divides by"
    derived = {parallel.SIZES[0]: Resolved(size, "derived", reason)}
    return tried, settled._replace(resolved={**settled.resolved, **derived})


def _plan(
    request: PlanRequest, settings: Settings, resolved: Mapping[str, Resolved], warnings: Sequence[str],
    devices: Sequence[Stages],
) -> Plan:  # fmt: skip
    """devices: of each replica, stage by stage."""
    replicas = _replicas(request, settings, devices)
    worst = min(range(len(replicas)), key=lambda i: _order(replicas[i]))
    made = replicas[worst]
    window = Later(partial(fraction_window, request, replicas))
    answer = verdict(replicas, worst, window)
    rule = stages.rule_of(answer.failing.stage) if answer.failing else None
    cache = figures.kv_cache(made, settings) if made.pools else None
    tightest = worst * len(made.ranks) + made.tightest
    given = "kv_cache" in request.measured
    held = [each.pools[rank.stage] for each in replicas if each.pools for rank in each.ranks]
    beside = host.host_plan(settings.host_cache, held, request.machine, rule)
    cut = host.cap_warning(settings.host_cache, held, request.machine)

    def devices_() -> tuple[DevicePlan, ...]:
        made = (*_device_plans(replicas, settings, rule, window), *([beside] if beside is not None else []))
        return described(made, verdict=answer, rule=rule, tightest=tightest, cache=cache, cache_given=given)

    return Plan(
        request=request,
        engine_version=spelled(settings.version),
        rules=settings.era.name,
        verdict=answer,
        devices=later(devices_),
        options=resolved,
        kv_cache=cache,
        limits=limits.limits(request, settings, replicas),
        warnings=later(lambda: notes.warnings(request, settings, made, (*warnings, cut) if cut else warnings)),
        tightest=tightest,
        replicas=settings.parallel.replicas,
        cache_given=given,
        ranges=later(lambda: tuple(filter(None, (window().range,)))),
    )


def _replicas(request: PlanRequest, settings: Settings, devices: Sequence[Stages]) -> tuple[Replica, ...]:
    """Every replica; those on devices of one kind are solved once."""
    solved: dict[tuple[object, ...], Replica] = {}
    out: list[Replica] = []
    for rows in devices:
        key = tuple(rank_key(stage, device) for stage, row in enumerate(rows) for device in row)
        if key not in solved:
            solved[key] = replica(request, settings, rows)
        out.append(solved[key]._replace(devices=tuple(device for row in rows for device in row)))
    return tuple(out)


def _order(made: Replica) -> tuple[bool, int, int]:
    """Failing replicas first, by how early they fail and by what they miss; then those with the fewest tokens."""
    if made.failure is not None:
        return False, stages.ORDER.index(made.failure.stage), -made.failure.missing_bytes
    return True, made.first.tokens, 0


def _device_plans(
    replicas: Sequence[Replica], settings: Settings, rule: StageRule | None, window: Callable[[], FractionWindow]
) -> tuple[DevicePlan, ...]:
    plans: list[DevicePlan] = []
    tp, pp = settings.parallel.tp, settings.parallel.pp
    for number, made in enumerate(replicas):
        planned: dict[tuple[int, str, int | None], DevicePlan] = {}
        for index, (device, rank) in enumerate(zip(made.devices, made.ranks, strict=True)):
            places = [f"dp{number}"] if settings.parallel.replicas > 1 else []
            places += [f"pp{rank.stage}"] if pp > 1 else []
            role = "/".join((*places, f"tp{index % tp}"))
            key = rank_key(rank.stage, device)
            if key not in planned:
                pools = made.pools[rank.stage] if made.pools else None
                late = made.late[index] if made.late else None
                planned[key] = _device_plan(rank, pools, late, rule, window)
            plans.append(planned[key]._replace(device=device, role=role, replica=number))
    return tuple(plans)


def _device_plan(
    rank: Rank, pools: Pools | None, late: Late | None, rule: StageRule | None, window: Callable[[], FractionWindow]
) -> DevicePlan:
    settings = rank.settings
    segments = [
        Segment("driver_reserved", figures.driver_reserved(rank)),
        Segment("other", rank.other),
        Segment("runtime_outside", rank.outside),
        Segment("weights", rank.weights, in_budget=True),
    ]
    if pools is not None:
        segments.append(Segment("kv_cache", figures.pool_segment(rank, pools, settings), in_budget=True))
    segments.append(Segment("workspace", figures.workspace(rank, late, pools)))
    segments.append(Segment("cuda_graphs", rank.graphs))
    if late is not None:
        segments.append(Segment("activations", late.eager))
    segments.append(Segment("runtime", rank.late))
    left = rank.total.value - sum(s.bytes for s in segments)
    if rule is None:
        segments.append(Segment("headroom", figures.headroom(rank, late, left)))
    used = pools.bytes + pools.draft_bytes if pools is not None else 0
    budget = rank.budget._replace(notes=later(lambda: (*rank.budget.notes, *_fractions(window()))))
    return DevicePlan(
        device=rank.device,
        role="",
        total_bytes=rank.total.value,
        cuda_total_bytes=rank.cuda_total.value,
        budget=budget,
        segments=at_stage(segments, rule),
        bytes_per_unit=(used - pools.state_bytes) // max(pools.tokens // settings.cache.page_size, 1)
        if pools is not None
        else 0,
        overflow_bytes=max(-left, 0),
        stages=stages.timeline(rank, used, late, rule),
        budget_share=settings.fraction,
    )


def _fractions(window: FractionWindow) -> Iterator[str]:
    if window.open:
        yield (
            f"Fractions from {window.least:g} to {window.most:g} work by these estimates: below there is no KV cache, "
            "above no room for graphs and steps"
        )


def _cannot_tell(
    request: PlanRequest, settings: Settings, resolved: Mapping[str, Resolved], warnings: tuple[str, ...],
    devices: Sequence[Stages],
) -> Plan:  # fmt: skip
    """A plan without numbers: for devices whose memory use SGLang's rules here do not describe."""
    plans: list[DevicePlan] = []
    unknown = Verdict("cannot_tell", blocked=(Reason("unplannable", "{why}", {"why": warnings[-1]}),))
    for place, device in enumerate(d for rows in devices for row in rows for d in row):
        total = device.gpu.total.value if device.gpu.total else 0
        cuda_total = device.gpu.cuda_total.value if device.gpu.cuda_total else total
        plans.append(DevicePlan(device, f"tp{place}", total, cuda_total, None, _whole(total)))
    return Plan(
        request=request,
        engine_version=spelled(settings.version),
        rules=settings.era.name,
        verdict=unknown,
        devices=described(plans, verdict=unknown, rule=None, tightest=0, cache=None, cache_given=False),
        options=resolved,
        kv_cache=None,
        limits=Limits(None, None),
        warnings=warnings,
        replicas=settings.parallel.replicas,
    )


def _whole(total: int) -> tuple[Segment, ...]:
    if not total:
        return ()
    whole = Input("whole memory", total, "B", "the memory of the GPU, of which nothing more is known")
    estimate: Estimate = banded(total, 0, total, "assumed", "{whole memory}", whole)
    return (Segment("headroom", estimate),)
