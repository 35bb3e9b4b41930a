"""SGLang's logs are read by the common reader; every line here is written by hand from the grammar."""

from __future__ import annotations

import json
from io import BytesIO

import pytest

from kvplanner.catalog import gpus, models
from kvplanner.diagnose.diagnosis import Diagnosis, diagnose, request_of
from kvplanner.engine.registry import engine
from kvplanner.report import diagnosis as report
from kvplanner.units import GIB

ARGS = (
    "server_args=ServerArgs(model_path='meta-llama/Llama-3.1-8B-Instruct', tokenizer_mode='auto', tp_size={tp}, "
    "context_length=None, mem_fraction_static=0.83, max_running_requests=None, chunked_prefill_size=8192, page_size=1, "
    "disable_radix_cache=False, kv_cache_dtype='auto')"
)
SUMMARY = (
    "max_total_num_tokens={tokens}, chunked_prefill_size=8192, max_prefill_tokens=16384, max_running_requests=2048, "
    "context_len=131072, available_gpu_mem=11.90 GB"
)
OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.18 GiB "
    "of which 1.25 GiB is free. Of the allocated memory 70.00 GiB is allocated by PyTorch, and 1.00 GiB is reserved by "
    "PyTorch but unallocated."
)
BEGIN, LOADED = (
    "Load weight begin. avail mem=78.53 GB",
    "Load weight end. elapsed=4.20 s, type=LlamaForCausalLM, quant=none, avail mem=63.49 GB, mem usage=15.04 GB.",
)
OLD_LOADED = "Load weight end. type=LlamaForCausalLM, dtype=torch.bfloat16, avail mem=63.49 GB, mem usage=15.04 GB."
POOL = "KV Cache is allocated. dtype: torch.bfloat16, #tokens: 410754, K size: 25.07 GB, V size: 25.07 GB"
OLD_POOL = "KV Cache is allocated. #tokens: 410754, K size: 25.07 GB, V size: 25.07 GB"
SIZED = "Memory pool end. avail mem=12.20 GB"
DECODE = (
    "Capture target decode CUDA graph begin. This can take up to several minutes. avail mem=12.10 GB",
    "Capture target decode CUDA graph end. Time elapsed: 8.10 s. mem usage=1.50 GB, avail mem=10.60 GB.",
)
PREFILL = "Capture target prefill CUDA graph end. Time elapsed: 3.00 s. mem usage=0.75 GB, avail mem=11.90 GB."
OLD_DECODE = (
    "Capture cuda graph begin. This can take up to several minutes. avail mem=12.10 GB",
    "Capture cuda graph end. Time elapsed: 8.10 s. mem usage=1.50 GB. avail mem=10.60 GB.",
)
READY = "The server is fired up and ready to roll!"


def of(*lines: str, tag: str = "", tp: int = 1) -> Diagnosis:
    """The diagnosis of a log of these lines after the arguments."""
    stamp = f"[2026-08-15 10:00:00{tag}] "
    text = "\n".join([f"[2026-08-15 09:59:58] {ARGS.format(tp=tp)}", *(stamp + line for line in lines)]) + "\n"
    return diagnose(BytesIO(text.encode()).read)


def gib(found: Diagnosis, name: str) -> float:
    size = found.size(name)
    assert size is not None, name
    return size / GIB


@pytest.mark.parametrize(
    "lines",
    [(BEGIN, OLD_LOADED, OLD_POOL, SIZED, *OLD_DECODE, SUMMARY.format(tokens=410754), READY),
     (BEGIN, LOADED, POOL, SIZED, *DECODE, PREFILL, SUMMARY.format(tokens=410754), READY)],
    ids=["0.5.9", "0.5.23"],
)  # fmt: skip
def test_a_start_gives_its_figures(lines: tuple[str, ...]) -> None:
    found = of(*lines)
    assert (found.engine, found.model, found.stage) == ("sglang", "meta-llama/Llama-3.1-8B-Instruct", None)
    assert found.reading.started
    assert found.tokens == 410754
    assert found.options["mem_fraction_static"] == 0.83
    assert found.options["chunked_prefill_size"] == 8192
    assert gib(found, "weights") == pytest.approx(15.04)
    assert gib(found, "free_at_start") == pytest.approx(78.53)
    assert gib(found, "cuda_graphs") == pytest.approx(1.50)
    assert not found.problems
    assert report.text(found).startswith("SGLang started: KV cache for 410,754 tokens")
    assert json.loads(json.dumps(report.to_json(found)))["engine"]["name"] == "sglang"


@pytest.mark.parametrize(
    ("lines", "stage"),
    [
        ((BEGIN, OOM), "weights"),
        ((BEGIN, LOADED, "ValueError: Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static="
          "0.15. Raise --mem-fraction-static above 0.192 (minimum viable = 1 - available/pre = 0.1915)."),
         "kv_cache_sizing"),
        ((BEGIN, LOADED, "RuntimeError: Not enough GPU memory for hybrid (mamba/linear-attention) state cache."),
         "kv_cache_sizing"),
        ((BEGIN, LOADED, "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static."),
         "kv_cache_sizing"),
        ((BEGIN, LOADED, "ValueError: SWA pool (0 tokens) cannot hold even one request: the prefill admission floor"),
         "kv_cache_too_small"),
        ((BEGIN, LOADED, "RuntimeError: SWA pool cap (4096 tokens, 0.50 GiB) leaves no room for the full KV pool"),
         "kv_cache_too_small"),
        ((BEGIN, LOADED, "RuntimeError: Hybrid (mamba/linear-attention) state cache is too small to serve any "
          "requests."), "kv_cache_too_small"),
        ((BEGIN, LOADED, OOM), "kv_cache_allocation"),
        ((BEGIN, LOADED, POOL, SIZED, DECODE[0], OOM), "graph_capture"),
        ((BEGIN, LOADED, POOL, SIZED, DECODE[0], "Exception: Capture cuda graph failed: CUDA out of memory."),
         "graph_capture"),
        ((BEGIN, LOADED, POOL, SIZED, *DECODE, SUMMARY.format(tokens=410754), OOM), "runtime"),
        ((BEGIN, LOADED, POOL, SIZED, *DECODE, SUMMARY.format(tokens=410754), READY, OOM), "runtime"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("tag", ["", " TP0", " DP0 TP1 EP1"])
def test_failures_belong_to_their_stage(lines: tuple[str, ...], stage: str, tag: str) -> None:
    found = of(*lines, tag=tag)
    assert found.stage == stage
    assert report.text(found).startswith("SGLang fails ")


def test_the_least_fraction_is_read() -> None:
    found = of(BEGIN, LOADED, "Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static=0.15. "
               "Raise --mem-fraction-static above 0.192 (minimum viable = 1 - available/pre = 0.1915).")  # fmt: skip
    assert found.reading.ended is not None
    assert found.reading.ended.figures == {"budget_share": 0.15, "least_share": 0.1915}


def test_a_draft_and_window_pools_do_not_hide_the_model() -> None:
    draft = "Load weight end. elapsed=1 s, type=LlamaForCausalLMEagle3, avail mem=62.00 GB, mem usage=1.49 GB."
    windows = "Use sliding window memory pool. full_layer_tokens=100000, swa_layer_tokens=80000"
    found = of(BEGIN, LOADED, "Load weight begin. avail mem=63.49 GB", draft, windows, SIZED, READY)
    assert gib(found, "weights") == pytest.approx(15.04)
    assert found.tokens == 100_000


def test_ranks_are_told_apart() -> None:
    lines = [f"[2026-08-15 10:00:00 TP{rank}] Load weight end. elapsed=4 s, type=LlamaForCausalLM, quant=none, avail "
             f"mem={70 - rank}.00 GB, mem usage={8 + rank}.00 GB." for rank in range(2)]  # fmt: skip
    text = "\n".join([f"[2026-08-15 09:59:58] {ARGS.format(tp=2)}", *lines])
    found = diagnose(BytesIO(text.encode()).read)
    assert (gib(found, "weights"), gib(found, "free_after_load"), found.gpus) == (9, 69, 2)


def test_a_log_becomes_a_plan_of_its_own_options() -> None:
    found = of(BEGIN, LOADED, POOL, SIZED, *DECODE, SUMMARY.format(tokens=410754), READY)
    request = request_of(found, models.load("meta-llama/Llama-3.1-8B-Instruct"), gpus.machine("H100"))
    plan = engine("sglang").plan(request)
    assert plan.kv_cache is not None
    assert plan.kv_cache.tokens == pytest.approx(410754, rel=0.01)
