"""Score the planner on SGLang's start-up reports: python -m tests.truth.score sglang.jsonl [--json].

What a report prints decides what is compared: bytes per token where it prints tokens and their size; the fraction that
its free memory implies where it prints free memory before and after loading and its pools, compared only where the
fraction itself, or GPU and release, are stated; tokens given what was measured; the stage where it names what decides
it. From nothing but model, GPU and flags, errors are listed with their cause, without a threshold.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final, NamedTuple

from kvplanner.catalog import gpus, models
from kvplanner.engine.option import OptionValue
from kvplanner.engine.plan import Plan
from kvplanner.engine.registry import engine
from kvplanner.engine.request import PlanRequest
from kvplanner.engine.sglang.kv.layout import layout
from kvplanner.engine.sglang.kv.pools import Layout, Measured, Pools, solve
from kvplanner.engine.sglang.settings import Settings
from kvplanner.engine.sglang.settle.settle import settle
from kvplanner.engine.whatif import as_format
from kvplanner.errors import PlannerError
from kvplanner.gpu.match import custom_gpu
from kvplanner.gpu.spec import Device, Machine
from kvplanner.model.model import Model
from kvplanner.units import GIB
from tests.truth.names import resolve
from tests.truth.rows import FIELD, FORK, MODEL, TOTAL, VERSION

ROUNDING: Final = 0.005  # of a figure with two decimals, in GiB
NEAR_FRACTION: Final = 0.003
_ALIASES: Final = {
    "Llama 3.1 8B Instruct": "meta-llama/Llama-3.1-8B-Instruct",
    "LlamaForCausalLM 8B class, bf16": "meta-llama/Llama-3.1-8B-Instruct",
    "Meta-Llama-3.1-8B-Instruct + LoRA adapters": "meta-llama/Llama-3.1-8B-Instruct",
    "Llama-3.1-8B-Instruct + EAGLE3 draft": "meta-llama/Llama-3.1-8B-Instruct",
    "Kimi-K2.5 (KimiK25ForConditionalGeneration)": "moonshotai/Kimi-K2.5",
    "Gemma3ForConditionalGeneration": "google/gemma-3-4b-it",
    "Ling-3.0-flash (BailingMoeV3ForCausalLM)": "inclusionAI/Ling-3.0-flash",
    "Ling-3.0-flash-Fin (BailingMoeV3ForCausalLM)": "inclusionAI/Ling-3.0-flash",
}  # fmt: skip
# Two builds of one name: which is meant is not stated.
_TWO_BUILDS: Final = ("DeepSeek-V4-Pro",)
_FORKS: Final = ("AMD", "MI35", "MI355X", "Ascend", "MTT", "ROCm", "fork", "patched", "KTransformers")
_FLAGS: Final = {
    "mem_fraction_static", "context_length", "max_running_requests", "chunked_prefill_size", "max_prefill_tokens",
    "max_total_tokens", "page_size", "max_mamba_cache_size", "disable_radix_cache", "disable_cuda_graph",
    "disable_overlap_schedule", "enable_dp_attention", "speculative_algorithm", "speculative_num_steps",
    "speculative_eagle_topk", "speculative_num_draft_tokens", "dtype", "attention_backend",
}  # fmt: skip
_RENAMED: Final = {"kv_dtype": "kv_cache_dtype", "decode_graph_max_bs": "cuda_graph_max_bs_decode",
                   "prefill_graph": "cuda_graph_backend_prefill"}  # fmt: skip
_KV_DTYPES: Final = {"float8_e4m3fn": "fp8_e4m3", "float8_e5m2": "fp8_e5m2", "fp8": "fp8_e4m3"}
_STAGES: Final = (
    ("pool sizing", "kv_cache_sizing"), ("weights or earlier", "weights"), ("graph capture", "graph_capture"),
    ("after graph capture", "runtime"), ("runtime OOM", "runtime"), ("ok", None),
)  # fmt: skip


class Row(NamedTuple):
    """One report; facts: its fields as stated."""

    facts: dict[str, Any]

    @property
    def id(self) -> str:
        """The report's name."""
        return str(self.facts["id"])

    @property
    def reported(self) -> dict[str, float]:
        """What the engine printed, GiB unless the name says otherwise."""
        return dict(self.facts.get("reported", {}))

    @property
    def other_engine(self) -> bool:
        """Whether another platform or a changed engine made the report."""
        text = " ".join(str(self.facts.get(k) or "") for k in ("gpu", "notes", "sglang_version"))
        return any(word in text for word in _FORKS)


class Score(NamedTuple):
    """What one report shows. Each pair is (reported, planned); skipped: why a figure is not compared."""

    row: Row
    bytes_per_token: tuple[float, float, bool] | None
    fraction: tuple[float, float | None] | None
    tokens: tuple[int, int, bool] | None
    stage: tuple[str | None, str | None] | None
    remedy: bool | None
    cold_tokens: tuple[int, int, str] | None
    skipped: dict[str, str]


def read(path: Path) -> list[Row]:
    """All reports of a file."""
    return [Row(json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


def model_of(row: Row) -> Model | None:
    """The catalogue's model of a report, in the weight format that it names; None where none is named exactly."""
    name = str(row.facts.get("model") or "")
    if not name or name.startswith(_TWO_BUILDS):
        return None
    try:
        known, weight_format = (
            (_ALIASES[name], None) if name in _ALIASES else resolve(name, str(row.facts.get("quantization") or ""))
        )
        found = models.load(known)
        found = as_format(found, weight_format) if weight_format else found
    except PlannerError:
        return None
    return found if found.inventory is not None else None


def options(row: Row) -> dict[str, OptionValue]:
    """The flags that a report states, by option name."""
    out: dict[str, OptionValue] = {}
    for name, value in row.facts.get("flags", {}).items():
        known = _RENAMED.get(name, name)
        if known == "kv_cache_dtype":
            value = _KV_DTYPES.get(str(value), value)
        if known in _FLAGS or known in _RENAMED.values():
            out[known] = value
    if row.facts.get("flags", {}).get("speculative") and "speculative_algorithm" not in out:
        out["speculative_algorithm"] = "EAGLE"
    for size in ("tp", "pp", "dp", "ep"):
        if row.facts.get(size, 1) > 1:
            out[f"{size}_size"] = row.facts[size]
    return out


def machine_of(row: Row) -> Machine | None:
    """The GPUs of a report, None where they are not named exactly."""
    name, count = str(row.facts.get("gpu") or ""), row.facts.get("tp", 1) * row.facts.get("pp", 1)
    try:
        return gpus.machine(f"{count}x{name}") if name else None
    except PlannerError:
        return None


def request_of(row: Row, model: Model) -> tuple[PlanRequest, bool]:
    """The request of a report, and whether its GPU is known; a stand-in decides nothing that is compared then."""
    machine, known = machine_of(row), True
    if machine is None:
        size = round(float(row.facts.get("gpu_memory_gib") or 80) * GIB)
        count = row.facts.get("tp", 1) * row.facts.get("pp", 1)
        machine, known = Machine(tuple(Device(i, custom_gpu(size)) for i in range(count))), False
    version = str(row.facts.get("sglang_version") or "") or None
    if version is not None and not re.match(r"v?\d+\.\d+", version):
        version = None
    if version is not None and version.startswith("0.0."):
        version = None
    return PlanRequest(model, machine, engine="sglang", version=version, options=options(row)), known


def score(row: Row) -> Score:
    """Everything that a report lets compare; it never raises."""
    skipped: dict[str, str] = {}
    try:
        return _score(row, skipped)
    except PlannerError as error:
        skipped["all"] = str(error)[:120]
        return Score(row, None, _implied(row, None), None, *_by_measured(row), None, skipped)


def _score(row: Row, skipped: dict[str, str]) -> Score:
    model = model_of(row)
    if model is None:
        skipped["all"] = MODEL
        return Score(row, None, _implied(row, _stated(row)), None, *_by_measured(row), None, skipped)
    request, known = request_of(row, model)
    settings = settle(request).settings
    pools = layout(model.spec, settings, 0, None)
    stated = _stated(row)
    given = stated
    if stated is None and known and request.version is not None:
        stated = settings.fraction
    stage, remedy = _by_measured(row)
    cold = None
    if row.other_engine or not known:
        skipped["cold"] = FORK if row.other_engine else TOTAL
    else:
        planned, direction, cold = _planned(row, request)
        if request.version is None:
            skipped["stage"] = VERSION
        elif stage is None:
            stage, remedy = planned, direction
    return Score(
        row=row,
        bytes_per_token=_cells(row, settings, pools, skipped),
        fraction=_implied(row, stated if _states_printed(row, pools) else None),
        tokens=_tokens(row, settings, pools, given, skipped),
        stage=stage,
        remedy=remedy,
        cold_tokens=cold,
        skipped=skipped,
    )


def _cells(row: Row, settings: Settings, pools: Layout, skipped: dict[str, str]) -> tuple[float, float, bool] | None:
    """Bytes per token of the full pool as printed and as planned, and whether they agree as they are rounded."""
    reported = row.reported
    tokens, parts = reported.get("kv_tokens"), [reported[k] for k in ("k_gb", "v_gb", "kv_gb") if k in reported]
    if not tokens or not parts or tokens < 5000 or pools.window is not None or pools.compression is not None:
        skipped["bytes_per_token"] = FIELD
        return None
    size, slots = sum(parts) * GIB, tokens + settings.cache.page_size
    doubt = ROUNDING * len(parts) * GIB / slots
    return size / slots, float(pools.cells.full), abs(size / slots - pools.cells.full) <= doubt * 1.05


def _stated(row: Row) -> float | None:
    given = row.facts.get("flags", {}).get("mem_fraction_static")
    return None if given is None else float(given)


def _measured(row: Row) -> tuple[float, float] | None:
    """Free memory before and after loading, in GiB: printed, or by what was printed beside it."""
    reported = row.reported
    begin, after = reported.get("avail_mem_begin_gb"), reported.get("avail_after_load_gb")
    weight, least = reported.get("weight_gb"), reported.get("minimum_viable_fraction")
    if begin is None and after is not None and least is not None:
        begin = after / (1 - least)
    if begin is None and after is not None and weight is not None:
        begin = after + weight
    if after is None and begin is not None and least is not None:
        after = begin * (1 - least)
    return None if begin is None or after is None else (begin, after)


def _by_measured(row: Row) -> tuple[tuple[str | None, str | None] | None, bool | None]:
    """Stage and remedy where the fraction and what was measured are stated: they decide whether pools are left."""
    measured, stated, text = _measured(row), _stated(row), str(row.facts.get("outcome") or "")
    if measured is None or stated is None or row.other_engine or not ("pool sizing" in text or text == "ok"):
        return None, None
    begin, after = measured
    refused = after - begin * (1 - stated) <= 0
    reported = "kv_cache_sizing" if "pool sizing" in text else None
    least = 1 - after / begin
    return (reported, "kv_cache_sizing" if refused else None), (least > stated) if reported else None


def _implied(row: Row, stated: float | None) -> tuple[float, float | None] | None:
    """The fraction that free memory before and after loading and the pools imply, and the stated one."""
    reported = row.reported
    measured = _measured(row)
    pools = [reported[k] for k in ("k_gb", "v_gb", "kv_gb", "mamba_conv_gb", "mamba_ssm_gb") if k in reported]
    if measured is None or not any(k in reported for k in ("k_gb", "kv_gb")):
        return None
    begin, after = measured
    return 1 - (after - sum(pools)) / begin, stated


def _states_printed(row: Row, pools: Layout) -> bool:
    """Whether every pool that the model has is among those that were printed."""
    return pools.state is None or "mamba_ssm_gb" in row.reported


def _tokens(
    row: Row, settings: Settings, pools: Layout, given: object, skipped: dict[str, str]
) -> tuple[int, int, bool] | None:
    """Tokens as printed and as planned from what the engine measured, where it states its fraction too."""
    reported = row.reported
    measured = _measured(row)
    wanted = reported.get("max_total_num_tokens") or reported.get("kv_tokens")
    if measured is None or not wanted or given is None or row.other_engine:
        skipped["tokens"] = FIELD
        return None
    begin, after = measured
    found = [solve(settings, pools, Measured(round((begin + d) * GIB), round((after + e) * GIB)))
             for d, e in ((0, 0), (2 * ROUNDING, -ROUNDING), (-2 * ROUNDING, ROUNDING))]  # fmt: skip
    sizes = sorted(p.tokens for p in found if isinstance(p, Pools))
    if not sizes:
        return int(wanted), 0, False
    return int(wanted), sizes[len(sizes) // 2], sizes[0] <= wanted <= sizes[-1]


def _planned(
    row: Row, request: PlanRequest
) -> tuple[tuple[str | None, str | None] | None, bool | None, tuple[int, int, str] | None]:
    """Stage, direction of the remedy, and tokens from nothing but model, GPU and flags."""
    plan = engine("sglang").plan(request)
    text = str(row.facts.get("outcome") or "")
    stage = next(((known, plan.stage) for word, known in _STAGES if word in text and "not memory" not in text), None)
    wanted = row.reported.get("max_total_num_tokens") or row.reported.get("kv_tokens")
    cold = None
    if wanted and plan.kv_cache is not None:
        cold = int(wanted), plan.kv_cache.tokens, _cause(row, request, plan)
    return stage, _direction(plan) if stage and stage[0] else None, cold


def _direction(plan: Plan) -> bool | None:
    """Whether the fractions that the verdict names lie on the side that the failure asks for."""
    failing = plan.verdict.failing
    if failing is None:
        return None
    figures, share = failing.reason.figures, plan.devices[failing.device].budget_share
    if share is None or failing.stage == "weights":
        return True
    if failing.stage.startswith("kv_cache_s") or failing.stage == "kv_cache_too_small":
        return "least" not in figures or float(figures["least"]) > share
    return "largest" not in figures or float(figures["largest"]) < share


def _cause(row: Row, request: PlanRequest, plan: Plan) -> str:
    """What most of a difference comes from: free memory, weights, or the fraction."""
    settings, reported = settle(request).settings, row.reported
    device = plan.devices[0]
    weights, outside = device.segment("weights"), device.segment("runtime_outside")
    parts = []
    if "avail_mem_begin_gb" in reported and outside is not None:
        begin = (device.cuda_total_bytes - outside.bytes) / GIB
        parts.append(f"free before {begin - reported['avail_mem_begin_gb']:+.2f} GiB")
    if "weight_gb" in reported and weights is not None:
        parts.append(f"weights {weights.bytes / GIB - reported['weight_gb']:+.2f} GiB")
    parts.append(f"fraction {settings.fraction:.3f}")
    return ", ".join(parts)


def summary(scores: list[Score]) -> dict[str, Any]:
    """Counts of what was compared and what agrees."""
    cells = [s.bytes_per_token for s in scores if s.bytes_per_token]
    stated = [s.fraction for s in scores if s.fraction and s.fraction[1] is not None and not s.row.other_engine]
    tokens = [s.tokens for s in scores if s.tokens]
    stages = [s.stage for s in scores if s.stage]
    remedies = [s.remedy for s in scores if s.remedy is not None]
    return {
        "rows": len(scores),
        "models_known": sum(s.skipped.get("all") != MODEL for s in scores),
        "bytes_per_token": {"used": len(cells), "right": sum(c[2] for c in cells)},
        "fraction": {
            "implied": sum(1 for s in scores if s.fraction),
            "compared": len(stated),
            "within_0.003": sum(abs(a - b) <= NEAR_FRACTION for a, b in stated if b is not None),
        },
        "tokens_given_measured": {"used": len(tokens), "within_rounding": sum(t[2] for t in tokens)},
        "stages": {"used": len(stages), "right": sum(a == b for a, b in stages)},
        "remedies": {"used": len(remedies), "right": sum(remedies)},
        "skipped": {s.row.id: s.skipped for s in scores if s.skipped},
    }


def text(scores: list[Score]) -> str:
    """The figures for people."""
    data = summary(scores)
    lines = [f"SGLang: {data['rows']} reports, model known in {data['models_known']}"]
    lines += [f"  {name}: {data[name]}" for name in ("bytes_per_token", "fraction", "tokens_given_measured", "stages",
                                                     "remedies")]  # fmt: skip
    for s in scores:
        if s.bytes_per_token and not s.bytes_per_token[2]:
            lines.append(
                f"bytes per token {s.row.id}: {s.bytes_per_token[0]:,.0f} printed, {s.bytes_per_token[1]:,.0f}"
            )
        if s.fraction:
            stated = f", stated {s.fraction[1]:.3f}" if s.fraction[1] is not None else ""
            lines.append(f"fraction implied {s.row.id}: {s.fraction[0]:.3f}{stated}")
        if s.tokens:
            lines.append(f"tokens {s.row.id}: {s.tokens[0]:,} printed, {s.tokens[1]:,} from what was measured")
        if s.stage and s.stage[0] != s.stage[1]:
            lines.append(f"stage {s.row.id}: {s.stage[0]} reported, {s.stage[1]} planned")
        if s.cold_tokens:
            wanted, planned, cause = s.cold_tokens
            off = 100 * (planned / wanted - 1)
            lines.append(f"from model, GPU and flags {s.row.id}: {planned:,} of {wanted:,} ({off:+.1f} %): {cause}")
    return "\n".join(lines)


def as_json(scores: list[Score]) -> dict[str, Any]:
    """The figures, in all and per report."""
    reports = [{"id": s.row.id, **{k: v for k, v in s._asdict().items() if k != "row"}} for s in scores]
    return {"all": summary(scores), "reports": reports}
