"""Ollama before 0.30: its estimate as public logs tell it, and what follows from it for the plan."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kvplanner.catalog import models
from kvplanner.engine.llamacpp.ollama import estimate as estimates
from kvplanner.engine.llamacpp.ollama.eras import ERAS, era_of
from kvplanner.engine.llamacpp.ollama.layout import lay_out
from kvplanner.engine.llamacpp.ollama.planner import _loaded
from kvplanner.engine.option import OptionValue
from kvplanner.engine.plan import Plan
from kvplanner.engine.registry import engine
from kvplanner.engine.request import PlanRequest
from kvplanner.engine.whatif import as_format
from kvplanner.errors import BadInput
from kvplanner.gpu.spec import Machine
from kvplanner.units import GIB, MIB
from tests.engine.llamacpp.kit import size

LOGS = Path(__file__).parents[2] / "truth" / "ollama-offload.jsonl"
ROWS: list[dict[str, Any]] = [json.loads(line) for line in LOGS.read_text(encoding="utf-8").splitlines()]
UNITS = {"GiB": GIB, "MiB": MIB}


def _estimated(row: dict[str, Any]) -> tuple[estimates.Estimate, estimates.Facts, int]:
    """The estimate for a log's line, with the slots that fit where the release finds their number."""
    model = models.load(row["model"])
    loaded = _loaded(as_format(model, f"GGUF {row['mix']}") if row["mix"] else model)[0]
    era = era_of(row["engine_version"])
    assert era is not None
    facts = estimates.facts_of(loaded, era, own=loaded.spec.model_type in era.own)
    free = [round(one * GIB) for one in row["available_gib"]]
    for slots in (row["parallel"],) if row["parallel"] else era.slots:
        graph = estimates.graph_of(
            facts, era, context=row["num_ctx"] * slots, batch=512, slots=slots, cache_type="f16", flash=False
        )
        found = estimates.place(facts, graph, era, free, overhead=round(row.get("overhead_gib", 0) * GIB))
        if found.whole:
            break
    return found, facts, slots


def _figures(row: dict[str, Any]) -> dict[str, Any]:
    found, facts, slots = _estimated(row)
    era = era_of(row["engine_version"])
    assert era is not None
    total, repeating = estimates.totals(found, era)
    return {
        "parallel": slots, "layers.offload": found.layers, "layers.split": ",".join(map(str, found.split)),
        "full": found.full, "partial": found.required, "kv": found.cache, "allocations": found.allocations,
        "weights.total": total, "weights.repeating": repeating, "weights.nonrepeating": found.output,
        "graph.full": found.graph_full, "graph.partial": found.graph_partial,
        "projector.weights": facts.projector, "projector.graph": facts.projector_graph,
    }  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["id"])
def test_the_estimate_is_what_the_log_tells(row: dict[str, Any]) -> None:
    """Layers and split equal; GiB within 0.15, MiB within 0.26, projectors within 2 %."""
    found = _figures(row)
    for name, told in row["reported"].items():
        if not isinstance(told, str) or name == "layers.split":
            assert found[name] == told, name
            continue
        for text, value in zip(told.split(","), found[name] if name == "allocations" else [found[name]], strict=True):
            number, unit = text.split(" ")
            near = 0.02 * float(number) if name == "projector.weights" else 0.15 if unit == "GiB" else 0.26
            assert abs(value / UNITS[unit] - float(number)) <= near, (name, estimates.as_logged(value))


def _plan(
    name: str, gpu: str, version: str, free: str = "", mix: str | None = "GGUF Q4_K_M", **options: OptionValue
) -> Plan:
    machine = _machine(gpu, free)
    return engine("ollama").plan(PlanRequest(models.load(models.find(name).id), machine, "ollama", version, options,
                                             weight_format=mix))  # fmt: skip


def _machine(gpu: str, free: str) -> Machine:
    from kvplanner.catalog import gpus
    from kvplanner.request.words import with_free

    return with_free(gpus.machine(gpu), (free,) if free else ())


def _said(plan: Plan, words: str) -> str:
    return next((note for note in plan.warnings if words in note), "")


@pytest.mark.parametrize(
    ("version", "context", "slots"),
    [("0.5.7", 2048, 4), ("0.6.6", 2048, 4), ("0.6.7", 4096, 2), ("0.9.6", 4096, 2), ("0.10.0", 4096, 1),
     ("0.15.4", 4096, 1), ("0.15.5", 32768, 1), ("0.24", 32768, 1), ("0.30", 32768, 1)],
)  # fmt: skip
def test_defaults_go_by_the_release(version: str, context: int, slots: int) -> None:
    """envconfig/config.go and server/sched.go of the tags: 4096 since 0.6.7, by memory since 0.15.5; auto 4, 2, 1."""
    made = _plan("Llama-3.1-8B-Instruct", "RTX 4090", version)
    assert made.options["num_ctx"].value == context
    assert made.options["num_parallel"].value == slots
    assert made.kv_cache is not None
    assert made.kv_cache.tokens == context * slots


def test_fewer_requests_at_once_where_more_do_not_fit() -> None:
    assert _plan("Llama-3.1-8B-Instruct", "RTX 4060", "0.6.0", free="6.2GiB").options["num_parallel"].value == 1
    assert _plan("Llama-3.1-8B-Instruct", "RTX 4060", "0.6.0", free="6.2GiB",
                 num_parallel=4).options["num_parallel"].value == 4  # fmt: skip


@pytest.mark.parametrize(
    ("name", "version", "own"),
    [("gemma-3-12b-it", "0.5.13", False), ("gemma-3-12b-it", "0.6.0", True), ("Qwen3-8B", "0.11.11", False),
     ("Qwen3-8B", "0.12.0", True), ("Qwen3-8B", "0.12.5", False), ("Qwen3-8B", "0.12.6", True),
     ("Llama-3.1-8B-Instruct", "0.24", False), ("gpt-oss-20b", "0.11.0", True), ("Qwen3.5-27B", "0.17.0", False),
     ("Qwen3.5-27B", "0.17.1", True)],
)  # fmt: skip
def test_which_engine_runs_what_goes_by_the_release(name: str, version: str, own: bool) -> None:
    made = _plan(name, "RTX 4090", version, mix=None if "oss" in name else "GGUF Q4_K_M")
    assert ("Ollama's own engine" in _said(made, "This release runs")) is own


def test_flash_attention_comes_by_itself_only_where_the_release_gives_it() -> None:
    assert _plan("Qwen3-8B", "RTX 4090", "0.12.3").options["flash_attention"].value is False
    assert _plan("Qwen3-8B", "RTX 4090", "0.12.4").options["flash_attention"].value is True
    without = _plan("Qwen3-8B", "RTX 4090", "0.9.0", kv_cache_type="q8_0")
    assert _said(without, "keeps the cache in f16")
    asked = _plan("Qwen3-8B", "RTX 4090", "0.9.0", kv_cache_type="q8_0", flash_attention=True)
    assert size(asked.devices[0], "kv_cache") < size(without.devices[0], "kv_cache")


def test_its_own_engine_keeps_cells_as_it_counts_them() -> None:
    """gemma3:1b at 4,096 tokens: 762.5 MiB of weights, 38.0 MiB of cache, 80.0 MiB of graph in a log of 0.13."""
    made = _plan("gemma-3-1b-it", "RTX 4060", "0.13.0", num_ctx=4096)
    gpu = made.devices[0]
    assert round(size(gpu, "weights") / MIB, 1) == 762.5
    assert round(size(gpu, "kv_cache") / MIB, 1) == 38.0
    graph = next(s.estimate for s in gpu.segments if s.kind == "compute")
    assert graph.low <= 80 * MIB <= graph.high


def test_windows_of_gpt_oss_are_kept_longer_by_its_own_engine() -> None:
    """kvcache.NewSWAMemCache(window, 4096) of model/models/gptoss: 4,096 cells and a batch for 12 of 24 layers."""
    made = _plan("gpt-oss-20b", "RTX 4060 Ti 16GB", "0.11.2", mix=None, num_ctx=8192)
    cells = sum(size(device, "kv_cache") for device in made.devices)
    assert cells == 12 * (8192 + 4096 + 512) * 8 * 128 * 2


def test_layers_are_placed_by_the_estimate() -> None:
    made = _plan("gpt-oss-20b", "RTX 4060 Ti 16GB", "0.11.2", mix=None, num_ctx=8192, free="15.6GiB")
    assert "23 of 25 layers" in _said(made, "This release runs")
    assert "layers.offload=23" in _said(made, "Its log would say")
    assert "kv=300.0 MiB" in _said(made, "Its log would say")
    assert _said(made, "ollama ps would show: 18 GB, 9%/91% CPU/GPU")


def test_asked_layers_are_placed_as_asked() -> None:
    made = _plan("Llama-3.1-8B-Instruct", "RTX 4060", "0.9.6", num_gpu=10)
    assert "10 of 33 layers" in _said(made, "This release runs")
    host = _plan("Llama-3.1-8B-Instruct", "RTX 4060", "0.9.6", num_gpu=0)
    assert [device.device.kind for device in host.devices] == ["host"]


def test_what_windows_may_not_move_to_ram_fails() -> None:
    asked: dict[str, Any] = {"mix": "GGUF Q8_0", "num_gpu": 99, "wddm": True}
    assert _plan("Qwen3-14B", "RTX 4060 Ti 16GB", "0.12.0", **asked).verdict.spilled is not None
    assert _plan("Qwen3-14B", "RTX 4060 Ti 16GB", "0.12.0", sysmem_fallback=False, **asked).fits is False


@pytest.mark.parametrize(
    ("layers", "room", "wanted", "expected"),
    [([10] * 4 + [5], [100], -1, (5,)), ([10] * 4 + [5], [32], -1, (3,)), ([10] * 4 + [5], [24, 24], -1, (2, 2)),
     ([10] * 4 + [5], [30, 24], -1, (3, 2)),
     ([10] * 4 + [5], [100, 100], -1, (5, 0)), ([10] * 4 + [5], [5], -1, (0,)), ([10] * 4 + [50], [40], -1, (4,)),
     ([10] * 4 + [5], [12], 3, (3,)), ([10] * 4 + [5], [], -1, ())],
)  # fmt: skip
def test_layers_fill_as_few_gpus_as_hold_them(
    layers: list[int], room: list[int], wanted: int, expected: tuple[int, ...]
) -> None:
    """findBestFit and greedyFit: from the last layer, evenly over the GPUs in use, without the output if need be."""
    assert lay_out(layers, room, wanted=wanted) == expected


def test_spread_uses_all_gpus() -> None:
    assert lay_out([10] * 4 + [5], [100, 100], spread=True) in ((2, 3), (3, 2))


def test_eras_stand_newest_first_and_releases_are_refused_where_nothing_is_known() -> None:
    firsts = [era.first for era in ERAS]
    assert firsts == sorted(firsts, reverse=True)
    assert era_of(None) is None
    assert era_of("0.30.1") is None
    with pytest.raises(BadInput, match="are not modelled"):
        era_of("0.4.7")
    with pytest.raises(BadInput, match="no release of Ollama"):
        era_of("latest")


@pytest.mark.parametrize("version", ["0.6.0", "0.9.6"])
def test_a_request_has_num_ctx_also_where_slots_share_cells(version: str) -> None:
    made = _plan("Qwen3-8B", "RTX 3090", version)
    context, slots = (made.options[name].value for name in ("num_ctx", "num_parallel"))
    assert isinstance(context, int)
    assert isinstance(slots, int)
    assert slots > 1
    assert made.kv_cache is not None
    assert (made.kv_cache.tokens, made.kv_cache.context_length) == (context * slots, context)
    assert made.kv_cache.max_concurrency == made.limits.max_concurrent_requests == slots
