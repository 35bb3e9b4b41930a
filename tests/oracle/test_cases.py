"""Defaults, groups, blocks, printed tokens, concurrency, refusals and suggested lengths against vLLM 0.33's own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kvplanner.catalog import models
from kvplanner.engine.request import PlanRequest
from kvplanner.engine.vllm.gpu import Gpu, gpu_of
from kvplanner.engine.vllm.kv import groups as kv_groups
from kvplanner.engine.vllm.kv import layout as kv_layout
from kvplanner.engine.vllm.kv import sizing as kv_sizing
from kvplanner.engine.vllm.kv.layout import CacheLayout
from kvplanner.engine.vllm.kv.sizing import KvSizing
from kvplanner.engine.vllm.releases import spelled
from kvplanner.engine.vllm.settings import Settings
from kvplanner.engine.vllm.settle import settle as defaults
from kvplanner.errors import BadInput
from kvplanner.model.model import Model
from kvplanner.model.served import served_by
from kvplanner.units import GIB
from tests.oracle import cases

HEAD, CASES = cases.read("cases.jsonl")
REFUSALS = cases.read("refusals.jsonl")[1]
KINDS = {"FullAttention": "full", "SlidingWindow": "sliding", "ChunkedLocalAttention": "chunked", "MLAAttention": "mla",
         "Mamba": "state"}  # fmt: skip


# Every architecture whose cache is not modelled exactly; a plan says so and gives no verdict.
NOT_MODELLED = {
    "DeepseekV4ForCausalLM", "KimiK3ForConditionalGeneration", "MiniMaxM3ForCausalLM",
    "MiniMaxM3SparseForConditionalGeneration", "Step3p7FlashForCausalLM",
}  # fmt: skip


def _name(case: dict[str, Any]) -> str:
    return f"{case['case']}-{case['model'].rpartition('/')[2]}-tp{case['tp']}"


def _gpu(request: PlanRequest) -> Gpu:
    return gpu_of(request.machine.devices[0].gpu)


def _settled(case: dict[str, Any]) -> tuple[Settings, CacheLayout]:
    request = cases.request(case)
    settings = defaults.resolve(request)[0]
    return settings, kv_layout.plan_cache(
        request.model.spec, settings, _gpu(request), cases.stages(request.model, case["pp"])
    )


def _defaults(settings: Settings, layout: CacheLayout) -> dict[str, Any]:
    return {
        "dtype": settings.model.dtype,
        "quantization": settings.model.quantization,
        "max_model_len": settings.model.max_model_len,
        "max_num_batched_tokens": settings.scheduler.max_num_batched_tokens,
        "max_num_seqs": settings.scheduler.max_num_seqs,
        "kv_cache_dtype": settings.cache.dtype,
        "enable_prefix_caching": settings.cache.prefix_caching,
        "block_size": layout.block_size,
        "mamba_cache_mode": settings.cache.mamba_mode,
        "cudagraph_mode": settings.graphs.mode,
        "max_cudagraph_capture_size": max(settings.graphs.sizes, default=0),
        "num_cudagraph_capture_sizes": len(settings.graphs.sizes),
        "async_scheduling": settings.scheduler.async_scheduling,
    }


def _groups(layout: CacheLayout, length: int, stage: int = 0) -> list[list[Any]]:
    out: list[list[Any]] = []
    for table in layout.tables:
        page = table.page_bytes[stage] if table.mixed else table.spec.page_bytes
        kind = "UniformTypeKVCacheSpecs" if table.mixed else table.spec.kind
        blocks = kv_groups.blocks_of(table, layout.settings, length)
        entry = [table.layers[stage], kind, table.spec.block_size, page, blocks]
        if out and out[-1][1:] == entry:
            out[-1][0] += 1
        else:
            out.append([1, *entry])
    return out


def _compare(sizing: KvSizing, layout: CacheLayout, expected: dict[str, Any]) -> None:
    assert sizing.num_blocks == expected["blocks"]
    assert sizing.max_model_len == expected["length"]
    assert layout.block_size == expected["block_size"]
    groups = [[n, layers, KINDS.get(kind, kind), *rest] for n, layers, kind, *rest in expected["groups"]]
    assert _groups(layout, expected["length"]) == groups
    if expected["tokens"] is None:
        assert not layout.tables
        return
    assert sizing.bytes_per_block == tuple(expected["bytes_per_block"])
    assert sizing.tokens == expected["tokens"]
    assert sizing.max_concurrency == expected["concurrency"]


@pytest.mark.parametrize("case", CASES, ids=_name)
def test_cache(case: dict[str, Any]) -> None:
    settings, layout = _settled(case)
    assert layout.exact
    assert settings.attention_backend in case["backends"]
    for expected in case["kv"]:
        memory = (expected["available"],) * case["pp"]
        sizing = kv_sizing.size(layout, memory)
        if "error" not in expected:
            assert sizing.error is None
            _compare(sizing, layout, expected)
            continue
        length, need, usable, estimate = expected["error"]
        words = HEAD["too_small"]
        assert sizing.error == (
            f"{words['head']} ({length}), ({need} GiB{words['middle']}({usable} GiB)."
            f"{words['hint']}{estimate}.{words['tail']}"
        )
        assert sizing.estimated_max_model_len == estimate
        fitted = layout._replace(settings=settings._replace(model=settings.model._replace(auto_fit=True)))
        _compare(kv_sizing.size(fitted, memory), fitted, expected["auto_fit"])


def test_resolved_defaults() -> None:
    wrong = []
    for case in CASES:
        mine = _defaults(*_settled(case))
        if "Llama-4" in case["model"]:
            # Once the back ends had their say: layers that attend in chunks build no whole-step graphs.
            assert mine["cudagraph_mode"] == "PIECEWISE"
            mine["cudagraph_mode"] = "FULL_AND_PIECEWISE"
        wrong += [
            (_name(case), name, mine[name], value) for name, value in case["defaults"].items() if mine[name] != value
        ]
    assert not wrong


@pytest.mark.parametrize("row", REFUSALS, ids=lambda r: f"{r['model'].rpartition('--')[2]}-{r['gpu']}")
def test_refusals(row: dict[str, Any]) -> None:
    with pytest.raises(BadInput) as raised:
        _settled({**row, "pp": 1})
    said = row["error"].removeprefix("ValueError: ")
    if said.startswith("max_model_len is greater"):
        assert "is greater than the derived max_model_len" in raised.value.what
        assert raised.value.where == "--max-model-len"
        return
    assert raised.value.what.split(" with ")[0].split(" on ")[0] == said.split(" for cuda")[0].split(" on ")[0] or (
        raised.value.what.startswith("No valid attention backend found")
        and said.startswith("No valid attention backend found")
    )


def test_kimi_linear_report_of_late_2025() -> None:
    """A public log of November 2025: TP 2, 2.30 GiB, 75,840 tokens, 2.48 requests of 120,000, 5.00 % padding."""
    model = cases.model("moonshotai/Kimi-Linear-48B-A3B-Instruct")
    options = {"tensor_parallel_size": 2, "max_model_len": 120000}
    request = PlanRequest(model, cases.machine("H100", 2), version="0.11.2", options=options)
    layout = kv_layout.plan_cache(model.spec, defaults.resolve(request)[0], _gpu(request), cases.stages(model, 1))
    sizings = [kv_sizing.size(layout, (int(gib * GIB),)) for gib in (2.2951, 2.2975, 2.2999)]
    assert {s.tokens for s in sizings} == {75_840}
    assert {round(s.max_concurrency, 2) for s in sizings} == {2.48}
    assert [g.padding_layers / 20 for g in layout.groups if g.padding_layers] == [0.05]


def _one_of_each_architecture() -> Iterator[Model]:
    """The first model of each architecture whose tensors are known."""
    seen = set()
    for entry in models.index():
        if entry.architecture not in seen and (model := cases.model(entry.id)).inventory is not None:
            seen.add(entry.architecture)
            yield model


def test_what_is_not_modelled_is_named() -> None:
    found = set()
    for model in _one_of_each_architecture():
        name = model.spec.architecture
        known = served_by(name)
        last = known.last if known is not None else None
        version = None if last is None else spelled(last)
        request = PlanRequest(model, cases.machine("H100"), version=version)
        layout = kv_layout.plan_cache(model.spec, defaults.resolve(request)[0], _gpu(request), cases.stages(model, 1))
        found |= set() if layout.exact else {name}
    assert found == NOT_MODELLED
