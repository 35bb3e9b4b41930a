"""Older releases against their own code: defaults, runner, graphs, back ends, blocks, tokens, errors and weights."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from kvplanner.engine.request import PlanRequest
from kvplanner.engine.vllm.gpu import gpu_of
from kvplanner.engine.vllm.kv import layout as kv_layout
from kvplanner.engine.vllm.kv import sizing as kv_sizing
from kvplanner.engine.vllm.kv.layout import CacheLayout
from kvplanner.engine.vllm.settings import Settings
from kvplanner.engine.vllm.settle import settle
from kvplanner.engine.vllm.weights import rank as weights
from kvplanner.errors import BadInput
from tests.oracle import cases

pytestmark = pytest.mark.slow

HEAD, CASES = cases.read("eras.jsonl")
RELEASES = ("0.20.2", "0.24.0", "0.28.0")
# The least share of figures that are equal, of each release.
LEAST = 0.995
# Parameters that packed weights and gathered copies make differ by a little, whatever counts as one.
_SHARE = 0.001
Figure = tuple[str, str, object, object]


# What a release builds in 16 bits and cannot load: its code runs without weights, a plan refuses it.
REFUSED = {("0.20.2", "nvidia/Qwen3.6-35B-A3B-NVFP4"): "does not find the names of quantized_layers"}


def _own(settings: Settings, layout: CacheLayout) -> dict[str, object]:
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
        "max_cudagraph_capture_size": max(settings.graphs.sizes, default=0),
        "num_cudagraph_capture_sizes": len(settings.graphs.sizes),
        "async_scheduling": settings.scheduler.async_scheduling,
        "gpu_memory_utilization": settings.cache.utilization,
        "use_v2_model_runner": settings.era.runner == "V2",
        "enable_chunked_prefill": settings.scheduler.chunked_prefill,
        "disable_hybrid_kv_cache_manager": not settings.cache.hybrid_manager,
    }


def _request(case: dict[str, Any]) -> PlanRequest:
    return cases.request(case)._replace(version=case["release"])


def _figures(case: dict[str, Any]) -> Iterator[tuple[str, object, object]]:
    """(what, planned, the engine's own) of everything that a case has."""
    request = _request(case)
    words = REFUSED.get((case["release"], case["model"]))
    if words is not None:
        with pytest.raises(BadInput, match=words):
            settle.resolve(request)
        return
    settings, gpu = settle.resolve(request)[0], gpu_of(request.machine.devices[0].gpu)
    layout = kv_layout.plan_cache(request.model.spec, settings, gpu, cases.stages(request.model, case["pp"]))
    own = _own(settings, layout)
    yield from ((name, own[name], value) for name, value in case["defaults"].items() if name in own)
    yield "graph mode", settings.graphs.mode, case["mode"]
    yield "back end", settings.attention_backend in case["backends"] or not case["backends"], True
    for expected in case["kv"]:
        yield from _sizing(case, settings, layout, expected)
    if case["processed"]:
        planned = weights.rank_weights(request.model, settings, gpu, 0).value
        low, high = sorted(case["weights"])
        yield "weights", low * (1 - _SHARE) <= planned <= high * (1 + _SHARE), True


def _sizing(
    case: dict[str, Any], settings: Settings, layout: CacheLayout, expected: dict[str, Any]
) -> Iterator[tuple[str, object, object]]:
    memory = (expected["available"],) * case["pp"]
    sizing = kv_sizing.size(layout, memory)
    if "error" in expected:
        length, need, usable, estimate = expected["error"]
        words = HEAD["too_small"][case["release"]]
        yield "error", sizing.error, (
            f"{words['head']} ({length}), ({need} GiB{words['middle']}({usable} GiB)."
            f"{words['hint']}{estimate}.{words['tail']}"
        )  # fmt: skip
        layout = layout._replace(settings=settings._replace(model=settings.model._replace(auto_fit=True)))
        sizing, expected = kv_sizing.size(layout, memory), expected["auto_fit"]
    else:
        yield "error", sizing.error, None
    yield "blocks", sizing.num_blocks, expected["blocks"]
    yield "length", sizing.max_model_len, expected["length"]
    yield "bytes per block", sizing.bytes_per_block, tuple(expected["bytes_per_block"])
    if expected["tokens"] is not None:
        yield "tokens", sizing.tokens, expected["tokens"]
        yield "concurrency", sizing.max_concurrency, expected["concurrency"]


@cache
def _all() -> dict[str, list[Figure]]:
    found: dict[str, list[Figure]] = {}
    for case in CASES:
        where = f"{case['model']} on {case['gpu']}, tp {case['tp']}, case {case['case']}"
        found.setdefault(case["release"], []).extend((where, *figure) for figure in _figures(case))
    return found


def test_every_release_is_there() -> None:
    assert sorted(_all()) == list(RELEASES)
    assert all(len(figures) > 2500 for figures in _all().values())


def test_nearly_all_figures_are_the_engines_own() -> None:
    for release, figures in _all().items():
        off = [figure for figure in figures if figure[2] != figure[3]]
        assert len(off) <= (1 - LEAST) * len(figures), (release, off[:20])
