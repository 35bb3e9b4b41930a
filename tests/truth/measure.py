"""One report against the plan of it: what was comparable, and by how much the two differ."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple, TypeVar

from kvplanner.catalog import gpus, models
from kvplanner.engine.plan import Plan
from kvplanner.engine.registry import engine
from kvplanner.engine.request import Calibration, PlanRequest
from kvplanner.engine.segment import SegmentKind
from kvplanner.engine.vllm.gpu import Gpu, gpu_of
from kvplanner.engine.vllm.memory import activations, graphs, runtime, workspace
from kvplanner.engine.vllm.settings import Settings
from kvplanner.engine.vllm.settle import settle as defaults
from kvplanner.engine.vllm.weights import loaded as weights
from kvplanner.engine.vllm.weights import rank as weights_rank
from kvplanner.errors import PlannerError
from kvplanner.estimate import Estimate, band_of_sum
from kvplanner.model.spec import Attention, Compressed, Mla, ModelSpec, Moe, State
from kvplanner.model.whatif import WHATIF_FORMATS
from kvplanner.units import GIB
from tests.truth.rows import FIELD, FORK, MODEL, OTHER, TOTAL, VERSION, Row, Skip, request_of, states

STAGES: Final[dict[str, str | None]] = {
    "ok": None, "free_check": "free_memory_check", "weights": "weights", "profile": "profile",
    "no_kv": "kv_cache_sizing", "kv_too_small": "kv_cache_too_small", "graph_capture": "graph_capture",
    "runtime_oom": "runtime",
}  # fmt: skip
T = TypeVar("T")
# What a report's odd values come to: a missing key, a text for a number, a size of 0.
_UNREADABLE: Final = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError)
_BEFORE_LENGTH: Final = ("free_check", "profile", "no_kv")
_NEAR: Final = 0.01
# A release whose allocator rounds weights as all did before 0.20.1, for a report that names none.
_BEFORE_SPLIT_LIMIT: Final = "0.19.0"
# Eras to try for a report that names no version.
TRIED: Final = ("0.6.6", "0.8.5", "0.11.0", "0.16.0", "0.19.0", "0.24.0", "0.26.0", "0.28.0", "0.33.0")


class Pair(NamedTuple):
    """A reported and a planned figure; bytes unless they are tokens."""

    reported: float
    planned: float
    low: float
    high: float

    @property
    def error(self) -> float:
        """Planned − reported."""
        return self.planned - self.reported

    @property
    def covered(self) -> bool:
        """Whether the band holds what was reported, give or take the two decimals it was printed with."""
        return self.low - 0.005 * GIB <= self.reported <= self.high + 0.005 * GIB


@dataclass(frozen=True)
class Score:
    """What one report says about the planner; a missing comparison has a reason in `skipped`.

    kv: of the plan that its flags give, a first start where it does not say; kv_nearer: of the nearer of a first and
    a later start.
    """

    row: Row
    era: str = ""
    kind: str = ""
    platform: str = ""
    gpu_bytes: int = 0
    weights: Pair | None = None
    kv: Pair | None = None
    kv_nearer: Pair | None = None
    tokens: Pair | None = None
    tokens_exact: bool | None = None
    stage: tuple[str | None, str | None] | None = None
    any_era: bool = False
    terms: dict[str, Pair] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)


def score(row: Row) -> Score:
    """Compare one report with its plan, as far as it states enough; a report that cannot be read is skipped."""
    try:
        return _score(row)
    except _UNREADABLE:
        reported = row.facts.get("reported")
        names = _wanted(row) if isinstance(reported, dict) and "outcome" in row.facts else ("weights", "kv", "stage")
        return Score(row, skipped=dict.fromkeys(names, FIELD))


def _score(row: Row) -> Score:
    for name, value in row.reported.items():
        if name.endswith(("_gib", "_tokens")) and not isinstance(value, int | float):
            raise ValueError(f"{name} is no number")
    skipped: dict[str, str] = {}
    result = Score(row, skipped=skipped)
    reason = _unusable(row)
    if reason:
        skipped |= dict.fromkeys(_wanted(row), reason)
        return result
    try:
        request = request_of(row, row.version)
        settings = _settings(request)
    except Skip as skip:
        skipped |= dict.fromkeys(_wanted(row), str(skip))
        return _in_part(result, str(skip), skipped)
    except PlannerError:
        skipped |= dict.fromkeys(_wanted(row), FIELD)
        return result
    result = replace(
        result,
        era=settings.era.name if row.version else "version not stated",
        kind=architecture(request.model.spec),
        platform=_platform(_gpu(request), settings.parallel.world),
        gpu_bytes=_gpu(request).total_bytes,
        weights=_attempt(skipped, "weights", row, lambda: _weights(row, request, settings)),
    )
    if row.version is None:
        return _without_version(result, request, skipped)
    result = replace(
        result,
        kv=(kv := _attempt(skipped, "kv", row, lambda: _kv_of(row, request))),
        kv_nearer=kv and _nearer(row, request, kv),
        stage=_attempt(skipped, "stage", row, lambda: _stage(row, request)),
        terms=_terms(row, request, settings),
    )
    tokens = _attempt(skipped, "tokens", row, lambda: _tokens(row, request))
    return replace(result, tokens=tokens[0] if tokens else None, tokens_exact=tokens[1] if tokens else None)


def _platform(gpu: Gpu, ranks: int) -> str:
    """The kind of GPU and of host, and whether one GPU runs the model or several."""
    kinds = {"hbm": "data-centre GPUs", "pcie": "cards", "unified": "unified memory"}
    name = "cards under Windows or WSL2" if gpu.windows else kinds[gpu.kind]
    return f"{name}, {'one' if ranks == 1 else 'several'}"


def _in_part(result: Score, reason: str, skipped: dict[str, str]) -> Score:
    """What a report without a known GPU or model still tells: 16-bit weights, and the check of free memory."""
    row = result.row
    try:
        if reason == TOTAL and "weights" in skipped:
            request = request_of(row, row.version, gpu=gpus.machine("H100").devices[0].gpu)
            if request.model.spec.quantization is None:
                pair = _weights(row, request, _settings(request))
                del skipped["weights"]
                return replace(result, era="GPU not stated", kind=architecture(request.model.spec), weights=pair)
        if reason == MODEL and row.facts["outcome"] == "free_check":
            stand_in = models.load("meta-llama/Llama-3.1-8B-Instruct")
            pair_of_stages = _stage(row, request_of(row, row.version, model=stand_in))
            del skipped["stage"]
            return replace(result, era="model not stated", kind="any", stage=pair_of_stages)
    except (Skip, PlannerError):
        pass
    return result


def architecture(spec: ModelSpec) -> str:
    """The kind of a model by which errors are grouped."""
    mixers = [m for layer in spec.layers for m in layer.mixers]
    if any(isinstance(m, State) for m in mixers):
        return "hybrid"
    if any(isinstance(m, Mla | Compressed) for m in mixers):
        return "latent attention"
    if any(isinstance(m, Moe) for layer in spec.layers for m in layer.mlps):
        return "experts"
    if any(isinstance(m, Attention) and (m.window or m.chunk) for m in mixers):
        return "sliding window"
    return "vision" if spec.multimodal else "dense"


def _wanted(row: Row) -> tuple[str, ...]:
    """The comparisons that the report has figures for."""
    reported, names = row.reported, []
    if "model_loading_gib" in reported:
        names.append("weights")
    if "available_kv_gib" in reported:
        names.append("kv")
    if {"available_kv_gib", "kv_tokens"} <= set(reported):
        names.append("tokens")
    if row.facts["outcome"] in STAGES:
        names.append("stage")
    return tuple(names)


def _unusable(row: Row) -> str:
    if row.fork:
        return FORK
    if row.shared and row.facts["outcome"] != "free_check":
        return OTHER
    return ""


def _attempt(skipped: dict[str, str], name: str, row: Row, compare: Callable[[], T]) -> T | None:
    if name not in _wanted(row):
        return None
    try:
        return compare()
    except Skip as skip:
        skipped[name] = str(skip)
    except PlannerError:
        skipped[name] = FIELD
    return None


def _gpu(request: PlanRequest) -> Gpu:
    return gpu_of(request.machine.devices[0].gpu)


def _settings(request: PlanRequest) -> Settings:
    return defaults.resolve(request)[0]


def plan(request: PlanRequest) -> Plan:
    """The plan of a request."""
    return engine("vllm").plan(request)


def _weights(row: Row, request: PlanRequest, settings: Settings) -> Pair:
    if not row.facts.get("tp"):
        raise Skip(FIELD)
    if row.version is None and request.model.spec.quantization == "mxfp4":
        raise Skip(VERSION)  # padded by kernel, and kernels changed
    if row.version is None and row.before_split_limit:
        settings = _settings(request._replace(version=_BEFORE_SPLIT_LIMIT))
    model, gpu = request.model, _gpu(request)
    found = weights.loaded(model, settings, gpu, 0)
    if row.consumed_as_weights:
        terms = (weights_rank.rank_weights(model, settings, gpu, 0), workspace.persistent(model, settings, gpu, 0),
                 runtime.inside(settings, gpu, 0))  # fmt: skip
        below, above = band_of_sum(terms)
        value = sum(term.value for term in terms)
        return Pair(row.reported["model_loading_gib"] * GIB, value, value - below, value + above)
    return Pair(row.reported["model_loading_gib"] * GIB, found.value, found.low, found.high)


def usable(row: Row) -> bool:
    """Whether nothing but the engine itself decided a report's numbers."""
    return not _unusable(row)


def kv_of(row: Row, calibration: tuple[Calibration, ...] = ()) -> Pair:
    """Available KV memory as reported and as planned, with what other runs measured. Raises Skip, PlannerError.

    Of the nearer compile cache where the report names none.
    """
    request = request_of(row, row.version)._replace(calibration=calibration)
    return _nearer(row, request, _kv_of(row, request))


def as_ran(row: Row) -> PlanRequest:
    """The request of a report, with its own weights where the model's are a guess. Raises Skip."""
    return _with_own_weights(row, request_of(row, row.version))


def _nearer(row: Row, request: PlanRequest, first: Pair) -> Pair:
    """Available KV memory with kernels compiled before or not, whichever is nearer where a report says neither.

    In the band of a first start.
    """
    if "compile_cache" in request.options or not activations.compiles(_settings(request)):
        return first
    later = _kv_of(row, request._replace(options={**request.options, "compile_cache": "warm"}))
    nearer = min(first, later, key=lambda pair: abs(pair.error))
    return nearer._replace(low=first.low, high=max(first.high, nearer.planned))


def _kv_of(row: Row, request: PlanRequest) -> Pair:
    if not row.facts.get("tp") or not states(row, "gpu_memory_utilization"):
        raise Skip(FIELD)
    _known_total(request)
    request = _with_own_weights(row, request)
    made = plan(request)
    ranks = made.kv_cache
    if ranks is not None:
        available = ranks.available
        value, low, high = available.value, available.low, available.high
    else:
        value, low, high = _missing(made)
    return Pair(row.reported["available_kv_gib"] * GIB, value, low, high)


def _with_own_weights(row: Row, request: PlanRequest) -> PlanRequest:
    """A model read in a what-if format takes the weights that the report prints; without them its size is a guess."""
    if request.model.weight_format not in WHATIF_FORMATS:
        return request
    if "model_loading_gib" not in row.reported:
        raise Skip(MODEL)
    settings, gpu = _settings(request), _gpu(request)
    if settings.parallel.pp > 1:
        # What one stage prints is not what another holds: the guess stands where it is right for that stage.
        pair = _weights(row, request, settings)
        if abs(pair.error) > _NEAR * pair.reported:
            raise Skip(MODEL)
        return request
    # What is printed holds rotary tables and what the allocator rounds up; the plan counts them among the buffers.
    beside = 0 if settings.era.consumed_rule else weights.tables(request.model, settings, gpu, 0).value
    return request._replace(measured={"weights": round(row.reported["model_loading_gib"] * GIB) - beside})


def _known_total(request: PlanRequest) -> None:
    total = request.machine.devices[0].gpu.cuda_total
    if total is None or total.basis == "assumed":
        raise Skip(TOTAL)


def _missing(made: Plan) -> tuple[int, int, int]:
    """Available KV memory of a plan that leaves none: budget less everything in it, on the tightest device."""
    device = made.devices[made.tightest]
    kinds: tuple[SegmentKind, ...] = ("runtime", "weights", "workspace", "activations", "cuda_graphs")
    parts = [s.estimate for kind in kinds if (s := device.segment(kind)) is not None]
    budget = device.budget.value if device.budget else 0
    value = budget - sum(p.value for p in parts)
    below = sum((p.high - p.value) ** 2 for p in parts) ** 0.5
    above = sum((p.value - p.low) ** 2 for p in parts) ** 0.5
    return value, round(value - below), round(value + above)


def _tokens(row: Row, request: PlanRequest) -> tuple[Pair, bool]:
    """Tokens of the KV memory that the report printed, within what two decimals leave open."""
    if not row.facts.get("tp") or "max_model_len" not in request.options:
        raise Skip(FIELD)
    reported = row.reported["available_kv_gib"]
    found = []
    for gib in (reported, reported - 0.005, reported + 0.005):
        made = plan(request._replace(measured={"kv_cache": max(round(gib * GIB), 1)}))
        if made.kv_cache is None:
            raise Skip(FIELD)
        found.append(made.kv_cache.tokens)
    value, low, high = found
    printed = row.reported["kv_tokens"]
    return Pair(printed, value, low, high), low <= printed <= high


def _stage(row: Row, request: PlanRequest) -> tuple[str | None, str | None]:
    """(stage that the report shows, stage of the plan); what decides a stage must be stated."""
    outcome = row.facts["outcome"]
    if outcome == "kv_too_small" and row.reported.get("available_kv_gib", 1) <= 0:
        outcome = "no_kv"  # the engine says so before it compares lengths
    needed = (
        {"gpu_memory_utilization"}
        if outcome in ("free_check", "no_kv")
        else {"gpu_memory_utilization", "max_model_len"}
    )
    if outcome == "weights":
        needed = set()
    if not row.facts.get("tp") and outcome != "free_check":
        raise Skip(FIELD)
    stated = set(row.facts["flags"])
    if "available_kv_gib" in row.reported and outcome in ("ok", "kv_too_small") and "max_model_len" in stated:
        needed = set()
        gib = row.reported["available_kv_gib"]
        if gib > 0:
            request = request._replace(measured={"kv_cache": round(gib * GIB)})
    if not needed <= stated:
        raise Skip(FIELD)
    if needed:
        _known_total(request)
    return STAGES[outcome], plan(request).stage


def _any_version_decides(row: Row) -> bool:
    """Whether a failure follows from what is stated under every version: free memory, or a given KV cache."""
    outcome = row.facts["outcome"]
    given = row.reported.get("available_kv_gib", 0) > 0 and states(row, "max_model_len")
    return outcome == "free_check" or (outcome == "kv_too_small" and given)


def _terms(row: Row, request: PlanRequest, settings: Settings) -> dict[str, Pair]:
    """The parts that a report prints apart, where it names its version."""
    reported, model, gpu = row.reported, request.model, _gpu(request)
    peak = activations.peak(model, settings, gpu, 0)
    extra = workspace.shared_workspace(model, settings, gpu).bytes if not settings.era.consumed_rule else 0
    found = {
        "activations": ("activation_peak_gib", peak.value + extra, peak.low + extra, peak.high + extra),
        "graph estimate": ("cudagraph_estimated_gib", *_three(graphs.estimate(model, settings, gpu, 0))),
        "graphs": ("graph_capture_gib", *_three(graphs.actual(model, settings, gpu, 0))),
    }
    return {
        name: Pair(reported[key] * GIB, value, low, high)
        for name, (key, value, low, high) in found.items()
        if key in reported
    }


def _three(estimate: Estimate) -> tuple[int, int, int]:
    return estimate.value, estimate.low, estimate.high


def _without_version(result: Score, request: PlanRequest, skipped: dict[str, str]) -> Score:
    """Try every era: the closest one counts as "explained by some era", apart from the rest."""
    row = result.row
    for name in ("kv", "stage", "tokens"):
        if name in _wanted(row):
            skipped[name] = VERSION
    if "stage" in skipped and _any_version_decides(row):
        stage = _attempt(skipped, "stage", row, lambda: _stage(row, request))
        if stage is not None:
            del skipped["stage"]
            result = replace(result, stage=stage)
    if "kv" not in skipped:
        return result
    best: Pair | None = None
    for version in TRIED:
        try:
            tried = request._replace(version=version)
            pair = _nearer(row, tried, _kv_of(row, tried))
        except (Skip, PlannerError):
            continue
        if best is None or abs(pair.error) < abs(best.error):
            best = pair
    return replace(result, any_era=best is not None and best.covered)
