"""What people take for its opposite is said where it occurs: in the log that shows it, in a plan that runs into it."""

from __future__ import annotations

from typing import Any

import pytest

from kvplanner.catalog import gpus, models
from kvplanner.engine.plan import Plan
from kvplanner.engine.registry import engine
from kvplanner.engine.request import PlanRequest
from kvplanner.report import text as plan_text
from kvplanner.report.pitfalls import hints
from kvplanner.units import GIB
from tests.diagnose.kit import BAR, CORE, ERROR, LLAMA, LOADED, LOADING, NO_ROOM, OOM, SIZED, STARTED, log

FULL = (f"{ERROR}ValueError: Free memory on device cuda:0 (9.50/23.52 GiB) on startup is less than desired GPU memory "
        "utilization (0.9, 21.17 GiB).")  # fmt: skip
GAPS = OOM + (" Including non-PyTorch memory, this process has 23.43 GiB memory in use. Of the allocated memory 20.00 "
              "GiB is allocated by PyTorch, and 2.31 GiB is reserved by PyTorch but unallocated.")  # fmt: skip
STATES = (f"{ERROR}ValueError: max_num_seqs (1024) exceeds available Mamba cache blocks (969). Each decode sequence "
          "requires one Mamba cache block, so CUDA graph capture cannot proceed.")  # fmt: skip
BLOCK = f"{CORE}Setting attention block size to 1072 tokens to ensure that attention page size is >= mamba page size."
PRINTED = (
    f"{CORE}GPU KV cache size: 200,000 tokens",
    f"{CORE}Maximum concurrency for 8,192 tokens per request: 61.00x",
)

LOGS: dict[str, tuple[str, dict[str, Any], tuple[str, ...], str]] = {
    "a lower utilisation": ("0.24.0", {"gpu_memory_utilization": 0.5}, (LOADING, LOADED, *NO_ROOM), "in all"),
    "a full GPU": ("0.24.0", {"gpu_memory_utilization": 1.0}, (LOADING, LOADED, SIZED, BAR, OOM), "next to nothing"),
    "state blocks": ("0.24.0", {}, (LOADING, LOADED, SIZED, STATES), "a block of its own"),
    "two servers": ("0.24.0", {}, (FULL,), "two servers on one GPU"),
    "leftovers": ("0.24.0", {}, (FULL,), "killed one"),
    "fragmentation": ("0.24.0", {}, (LOADING, LOADED, SIZED, BAR, STARTED, GAPS), "is fragmentation"),
    "a shorter context": ("0.7.3", {"max_model_len": 30_000}, (LOADING, LOADED, OOM), "longer context may start"),
    "fp8 on hybrids": ("0.24.0", {"kv_cache_dtype": "fp8"}, (BLOCK, LOADED, SIZED, STARTED), "hardly more requests"),
    "printed tokens": ("0.24.0", {}, (LOADED, *PRINTED, STARTED), "499,712"),
}  # fmt: skip


@pytest.mark.parametrize("name", LOGS)
def test_a_log_says_it(name: str) -> None:
    version, options, lines, words = LOGS[name]
    assert any(words in hint for hint in hints(log(LLAMA, version, options, *lines)))


def test_a_plain_start_says_none_of_it() -> None:
    started = log(LLAMA, "0.24.0", {"max_model_len": 8192}, LOADING, LOADED, SIZED, BAR, STARTED)
    assert list(hints(started)) == []


HYBRID = "Qwen/Qwen3-Next-80B-A3B-Instruct"


def plan(model: str, gpu: str, version: str, options: dict[str, Any], free: int | None = None, others: int = 1) -> Plan:
    machine = gpus.machine(gpu)
    if free is not None:
        machine = machine._replace(devices=tuple(d._replace(free_bytes=free) for d in machine.devices))
    return engine("vllm").plan(PlanRequest(models.load(model), machine, "vllm", version, options))


PLANS: dict[str, tuple[str, str, str, dict[str, Any], int | None, str]] = {
    "a lower utilisation": (LLAMA, "RTX 4090", "0.24.0", {"max_model_len": 8192, "gpu_memory_utilization": 0.5}, None,
                            "in all"),
    "a full GPU": (LLAMA, "RTX 4090", "0.8.5", {"max_model_len": 8192, "gpu_memory_utilization": 1.0}, None,
                   "nearly the whole GPU"),
    "a full GPU, checked": (LLAMA, "RTX 4090", "0.24.0", {"max_model_len": 8192, "gpu_memory_utilization": 1.0}, None,
                            "Not even an empty GPU"),
    "state blocks": (HYBRID, "2xH200", "0.24.0", {"max_model_len": 8192, "tensor_parallel_size": 2,
                                                  "max_num_seqs": 8192}, None, "a state block each"),
    "two servers": (LLAMA, "RTX 4090", "0.24.0", {"max_model_len": 8192}, 9 * GIB, "beside another server"),
    "leftovers": (LLAMA, "RTX 4090", "0.24.0", {"max_model_len": 8192}, 9 * GIB, "killed one"),
    "a shorter context": ("Qwen/Qwen2.5-7B-Instruct", "RTX 4090", "0.7.3", {"max_model_len": 32_000,
                          "gpu_memory_utilization": 0.75}, None, "longer context may start"),
}  # fmt: skip


@pytest.mark.parametrize("name", PLANS)
def test_a_plan_says_it(name: str) -> None:
    model, gpu, version, options, free, words = PLANS[name]
    made = plan(model, gpu, version, options, free)
    assert made.fits is False, made.verdict
    assert words in " ".join(plan_text.text(made, width=4000).split())


@pytest.mark.parametrize(("model", "options", "words"), [
    (HYBRID, {"kv_cache_dtype": "fp8"}, "recurrent state keeps its own dtype"),
    ("google/gemma-3-27b-it", {}, "printed token figure"),
], ids=["fp8 on hybrids", "printed tokens"])  # fmt: skip
def test_a_plan_explains_what_the_engine_will_print(model: str, options: dict[str, Any], words: str) -> None:
    made = plan(model, "2xH200", "0.24.0", {"max_model_len": 8192, "tensor_parallel_size": 2, **options})
    assert words in " ".join(plan_text.explain(made, ("kv_cache",)).split())


def test_a_plan_tells_fragmentation_apart_from_what_is_lacking() -> None:
    little = plan(LLAMA, "RTX 4090", "0.11.0", {"max_model_len": 8192, "gpu_memory_utilization": 0.97})
    much = plan(LLAMA, "RTX 4090", "0.11.0", {"max_model_len": 8192, "gpu_memory_utilization": 0.99})
    assert little.stage == much.stage == "runtime"
    assert any("that is fragmentation" in words for words in little.warnings)
    assert not any("fragmentation" in words for words in much.warnings)
