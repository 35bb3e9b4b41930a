"""Ollama as an engine: its own defaults, then llama.cpp's plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kvplanner.engine.beside import encoder_bytes
from kvplanner.engine.draft import DraftWish
from kvplanner.engine.lever import Aim, Lever, Step
from kvplanner.engine.llamacpp import figures, limits, spill
from kvplanner.engine.llamacpp.architectures import as_gguf, renamed
from kvplanner.engine.llamacpp.builds import NEWEST, build_of
from kvplanner.engine.llamacpp.ollama import TITLE, rules
from kvplanner.engine.llamacpp.ollama.asked import Asked
from kvplanner.engine.llamacpp.ollama.eras import Era, era_of
from kvplanner.engine.llamacpp.ollama.older import Older
from kvplanner.engine.llamacpp.ollama.options import IGNORED_FLAGS, declared
from kvplanner.engine.llamacpp.planner import ENGINE as LLAMACPP
from kvplanner.engine.llamacpp.planner import make_plan
from kvplanner.engine.llamacpp.settle import settle
from kvplanner.engine.option import FlagRule, Option, OptionValue, Resolved
from kvplanner.engine.plan import Limits, Plan
from kvplanner.engine.probe import Probe
from kvplanner.engine.request import Load, PlanRequest
from kvplanner.engine.segment import SegmentKind
from kvplanner.engine.shared.identity import by_identity
from kvplanner.engine.values import check_ranges
from kvplanner.engine.whatif import with_format
from kvplanner.gpu.spec import Machine
from kvplanner.model.formats import dense
from kvplanner.model.model import Model
from kvplanner.record import later
from kvplanner.sized_text import SizedText, size_mark
from kvplanner.units import format_count

__all__ = ["ENGINE", "Ollama"]

VERSIONS: Final = ("0.30", "0.24", "0.17", "0.15", "0.13", "0.12", "0.11", "0.9", "0.6", "0.5")
# Variables that llama-server reads, which older releases do not start.
_OF_THE_SERVER: Final = frozenset({"fit", "fit_target"})
_BESIDE: Final = 1024  # MiB beside a projector that fitting leaves free
_BUFFERS: Final = frozenset({"weights", "kv_cache", "compute", "output"})


class Ollama:
    """Ollama: since 0.30 it runs every GGUF model in a llama-server, before in llama.cpp's code or an own engine."""

    name: Final = "ollama"
    title: Final = TITLE
    versions: Final = VERSIONS
    launch: Final = ("ollama", "serve")
    stages: Final = LLAMACPP.stages

    def ignored_flags(self) -> Mapping[str, FlagRule]:
        """Flags and variables that are no option: left out, refused, or another's spelling."""
        return IGNORED_FLAGS

    def options(self, version: str | None = None) -> tuple[Option, ...]:
        """The options."""
        era = era_of(version)
        return declared() if era is None else tuple(o for o in declared() if o.name not in _OF_THE_SERVER)

    def allowed(self, name: str, model: Model) -> tuple[int, ...]:
        """Nothing is ruled out."""
        del name, model
        return ()

    def cannot_load(self, method: str, version: str | None = None, machine: Machine | None = None) -> str:
        """Why no weights of a quantisation method are loaded, "" when they are."""
        del version
        return LLAMACPP.cannot_load(method, None, machine).replace(LLAMACPP.title, self.title)

    def segment_words(self) -> Mapping[SegmentKind, Mapping[str, str]]:
        """llama.cpp's."""
        return LLAMACPP.segment_words()

    def rules_between(self, first: str | None, second: str | None) -> tuple[str, ...]:
        """Not told release by release."""
        return ()

    def as_started(self, options: Mapping[str, OptionValue], version: str | None = None) -> dict[str, OptionValue]:
        """A server that is started so does what a plan says."""
        del version
        return dict(options)

    def draft_wanted(self, options: Mapping[str, OptionValue]) -> DraftWish | None:
        """None: a draft comes with the model."""
        del options
        return None

    def levers(self, request: PlanRequest, plan: Plan) -> tuple[Lever, ...]:
        """What may be changed, by role, and the cache's type."""
        from kvplanner.engine.llamacpp.levers import QUANTISED, QUANTISED_COST, slots, whole_on_gpus
        from kvplanner.engine.shared.levers import by_role, see

        seen = see(request, plan, options=declared(), stages=self.stages, allowed=self.allowed)
        aim: Aim = "fit" if seen.short else "more"
        steps: tuple[Step, ...] = tuple({"kv_cache_type": kind} for kind in QUANTISED)
        plain = str(request.options.get("kv_cache_type", "f16")) == "f16"
        cache = (Lever("kv_dtype", steps, QUANTISED_COST, "quality", (aim,)),) if plain else ()
        whole = whole_on_gpus(seen, steps if plain else ())
        return (*by_role(seen), *cache, *slots(seen, each_own=True), *whole)

    def serves_at_most(self, request: PlanRequest) -> float | None:
        """What its slots and its context give: llama-server is started with both."""
        spec = renamed(request.model)
        choice = _Choice(request, request.model._replace(spec=spec))
        settled = settle(build_of(NEWEST), spec, choice.inner(), ())
        return limits.at_most(settled.settings, spec, request.load)

    def makes_room(self, request: PlanRequest, running: int) -> bool:
        """As Scheduler.processPending of server/sched.go: at its most models, or by its rough estimate."""
        if not running:
            return False
        request = with_format(request)
        era = era_of(request.version)
        model = _loaded(request.model)[0]
        if era is not None:  # it makes room until all fits: what is running must leave it some
            older = Older(request, model, era, lambda _: 0)
            return running >= older.most or older.layers < len(older.facts.layers) + 1
        choice = _Choice(request, model)
        return running >= choice.most or choice.estimate > rules.room_for_another(choice.free)

    def probe(self) -> Probe | None:
        """Ollama starts llama-server with flags of its own."""
        return None

    def plan(self, request: PlanRequest) -> Plan:
        """The plan. Raises BadInput for values that are refused, NotModelled for what is not known."""
        check_ranges(self.options(request.version), request.options)
        return _plan(with_format(request, self.cannot_load))


ENGINE: Final = Ollama()


@by_identity(8, lambda _: None)
def _loaded(model: Model) -> tuple[Model, str]:
    """The model as Ollama's library has it: gpt-oss's matrices beside its experts stay in 16 bits there.

    (Public logs of 0.11 tell 10.7 GiB of layers and 1.1 GiB of output for the 20B one: ollama issue 11711.)
    """
    return as_gguf(model, rest=dense("bfloat16"))


def _plan(request: PlanRequest) -> Plan:
    """request: with its model in the format that it asks for."""
    model, assumed = _loaded(request.model)
    extra = (assumed,) if assumed else ()
    era = era_of(request.version)
    if era is not None:
        return _older_plan(request, model, era, extra)
    choice = _Choice(request, model)
    inner = request._replace(model=model, options=choice.inner(), version=None, weight_format=None)
    plan = make_plan(inner, build_of(NEWEST), request.version or VERSIONS[0], extra)
    return plan._replace(
        limits=_of_a_slot(plan.limits, choice.slots),
        request=request,
        options=choice.resolved,
        warnings=later(lambda: (*plan.warnings, *choice.notes, *_shown(plan, choice))),
    )


def _older_plan(request: PlanRequest, model: Model, era: Era, extra: tuple[str, ...]) -> Plan:
    """The plan of a release before 0.30. extra: what else its reader should know."""

    def made(choice: Older) -> Plan:
        inner = request._replace(model=choice.model, options=choice.inner(), version=None, weight_format=None)
        return make_plan(inner, choice.build(), request.version or "", extra, placed=choice.wanted < 0)

    def graph(choice: Older) -> int:
        first = next(iter(made(choice).gpus), None)
        return sum(s.estimate.value for s in first.segments if s.kind == "compute") if first is not None else 0

    choice = Older(request, model, era, graph)
    plan = made(choice)
    cache = plan.kv_cache
    if cache is not None and cache.error is None:  # shared cells are no longer context: each request has num_ctx
        cache = cache._replace(context_length=choice.context, max_concurrency=float(choice.slots))
    return plan._replace(
        limits=_shared_out(_of_a_slot(plan.limits, choice.slots), choice, request.load),
        kv_cache=cache,
        request=request,
        options=choice.resolved,
        warnings=later(lambda: (*plan.warnings, *choice.notes, *choice.told(), *_listed(plan, choice))),
    )


def _shared_out(found: Limits, choice: Older, load: Load | None) -> Limits:
    """The requests at once: as many as there are slots, each of num_ctx tokens, also where slots share cells."""
    sure = found.sure_max_concurrent_requests
    found = found._replace(
        max_concurrent_requests=choice.slots, sure_max_concurrent_requests=choice.slots if sure else sure
    )
    if load is not None and load.tokens_per_user > choice.context:
        return found._replace(serves_users=0, sure_serves_users=0, limited_by="context")
    return found


def _listed(plan: Plan, choice: Older) -> tuple[str, ...]:
    """What `ollama ps` prints: the estimate where that places the layers, else the buffers."""
    if plan.verdict.state == "does_not_fit":
        return ()
    on_gpus, on_host = (_buffers(plan, kind) for kind in ("gpu", "host"))
    total = on_gpus if _all_on_gpus(plan) else on_gpus + on_host
    if choice.found is not None:
        total, on_gpus = choice.found.full, choice.found.required if choice.found.layers else 0
    length = f", context {choice.context}" if choice.era.first >= _CONTEXT_LISTED else ""
    return (f"ollama ps would show: {rules.human(total)}, {rules.processor(total, on_gpus)}{length}",)


# The first release whose list of models tells the context.
_CONTEXT_LISTED: Final = (0, 11, 0)


def _of_a_slot(found: Limits, slots: int) -> Limits:
    """The lengths as num_ctx counts them: of one request, where llama-server's option counts all slots."""

    def of_one(length: int | None) -> int | None:
        return None if length is None else length // slots

    return found._replace(
        max_context_length=later(lambda: of_one(found.max_context_length)),
        sure_max_context_length=later(lambda: of_one(found.sure_max_context_length)),
    )


class _Choice(Asked):
    """What Ollama settles before llama-server starts."""

    def __init__(self, request: PlanRequest, model: Model) -> None:
        super().__init__(request)
        self.notes: list[str] = []
        spec = model.spec
        devices = request.machine.gpus
        totals = tuple(figures.totals(device)[0] for device in devices)
        free = tuple(figures.free_at_load(device) for device in devices)
        self.free = free
        self.most = rules.at_once(int(self.take("max_loaded_models", 0, "three for each GPU") or 0), len(devices))
        inside = encoder_bytes(request.model)
        reason = "the model's own encoder, which Ollama loads with it" if inside else ""
        self.projector = int(self.take("mmproj_size", inside or None, reason) or 0)
        self.adapter = int(self.take("lora_size", None) or 0)
        self.context = self._context(totals, spec.trained_context_length)
        asked = int(self.take("num_parallel", 1) or 1)
        self.slots = rules.slots(spec, asked)
        if self.slots != asked:
            self.notes.append(f"Ollama answers one request at a time with {spec.architecture}, whatever is asked")
        self.file_bytes = model.stored.value if model.stored is not None else 0
        self.estimate = self.file_bytes + rules.rough_cache(spec, self.context * self.slots)
        spread = bool(self.take("sched_spread", False))
        self.gpus = rules.choose(self.estimate, free, spread=spread)
        used = range(len(devices)) if self.gpus.one is None else (self.gpus.one,)
        self.flash = self._flash(tuple(devices[index].gpu.compute_capability for index in used))
        found = rules.batch(
            self.context, self.estimate, self.gpus, flash=self.flash, smallest=min((totals[i] for i in used), default=0)
        )
        self.batch = int(self.take("num_batch", found, "by context and free memory") or found)
        self.cache_type = str(self.take("kv_cache_type", "f16"))
        if self.cache_type != "f16" and not self.flash:
            self.notes.append(f"Without flash attention, Ollama keeps the cache in f16 and not in {self.cache_type}")
            self.cache_type = "f16"
        if self.gpus.one is not None:
            self.notes.append(
                SizedText(
                    f"Ollama puts it on GPU {self.gpus.one} alone: by its own estimate, {size_mark(self.estimate)}, it "
                    f"takes at most 80 % of what is free there"
                )
            )

    def _context(self, totals: tuple[int, ...], trained: int | None) -> int:
        overhead = int(self.take("gpu_overhead", 0) or 0)
        chosen = rules.default_context(totals, overhead)
        asked = int(self.take("num_ctx", chosen, "by the memory of all GPUs") or chosen)
        asked = max(asked, rules.SHORTEST_VISION) if self.projector else asked
        if trained and asked > trained:
            if "num_ctx" in self.options or "num_ctx" in self.asks:
                self.notes.append(f"Ollama shortens the context to the model's own {format_count(trained)} tokens")
            self.resolved["num_ctx"] = Resolved(trained, "derived", "the model's own")
            return trained
        return asked

    def _flash(self, capabilities: tuple[tuple[int, int] | None, ...]) -> bool:
        able = rules.has_flash(capabilities)
        return bool(self.take("flash_attention", able, "" if able else "a GPU here has none"))

    def inner(self) -> dict[str, OptionValue]:
        """llama-server's options, as Ollama starts it."""
        flash = "auto" if self.flash and "flash_attention" not in self.options else "on" if self.flash else "off"
        out: dict[str, OptionValue] = {
            "ctx_size": self.context * self.slots, "parallel": self.slots, "kv_unified": False,
            "batch_size": self.batch, "ubatch_size": self.batch, "flash_attn": flash,
            "cache_type_k": self.cache_type, "cache_type_v": self.cache_type,
        }  # fmt: skip
        layers = self.take("num_gpu", None, "as many as fit")
        if layers is not None:
            out["n_gpu_layers"] = str(int(layers))
        if self.gpus.one is not None:
            out.update(split_mode="none", main_gpu=self.gpus.one)
        beside = str(self.projector // (1 << 20) + _BESIDE) if self.projector else "1024"
        out["fit_target"] = str(self.take("fit_target", beside, "the projector and 1 GiB" if self.projector else ""))
        out["fit"] = str(self.take("fit", "on"))
        if self.projector:
            out["mmproj_size"] = self.projector
        if self.adapter:
            out["lora_size"] = self.adapter
        host = self.take("host_memory", None, "not known: what stays on the host is not held against anything")
        if host is not None:
            out["host_memory"] = host
        if self.take("wddm", False):
            out["wddm"] = True
        if not self.take("sysmem_fallback", True):
            out["sysmem_fallback"] = False
        return out


def _shown(plan: Plan, choice: _Choice) -> tuple[str, ...]:
    """Ollama's own figures beside the plan: its estimate before it starts, and what `ollama ps` prints then."""
    on_gpus, on_host = (_buffers(plan, kind) for kind in ("gpu", "host"))
    whole = on_gpus + on_host
    off = choice.estimate - whole
    words = "more" if off > 0 else "less"
    estimate = SizedText(
        f"Ollama's own estimate, by which it chooses GPUs and batch, is {size_mark(choice.estimate)}: the file and "
        f"a rough 16-bit cache, {size_mark(abs(off))} {words} than the buffers planned here"
    )
    if plan.verdict.state == "does_not_fit":
        return (estimate,)
    total = on_gpus if _all_on_gpus(plan) else whole
    beside = _beside(plan, choice)
    seen = f"{rules.human(total)}, {rules.processor(total, on_gpus)}, context {choice.context}"
    return (estimate, f"ollama ps would show: {seen}", *beside)


def _beside(plan: Plan, choice: _Choice) -> tuple[str, ...]:
    """What happens when a request for another model comes: Scheduler.processPending of server/sched.go."""
    if not choice.free:
        return ()
    if choice.most == 1:
        return ("One model is loaded at a time: a request for another unloads this one once it is idle",)
    used = {
        device.device.index: sum(s.estimate.value for s in device.segments if s.kind in (*_BUFFERS, "workspace"))
        for device in plan.gpus
    }  # fmt: skip
    indices = [device.index for device in plan.request.machine.gpus]
    left = [size - used.get(index, 0) for index, size in zip(indices, choice.free, strict=True)]
    room = rules.room_for_another(left)
    return (
        SizedText(
            f"Another model is loaded beside it where Ollama's own estimate of that one is at most {size_mark(room)}, "
            f"80 % of what is left; else the idle model with the shortest keep-alive is unloaded first. "
            f"No more than {choice.most} are loaded at once"
        ),
    )


def _buffers(plan: Plan, kind: str) -> int:
    """Bytes of the buffers that llama-server prints, on the GPUs or on the host."""
    devices = [device for device in plan.devices if device.device.kind == kind]
    return sum(spill.own_bytes(s) for device in devices for s in device.segments if s.kind in _BUFFERS)


def _all_on_gpus(plan: Plan) -> bool:
    """Whether every layer is on a GPU: Ollama then counts the GPUs' buffers only."""
    host = next((device for device in plan.devices if device.device.kind == "host"), None)
    return host is None or not any(segment.kind == "kv_cache" and spill.own_bytes(segment) for segment in host.segments)
