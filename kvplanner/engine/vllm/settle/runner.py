"""Which engine and model runner a release gives a model, and how that accounts for memory."""

from __future__ import annotations

from typing import Literal

from kvplanner.engine.shared.ledger import Book
from kvplanner.engine.vllm import rules
from kvplanner.engine.vllm.gpu import Gpu
from kvplanner.engine.vllm.settings import Era, Parallel, Version
from kvplanner.model.spec import Mla, ModelSpec, Moe, State

Runner = Literal["V0", "V1", "V2"]
# The least compute capability of the V1 engine while it fell back.
_V1_FROM = (8, 0)
# V2 could be asked for by its variable from here on.
_V2_SINCE = (21, 0)
_CONTEXT_PARALLEL_ON_V2 = (27, 0)


def settle_era(spec: ModelSpec, book: Book, gpu: Gpu, version: Version, ranks: Parallel, drafts: str | None) -> Era:
    """The runner and its accounting. drafts: the speculative method."""
    runner, reason = _runner(spec, book, gpu, version, ranks, drafts)
    wanted = bool(book.settle("v2_model_runner", runner == "V2", reason))
    if runner == "V2" and not wanted:
        runner = "V1"
    elif runner == "V1" and wanted and version >= _V2_SINCE:
        runner = "V2"
    name = f"{rules.accounting(version)}, {runner} runner"
    silent = runner == "V0" or (runner == "V2" and not rules.V2_ESTIMATES_GRAPHS.at(version))
    estimated = rules.GRAPHS_ESTIMATED.at(version) and not silent
    asked = bool(book.settle("estimate_cuda_graphs", estimated, f"as in {name}"))
    if asked and silent:
        book.override("estimate_cuda_graphs", False, f"the {runner} runner estimates none in this version")
    return Era(
        name=name,
        runner=runner,
        consumed_rule=rules.CONSUMED.at(version),
        graphs_in_budget=asked and not silent,
        free_memory_check=rules.FREE_CHECK.at(version),
        printed_tokens=rules.PRINTED.at(version),
    )


def _runner(
    spec: ModelSpec, book: Book, gpu: Gpu, version: Version, ranks: Parallel, drafts: str | None
) -> tuple[Runner, str]:
    """The runner without anyone's wish, and why."""
    if not rules.V1_ENGINE.at(version):
        return "V0", "the engine before 0.8"
    why = _falls_back(spec, book, gpu, version, ranks, drafts)
    if why:
        return "V0", f"{why} fell back to V0 in this version"
    if ranks.pcp > 1 and version >= _CONTEXT_PARALLEL_ON_V2:
        return "V2", "prefill context parallelism runs on V2"
    models = rules.V2_MODELS.at(version)
    if not _runs_on_v2(spec, models):
        return "V1", "V2 is for other models in this version" if models != rules.V2Models() else "V1 in this version"
    without = rules.V2_WITHOUT.at(version)
    for name, on in (
        (drafts or "", drafts is not None),
        ("dbo", bool(book.options.get("enable_dbo"))),
        ("eagle3 over stages", drafts == "eagle3" and ranks.pp > 1),
    ):
        if on and name in without:
            return "V1", f"V2 does not run {name} in this version"
    if ranks.pcp > 1 and not _latent(spec):
        return "V1", "V2 does not run prefill context parallelism in this version"
    return "V2", "V2 for this model" if not models.every else "V2 in this version"


def _falls_back(spec: ModelSpec, book: Book, gpu: Gpu, version: Version, ranks: Parallel, drafts: str | None) -> str:
    """What makes V1 leave a start to V0, "" where nothing does."""
    if rules.V0_FALLBACK.at(version):
        if gpu.arch is not None and gpu.arch < _V1_FROM:
            return "a GPU older than Ampere"
        if spec.has_states:
            return "a model with recurrent state"
    if spec.task != "generate" and not rules.POOLING_ON_V1.at(version):
        return "a model that does not generate"
    if ranks.pp > 1 and not rules.PIPELINE_ON_V1.at(version):
        return "pipeline parallelism without Ray"
    cache = str(book.options.get("kv_cache_dtype") or spec.kv_cache_dtype or "auto")
    if cache != "auto" and rules.V0_FALLBACK_CACHE.at(version) and gpu.runs_as[0] != 9:
        return f"a {cache} cache without FlashAttention 3"
    if drafts is not None and rules.V0_FALLBACK_CACHE.at(version) and drafts not in rules.V1_DRAFTS.at(version):
        return f"speculative decoding by {drafts}"
    return ""


def _runs_on_v2(spec: ModelSpec, models: rules.V2Models) -> bool:
    if models.every:
        return True
    mixers = [m for layer in spec.layers for m in layer.mixers]
    states = any(isinstance(m, State) for m in mixers)
    attends = any(not isinstance(m, State) for m in mixers)
    if spec.task != "generate" or (mixers and not attends):
        return False
    if spec.architecture in models.listed:
        return models.quantised or spec.quantization is None
    experts = any(isinstance(m, Moe) for layer in spec.layers for m in layer.mlps)
    return models.dense and not states and not experts


def _latent(spec: ModelSpec) -> bool:
    return any(isinstance(m, Mla) for layer in spec.layers for m in layer.mixers)
