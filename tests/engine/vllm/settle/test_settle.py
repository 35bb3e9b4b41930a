"""What vLLM settles on: batch limits, graphs, dtypes, lengths, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest

from kvplanner.engine.option import OptionValue
from kvplanner.errors import BadInput
from kvplanner.model.spec import Indexer
from tests.engine.vllm.kv.models import (
    A100,
    B200,
    H100,
    RTX4090,
    T4,
    Gpu,
    dense,
    full,
    gated,
    kimi_linear,
    latent,
    resolved,
    spec,
    windowed,
)


@pytest.mark.parametrize(
    ("gpu", "usage", "tokens", "sequences"),
    [
        (H100, "server", 8192, 1024), (H100, "llm", 16384, 1024), (A100, "server", 2048, 256), (A100, "llm", 8192, 256),
        (RTX4090, "server", 2048, 256), (B200, "server", 16384, 1024),
        (("NVIDIA GB10", 119, (12, 1)), "server", 2048, 256),
    ],
)  # fmt: skip
def test_batch_limits_by_gpu(gpu: Gpu, usage: str, tokens: int, sequences: int) -> None:
    settings, reasons, _ = resolved(dense(), {"usage": usage}, gpu)
    assert (settings.scheduler.max_num_batched_tokens, settings.scheduler.max_num_seqs) == (tokens, sequences)
    assert reasons["max_num_batched_tokens"].origin == "default"
    assert reasons["max_num_batched_tokens"].reason.startswith("from the GPU")


@pytest.mark.parametrize("options", [{}, {"enforce_eager": True}, {"tensor_parallel_size": 1}])
def test_no_reason_says_only_that_it_is_the_default(options: dict[str, OptionValue]) -> None:
    reasons = resolved(dense(), options)[1]
    assert {n: r.reason for n, r in reasons.items() if not r.reason or "default" in r.reason} == {}


def test_reasons_say_why() -> None:
    reasons = resolved(dense())[1]
    assert reasons["max_num_batched_tokens"].reason == "from the GPU: total ≥ 70 GiB and not an A100: 8,192"
    assert reasons["max_model_len"].reason == "the model's own limit"
    assert reasons["attention_backend"].origin == "derived"
    assert resolved(dense(), {"max_num_seqs": 8})[1]["max_num_seqs"].origin == "user"


def test_only_the_given_value_is_kept() -> None:
    settings = resolved(dense(), {"max_num_batched_tokens": 512})[0]
    assert (settings.scheduler.max_num_batched_tokens, settings.scheduler.max_num_seqs) == (512, 512)
    assert resolved(dense(), {"performance_mode": "throughput"})[0].scheduler.max_num_batched_tokens == 16384


def test_without_chunked_prefill_a_step_holds_a_prompt() -> None:
    settings = resolved(dense(), {"enable_chunked_prefill": False, "max_model_len": 32768})[0]
    assert settings.scheduler.max_num_batched_tokens == 32768
    with pytest.raises(BadInput, match="smaller than max_model_len"):
        resolved(dense(), {"enable_chunked_prefill": False, "max_num_batched_tokens": 4096})


@pytest.mark.parametrize(
    ("options", "gpu", "version", "count", "largest"),
    [
        ({}, H100, None, 51, 512), ({"max_num_seqs": 128}, H100, None, 35, 256), ({}, B200, None, 83, 1024),
        ({}, H100, "0.9.2", 67, 512), ({}, A100, "0.6.6", 35, 256), ({"enforce_eager": True}, H100, None, 0, 0),
        ({"cudagraph_capture_sizes": "1,2,4"}, H100, None, 3, 4),
        ({"max_cudagraph_capture_size": 64}, H100, None, 11, 64),
        ({"max_num_seqs": 20}, H100, None, 9, 40), ({"performance_mode": "interactivity"}, H100, None, 76, 512),
    ],
)  # fmt: skip
def test_graph_sizes(options: dict[str, int | str], gpu: Gpu, version: str | None, count: int, largest: int) -> None:
    sizes = resolved(dense(context_length=8192), options, gpu, version)[0].graphs.sizes
    assert (len(sizes), max(sizes, default=0)) == (count, largest)


def test_graph_modes() -> None:
    assert resolved(dense())[0].graphs.mode == "FULL_AND_PIECEWISE"
    assert resolved(dense(), {"optimization_level": "1"})[0].graphs.mode == "PIECEWISE"
    assert resolved(dense(), {"optimization_level": "0"})[0].graphs.mode == "NONE"
    assert resolved(dense(), {"cudagraph_mode": "FULL"})[0].graphs.mode == "FULL"


def test_prefix_caching_of_hybrids_by_version() -> None:
    assert resolved(gated())[0].cache.mamba_mode == "align"
    older = resolved(gated(), version="0.23.0")[0]
    assert (older.cache.prefix_caching, older.cache.mamba_mode) == (False, "none")
    assert resolved(gated(), {"enable_prefix_caching": True}, version="0.23.0")[0].cache.mamba_mode == "align"


def test_dtype_rules() -> None:
    assert resolved(dense(dtype="float32"))[0].model.dtype == "bfloat16"
    assert resolved(dense(dtype="float32", task="embed"))[0].model.dtype == "float16"
    assert resolved(dense(), gpu=T4)[0].model.dtype == "float16"
    with pytest.raises(BadInput, match=r"compute capability of at least 8\.0"):
        resolved(dense(), {"dtype": "bfloat16"}, T4)


def test_cache_dtype_of_the_checkpoint_is_honoured() -> None:
    assert resolved(dense(kv_cache_dtype="fp8"))[0].cache.dtype == "fp8"
    settings, reasons, _ = resolved(dense(kv_cache_dtype="fp8"), {"kv_cache_dtype": "auto"})
    assert (settings.cache.dtype, reasons["kv_cache_dtype"].origin) == ("fp8", "derived")
    assert resolved(dense(kv_cache_dtype="fp8"), {"kv_cache_dtype": "bfloat16"})[0].cache.dtype == "bfloat16"


def test_longrope_starts_below_its_limit() -> None:
    model = dense(default_context_length=4096)
    assert resolved(model)[0].model.max_model_len == 4096
    assert resolved(model, {"max_model_len": 100000})[0].model.max_model_len == 100000


def test_runner_and_graph_estimate_can_be_set() -> None:
    era = resolved(dense(), {"v2_model_runner": False}, version="0.26.0")[0].era
    assert (era.runner, era.graphs_in_budget) == ("V1", True)
    assert not resolved(dense(), {"estimate_cuda_graphs": False})[0].era.graphs_in_budget


@pytest.mark.parametrize(
    ("options", "where", "words"),
    [
        ({"max_model_len": 200000}, "--max-model-len", "is greater than the derived max_model_len"),
        ({"max_model_len": -2}, "--max-model-len", "is not a length"),
        ({"tensor_parallel_size": 3}, "--tensor-parallel-size", "must be divisible by tensor parallel size"),
        ({"gpu_memory_utilization": 1.5}, "--gpu-memory-utilization", "is not a share"),
        ({"pipeline_parallel_size": 40}, "--pipeline-parallel-size", "40 pipeline stages for 32 layers"),
        ({"pp_layer_partition": "16,17", "pipeline_parallel_size": 2}, "VLLM_PP_LAYER_PARTITION", "does not split"),
        ({"kv_cache_dtype": "float16"}, "--kv-cache-dtype", "must have the model's dtype"),
        ({"kv_cache_dtype": "fp6"}, "--kv-cache-dtype", "is not a KV cache dtype"),
        ({"kv_cache_dtype": "nvfp4"}, "--kv-cache-dtype", "No valid attention backend"),
        ({"kv_cache_dtype": "fp8_ds_mla"}, "--kv-cache-dtype", "No valid attention backend"),
        ({"attention_backend": "FLASHMLA"}, "--attention-backend", "non-MLA not supported"),
        ({"attention_backend": "FLASH_ATTN", "kv_cache_dtype": "fp8_e5m2"}, "--attention-backend", "kv_cache_dtype"),
        ({"cudagraph_mode": "SOME"}, "--compilation-config", "not a CUDA graph mode"),
        ({"cudagraph_capture_sizes": "1,x"}, "--cudagraph-capture-sizes", "not a list of batch sizes"),
        ({"dtype": "int8"}, "--dtype", "is not a dtype"),
        ({"attention_backend": "NOPE"}, "--attention-backend", "not an attention back end"),
        ({"decode_context_parallel_size": 2, "tensor_parallel_size": 8}, "--decode-context-parallel-size", "GQA"),
    ],
)  # fmt: skip
def test_refusals(options: dict[str, int | str | float], where: str, words: str) -> None:
    with pytest.raises(BadInput) as raised:
        resolved(dense(), options)
    assert raised.value.where == where
    assert words in raised.value.what


def test_heads_that_do_not_divide() -> None:
    with pytest.raises(BadInput, match="neither split nor copied"):
        resolved(spec([(full(24, 6),)]), {"tensor_parallel_size": 4})
    with pytest.raises(BadInput, match="State layers"):
        resolved(kimi_linear(), {"tensor_parallel_size": 64})


def test_windows_and_context_parallelism() -> None:
    with pytest.raises(BadInput, match="Sliding window"):
        resolved(windowed(2, 2), {"decode_context_parallel_size": 2, "tensor_parallel_size": 16})


def test_fp8_needs_a_kernel() -> None:
    image = windowed(2, 2, architecture="Gemma3ForConditionalGeneration", model_type="gemma3", multimodal=True)
    with pytest.raises(BadInput, match=r"FP8 KV cache is not supported by the Triton attention backend"):
        resolved(image, {"kv_cache_dtype": "fp8"}, A100)
    assert resolved(image, {"kv_cache_dtype": "fp8"}, H100)[0].attention_backend == "TRITON_ATTN"


@pytest.mark.parametrize(
    ("gpu", "dtype", "name"),
    [
        (H100, "auto", "FLASH_ATTN"), (H100, "fp8", "FLASH_ATTN"), (H100, "fp8_e5m2", "FLASHINFER"),
        (A100, "fp8", "FLASHINFER"),
        (B200, "auto", "FLASHINFER"), (T4, "auto", "TRITON_ATTN"), (H100, "int8_per_token_head", "TRITON_ATTN"),
        (H100, "turboquant_4bit_nc", "TURBOQUANT"),
    ],
)  # fmt: skip
def test_back_ends(gpu: Gpu, dtype: str, name: str) -> None:
    assert resolved(dense(), {"kv_cache_dtype": dtype}, gpu)[0].attention_backend == name


def test_sparse_latent_attention_needs_a_new_gpu() -> None:
    from kvplanner.model.spec import Indexer

    with pytest.raises(BadInput, match="No valid attention backend found"):
        resolved(latent(4, Indexer(64, 128, 2048)), gpu=A100)


def test_architectures_that_releases_dropped() -> None:
    old = dense(architecture="MllamaForConditionalGeneration")
    with pytest.raises(BadInput, match=r"was supported in vLLM until v0\.10\.2"):
        resolved(old)
    assert not resolved(old, version="0.10.2")[2]
    for name, last in (
        ("BaichuanForCausalLM", "0.23.0"),
        ("XverseForCausalLM", "0.23.0"),
        ("MptForCausalLM", "0.28.0"),
    ):
        with pytest.raises(BadInput, match=f"was supported in vLLM until v{last}"):
            resolved(dense(architecture=name))
        assert not resolved(dense(architecture=name), version=last)[2]


def test_unknown_limits_refuse_nothing() -> None:
    model = dense(context_length=None)
    assert resolved(model)[0].model.max_model_len == 2048
    assert resolved(model, {"max_model_len": 120000})[0].model.max_model_len == 120000


def test_batched_experts_take_few_tokens() -> None:
    options: dict[str, OptionValue] = {
        "data_parallel_size": 2,
        "enable_expert_parallel": True,
        "all2all_backend": "deepep_low_latency",
    }
    assert resolved(dense(), options)[0].scheduler.max_num_batched_tokens == 256


@pytest.mark.parametrize(
    ("dtype", "index", "gpu", "taken"),
    [
        ("nvfp4", None, B200, ""), ("nvfp4_4over6", None, B200, ""), ("fp8_ds_mla", None, H100, ""),
        ("nvfp4_ds_mla", Indexer(64, 128, 2048), H100, ""),
        ("nvfp4_ds_mla", Indexer(64, 128, 2048), B200, "FLASHMLA_SPARSE"),
        ("fp8_ds_mla", Indexer(64, 128, 2048), H100, "FLASHMLA_SPARSE"), ("fp8", None, H100, "FLASHMLA"),
    ],
)  # fmt: skip
def test_formats_of_a_latent_cache(dtype: str, index: Indexer | None, gpu: Gpu, taken: str) -> None:
    """supported_kv_cache_dtypes of v1/attention/backends/mla/*.py, 0.33."""
    if not taken:
        with pytest.raises(BadInput, match="No valid attention backend"):
            resolved(latent(index=index), {"kv_cache_dtype": dtype}, gpu)
        return
    assert resolved(latent(index=index), {"kv_cache_dtype": dtype}, gpu)[0].attention_backend == taken


def test_images_that_see_each_other() -> None:
    gemma: dict[str, Any] = {
        "architecture": "Gemma4ForConditionalGeneration",
        "model_type": "gemma4_text",
        "multimodal": True,
    }
    wide = spec([(full(32, 16, 256, window=1024),)] * 5 + [(full(32, 4, 512),)], **gemma)
    assert resolved(wide)[0].attention_backend == "TRITON_FLASH_ATTN"
    assert resolved(wide, gpu=RTX4090)[0].scheduler.max_num_batched_tokens == 2496
    assert resolved(wide, {"language_model_only": True}, RTX4090)[0].scheduler.max_num_batched_tokens == 2048
    small = spec([(full(8, 2, 256, window=512),)] * 5 + [(full(8, 2, 512, owns_cache=False),)], **gemma)
    assert resolved(small, gpu=B200)[0].attention_backend == "TRITON_ATTN"
