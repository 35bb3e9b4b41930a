"""The llama.cpp engine: from a request to a plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, TypeVar

from kvplanner.engine.draft import DraftWish
from kvplanner.engine.lever import Lever
from kvplanner.engine.llamacpp import TITLE, cache, drafting, figures, handles, limits, spill, stages
from kvplanner.engine.llamacpp.architectures import renamed
from kvplanner.engine.llamacpp.builds import NEWEST, VERSIONS, Build, build_of, spelled
from kvplanner.engine.llamacpp.figures import OnGpu, OnHost
from kvplanner.engine.llamacpp.fit import Fitted, fit
from kvplanner.engine.llamacpp.report import device_plans, kv_cache, warnings
from kvplanner.engine.llamacpp.settings import PlaceSettings, Settings
from kvplanner.engine.llamacpp.settle import Settled, refuse_heads, settle
from kvplanner.engine.llamacpp.sizes import Sizer, Sizes, is_latent
from kvplanner.engine.llamacpp.tensors import Tensors
from kvplanner.engine.llamacpp.trial import KEPT, Trial, as_loaded, predictor
from kvplanner.engine.llamacpp.verdict import first_failing, spare, verdict
from kvplanner.engine.option import FlagRule, Option, OptionValue, Resolved
from kvplanner.engine.plan import DevicePlan, Plan, WorkingRange
from kvplanner.engine.probe import Probe
from kvplanner.engine.request import PlanRequest
from kvplanner.engine.segment import SegmentKind
from kvplanner.engine.shared.calibration import Place, calibrate, ranks, release_of
from kvplanner.engine.shared.device import described
from kvplanner.engine.shared.identity import make_room, remembered
from kvplanner.engine.values import check_ranges
from kvplanner.engine.whatif import with_format
from kvplanner.errors import BadInput, NotModelled
from kvplanner.estimate import Estimate
from kvplanner.gpu.spec import Device, Machine
from kvplanner.model.model import Model
from kvplanner.model.spec import Moe
from kvplanner.record import Later, NamedTuple, later
from kvplanner.units import format_count

__all__ = ["ENGINE", "LlamaCpp"]


class LlamaCpp:
    """llama-server, by the rules of the build that is asked for."""

    name: Final = "llamacpp"
    title: Final = TITLE
    versions: Final = VERSIONS
    launch: Final = ("llama-server",)
    stages: Final = stages.RULES

    def ignored_flags(self) -> Mapping[str, FlagRule]:
        """Flags and variables that are no option: left out, refused, or another's spelling."""
        from kvplanner.engine.llamacpp.options.ignored import IGNORED_FLAGS

        return IGNORED_FLAGS

    def options(self, version: str | None = None) -> tuple[Option, ...]:
        """The options; every build has them all, older ones with other defaults."""
        from kvplanner.engine.llamacpp.options.declared import declared

        build_of(version)
        return declared()

    def allowed(self, name: str, model: Model) -> tuple[int, ...]:
        """Nothing is ruled out: layers are whole."""
        del name, model
        return ()

    def cannot_load(self, method: str, version: str | None = None, machine: Machine | None = None) -> str:
        """Why a build loads no weights of a quantisation method, "" when it does."""
        del version, machine
        if method in ("", "gguf", "mxfp4"):
            return ""
        return f"llama.cpp loads GGUF files, not {method} checkpoints"

    def segment_words(self) -> Mapping[SegmentKind, Mapping[str, str]]:
        """The cache is sized by the context, and buffers have llama.cpp's own names."""
        return _SEGMENT_WORDS

    def rules_between(self, first: str | None, second: str | None) -> tuple[str, ...]:
        """Not told release by release."""
        return ()

    def as_started(self, options: Mapping[str, OptionValue], version: str | None = None) -> dict[str, OptionValue]:
        """A server that is started so uses every GPU that it sees, as a plan does."""
        del version
        return dict(options)

    def draft_wanted(self, options: Mapping[str, OptionValue]) -> DraftWish | None:
        """The draft model whose layers count, None for none."""
        name = str(options.get("spec_draft_model") or "").strip()
        return DraftWish(name, "--model-draft") if name else None

    def levers(self, request: PlanRequest, plan: Plan) -> tuple[Lever, ...]:
        """What may be changed about a request, given its plan: proposals, each with its cost."""
        from kvplanner.engine.llamacpp.levers import levers
        from kvplanner.engine.shared.levers import see

        options = self.options(request.version)
        return levers(see(request, plan, options=options, stages=self.stages, allowed=self.allowed))

    def serves_at_most(self, request: PlanRequest) -> float | None:
        """What its slots and its context give: --fit only shortens the context, and takes no slot away."""
        spec = renamed(request.model)
        devices = request.machine.gpus
        settled = settle(build_of(request.version), spec, request.options, devices)
        return limits.at_most(settled.settings, spec, request.load)

    def makes_room(self, request: PlanRequest, running: int) -> bool:
        """Never: a server has one model."""
        del request, running
        return False

    def probe(self) -> Probe | None:
        """llama-fit-params, or llama-server as far as it measures."""
        from kvplanner.engine.llamacpp.probe import probe

        return probe(make_plan)

    def plan(self, request: PlanRequest) -> Plan:
        """The plan. Raises BadInput for values that llama.cpp refuses, NotModelled for what is not known."""
        check_ranges(self.options(request.version), request.options)
        return make_plan(with_format(request, self.cannot_load), build_of(request.version), spelled(request.version))


ENGINE: Final = LlamaCpp()

_SEGMENT_WORDS: Final[Mapping[SegmentKind, Mapping[str, str]]] = {
    "runtime_outside": {
        "name": "context", "short": "context", "meaning": "the driver's context and kernels",
        "title": "Context: what the driver takes for a program",
        "detail": "There before the first buffer, on every GPU that is visible; llama.cpp does not print it.",
    },
    "runtime": {
        "name": "libraries and pools", "meaning": "cuBLAS, pools and graphs, taken with the first requests",
        "title": "Libraries and pools: taken while serving",
        "detail": "llama.cpp's memory table calls this and the context unaccounted.",
    },
    "weights": {
        "meaning": "tensors of the layers that lie here", "title": "Weights: the model buffer",
        "detail": "Layers are whole; what the GPUs do not hold stays on the host.",
    },
    "workspace": {
        "name": "projector's buffer", "meaning": "what the projector works in", "title": "Projector's buffer",
        "detail": "Sized by the largest image.",
    },
    "kv_cache": {
        "name": "context buffer", "short": "KV cache",
        "meaning": "cells of keys and values for the whole context, and recurrent state",
        "title": "KV cache: the context buffer",
        "detail": "Taken whole at start: as many cells as the context has, on the GPU of each layer.",
    },
}  # fmt: skip


class _Sized(NamedTuple):
    """A model under settings: everything that a plan tells."""

    settled: Settled
    sizes: Sizes
    drafted: Sizes | None
    gpus: tuple[OnGpu, ...]
    host: OnHost
    fitted: Fitted | None
    retried: bool


def _check_known(devices: Sequence[Device]) -> None:
    """Raises BadInput for a GPU of unknown size, NotModelled for one whose share of the host's memory is not known."""
    for gpu in (device.gpu for device in devices):
        if gpu.total is None or gpu.cuda_total is None:
            raise BadInput(f"the memory of {gpu.name} is not known", "--gpu", "Give its size instead, such as 24GB")
        if gpu.vendor == "apple":
            raise NotModelled(
                f"how much of its memory {gpu.name} hands out through Metal is not known", "--gpu",
                "Plan it for a GPU with memory of its own, or by size",
            )  # fmt: skip


def make_plan(
    request: PlanRequest, build: Build, version: str, extra: tuple[str, ...] = (), *, placed: bool = False
) -> Plan:  # fmt: skip
    """The plan by a build's rules. extra: what else to know; placed: another program chose the layers on GPUs."""
    request = with_format(request)
    model, assumed = as_loaded(request.model)
    unknown = cache.not_modelled(model.spec)
    if unknown:
        raise NotModelled(f"{unknown} are not known for llama.cpp", model.id, "Plan it with another engine")
    draft = as_loaded(request.draft)[0] if request.draft is not None else None
    predicts = draft is None and request.options.get("spec_type") == drafting.MTP
    if predicts:
        draft = predictor(model)
    devices = request.machine.gpus
    _check_known(devices)
    settled = settle(build, model.spec, request.options, devices)
    refuse_heads(build, settled.settings.context, model.spec, latent=is_latent(model))
    trial = Trial(model, draft, settled.gpus, predicts=predicts)
    sized = _size(request, model, settled, trial)
    host_total = _host_total(request.machine, settled)
    answer = verdict(sized.gpus, sized.host, host_total, spills=settled.spills)
    rule = stages.rule_of(answer.failing.stage) if answer.failing else None
    longest = Later(partial(_longest, request, model, sized, trial))
    if answer.spilled is not None:  # the one at hand may work, those that the GPUs hold surely do
        longest = Later(partial(spill.longest, longest, sized.sizes.cells.per_slot))
    found = limits.limits(
        sized.settled.settings, sized.sizes, sized.gpus, request.load, longest,
        fits=answer.failing is None, sure=answer.state == "fits" and answer.doubt is None,
    )  # fmt: skip
    cells = kv_cache(model, sized.settled.settings, sized.sizes, sized.gpus)
    tightest = answer.failing.device if answer.failing else figures.tightest(sized.gpus)

    def devices_() -> tuple[DevicePlan, ...]:
        made = device_plans(
            model, sized.settled, sized.sizes, sized.gpus, sized.host, host_total, rule,
            spilled=answer.spilled is not None,
        )  # fmt: skip
        return described(made, verdict=answer, rule=rule, tightest=tightest, cache=cells, cache_given=False)

    def notes() -> tuple[str, ...]:
        found = warnings(
            request, model, trial.tensors, sized.settled, sized.sizes, sized.host, sized.fitted, host_total
        )
        spilled = spill.notes(sized.gpus, answer, host_total) if settled.spills else ()
        retried = (_RETRIED,) if sized.retried else ()
        return tuple(filter(None, (*spilled, *retried, *found, *extra, assumed)))

    return Plan(
        request=request,
        engine_version=version,
        rules=build.name,
        verdict=answer,
        devices=later(devices_),
        options=_resolved(sized, trial.tensors),
        kv_cache=cells,
        limits=found,
        warnings=later(notes),
        tightest=tightest,
        cache_given=False,
        ranges=later(partial(_ranges, request, model, settled, sized, trial)),
        handles=later(lambda: tuple(
            handles.handles(model.spec, sized.settled.settings, trial.tensors, sized.sizes, sized.fitted)
        )),
        moved_bytes=sized.sizes.moved(trial.tensors) if placed or (sized.fitted and sized.fitted.layers) else 0,
    )  # fmt: skip


_RETRIED: Final = (
    "The compute buffers do not fit with pipeline parallelism: llama.cpp says so, and retries without it, which fits"
)


def _size(request: PlanRequest, model: Model, settled: Settled, trial: Trial) -> _Sized:
    """Fits, sizes, and tries again without a pipeline where its buffers do not fit."""
    fitted: Fitted | None = None
    if settled.settings.fit.on and settled.gpus:
        fitted = fit(
            _with_reserve(settled, trial), trial.sizes, trial.free,
            trained=model.spec.trained_context_length or 4096, layers=model.spec.num_layers,
            experts=any(isinstance(m, Moe) for layer in model.spec.layers for m in layer.mlps),
        )  # fmt: skip
        settled = settled._replace(settings=fitted.settings._replace(fit=settled.settings.fit))
    sizes = trial.sizes(settled.settings)
    drafted = trial.drafted(settled.settings)
    gpus = _on_gpus(request, model, settled, sizes, drafted)
    retried = False
    failing = first_failing(gpus)
    lacks_compute = failing is not None and failing.stage == "compute"
    if lacks_compute and settled.settings.build.retries and sizes.compute.pipelined:  # which is found when it is read
        plain = trial.sizes(settled.settings, can_pipeline=False)
        again = _on_gpus(request, model, settled, plain, drafted)
        later = first_failing(again)
        if later is None or later.stage == "runtime":
            sizes, gpus, retried = plain, again, True
    host = figures.on_host(model, settled, sizes, trial.tensors)
    return _Sized(settled, sizes, drafted, gpus, host, fitted, retried)


def _with_reserve(settled: Settled, trial: Trial) -> Settings:
    """The settings that are fitted: what is loaded beside the model stays free too (server_context::load_model)."""
    settings, build = settled.settings, settled.settings.build
    target = list(settings.fit.target_bytes)
    if build.fit_projector:
        target[0] += figures.projector_bytes(settled)
    if build.fit_draft:
        target = [kept + extra for kept, extra in zip(target, trial.reserved(settings), strict=True)]
    return settings._replace(fit=settings.fit._replace(target_bytes=tuple(target)))


def _on_gpus(
    request: PlanRequest, model: Model, settled: Settled, sizes: Sizes, drafted: Sizes | None
) -> tuple[OnGpu, ...]:
    """What each GPU holds, with what was measured in place of estimates."""
    found = figures.on_gpus(model, settled, sizes, drafted)
    if not request.measured and not request.calibration:
        return found
    return tuple(_with_measured(request, model, settled, gpu) for gpu in found)


def _with_measured(request: PlanRequest, model: Model, settled: Settled, gpu: OnGpu) -> OnGpu:
    """What a GPU holds, with given values in place of estimates and those of neighbouring runs carried over."""
    here = Place(
        request.engine,
        settled.settings.build.name,
        gpu.device.gpu.name,
        model.spec.model_type,
        ranks(len(settled.gpus)),
        gpu.device.driver,
        release_of(request.version or ""),
    )

    def term(kind: SegmentKind, estimated: Estimate) -> Estimate:
        given = figures.given(estimated, kind, dict(request.measured))
        return calibrate(given, kind, request.calibration, here)

    return gpu._replace(
        other=term("other", gpu.other),
        context=term("runtime_outside", gpu.context),
        weights=term("weights", gpu.weights),
        kv=term("kv_cache", gpu.kv),
        compute=later(lambda: term("compute", gpu.compute)),
        late=term("runtime", gpu.late),
    )


_Found = TypeVar("_Found")
Ranges = tuple[WorkingRange, ...]

# The longest contexts that were found last: they depend on everything but the context at hand.
_LONGEST: dict[tuple[object, ...], tuple[Sizer, Sizer | None, tuple[int | None, int | None]]] = remembered({})


def _longest(request: PlanRequest, model: Model, sized: _Sized, trial: Trial) -> tuple[int | None, int | None]:
    """The longest context with everything else as it is placed: by the values, and surely."""
    if not sized.gpus:
        return model.spec.trained_context_length, model.spec.trained_context_length
    settings = sized.settled.settings
    fixed = settings._replace(context=settings.context._replace(tokens=0, reducible=False))

    def spare_at(tokens: int) -> tuple[int, int]:
        other = settings._replace(context=settings.context._replace(tokens=tokens))
        sizes = trial.sizes(other, can_pipeline=not sized.retried)
        return spare(_on_gpus(request, model, sized.settled, sizes, trial.drafted(other)))

    trained = model.spec.trained_context_length or 0
    return _kept(
        _LONGEST, _key(request, sized, trial, fixed), trial,
        lambda: limits.longest(settings, sized.sizes, trained, spare(sized.gpus), spare_at),
    )  # fmt: skip


# How many layers fit, as they were found last: with everything but their number.
_RANGES: dict[tuple[object, ...], tuple[Sizer, Sizer | None, WorkingRange | None]] = remembered({})


def _ranges(request: PlanRequest, model: Model, settled: Settled, sized: _Sized, trial: Trial) -> Ranges:
    """How many layers fit, and how many may have their experts on a GPU, where either is set by hand.

    settled: before --fit shortened anything.
    """
    place = settled.settings.place
    if not sized.gpus:
        return ()

    def placed(other: PlaceSettings) -> Settings:
        return settled.settings._replace(place=other)

    def spare_with(other: PlaceSettings) -> tuple[int, int]:
        return spare(_size(request, model, settled._replace(settings=placed(other)), trial).gpus)

    beyond = spill.BEYOND if settled.spills else "a buffer that does not fit on a GPU"
    found: list[WorkingRange | None] = []
    if place.gpu_layers is not None:
        found.append(_kept(
            _RANGES, _key(request, sized, trial, placed(place._replace(gpu_layers=0, asked_layers=0))), trial,
            lambda: handles.layer_range(
                model.spec.num_layers + 1, lambda count: spare_with(place._replace(gpu_layers=count)), beyond
            ),
        ))  # fmt: skip
    if place.cpu_experts is not None and any(isinstance(m, Moe) for layer in model.spec.layers for m in layer.mlps):
        # Where none is asked for, --fit moves them itself: one is the least that is.
        found.append(_kept(
            _RANGES, (handles.EXPERTS, *_key(request, sized, trial, placed(place._replace(cpu_experts=0)))), trial,
            lambda: handles.expert_range(
                model.spec.num_layers, lambda count: spare_with(place._replace(cpu_experts=max(count, 1))), beyond
            ),
        ))  # fmt: skip
    return tuple(one for one in found if one is not None)


def _key(request: PlanRequest, sized: _Sized, trial: Trial, fixed: Settings) -> tuple[object, ...]:
    """What an answer depends on that was found with other settings than those at hand."""
    settled = sized.settled
    beside = (settled.projector_bytes, settled.projector_on_gpu, settled.adapter_bytes, settled.wddm, settled.spills)
    return (
        id(trial.own), id(trial.draft), fixed, beside, trial.free, sized.retried, *sorted(request.measured.items())
    )  # fmt: skip


def _kept(
    kept: dict[tuple[object, ...], tuple[Sizer, Sizer | None, _Found]], key: tuple[object, ...], trial: Trial,
    find: Callable[[], _Found],
) -> _Found:  # fmt: skip
    """What was found before for the same models, else what is found now."""
    held = kept.get(key)
    if held is not None and held[0] is trial.own and held[1] is trial.draft:
        return held[2]
    found = find()
    make_room(kept, KEPT)
    kept[key] = trial.own, trial.draft, found
    return found


def _host_total(machine: Machine, settled: Settled) -> int | None:
    """RAM of the machine, None where nothing is known of it."""
    if settled.host_bytes is not None:
        return settled.host_bytes
    host = next((device for device in machine.devices if device.kind == "host"), None)
    return host.gpu.total.value if host is not None and host.gpu.total is not None else None


def _resolved(sized: _Sized, tensors: Tensors) -> dict[str, Resolved]:
    """The options, with what fitting made of them."""
    resolved = dict(sized.settled.resolved)
    settings, fitted = sized.settled.settings, sized.fitted
    if fitted is not None and fitted.context is not None:
        resolved["ctx_size"] = Resolved(settings.context.tokens, "derived", "shortened by --fit")
    layers = sized.sizes.placed.placement.layers
    if resolved["n_cpu_moe"].origin == "default":
        away = handles.experts_away(settings, tensors, sized.sizes, len(layers))
        said = "all, by --cpu-moe" if settings.place.cpu_experts == 0 else "kept there by --fit or an override"
        if away:
            resolved["n_cpu_moe"] = Resolved(away, "derived", said)
    on_gpus = handles.offloaded(sized.sizes)
    if fitted is not None and fitted.layers:
        split = "/".join(str(count) for count, _ in fitted.layers)
        resolved["n_gpu_layers"] = Resolved(str(on_gpus), "derived", f"moved by --fit: {split} by GPU")
        if len(fitted.layers) > 1:
            resolved["tensor_split"] = Resolved(split.replace("/", ","), "derived", "by --fit")
    elif (all_ := resolved.get("n_gpu_layers")) is not None and all_.origin == "default":
        reason = f"{format_count(on_gpus)} of {format_count(len(layers) + 1)}"
        resolved["n_gpu_layers"] = all_._replace(reason=reason)
    return resolved


def newest() -> str:
    """The newest build that is modelled."""
    return NEWEST
