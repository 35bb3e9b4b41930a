"""Each option that is declared to move memory moves some, on a model and a machine where it should."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import pytest

from kvplanner.catalog import gpus, models
from kvplanner.engine.option import OptionValue
from kvplanner.engine.registry import engine
from kvplanner.engine.request import PlanRequest
from kvplanner.engine.vllm.options import declared as options
from kvplanner.report.schema import to_json

VLLM = engine("vllm")
DENSE, EXPERTS, HYBRID = "meta-llama/Llama-3.1-8B-Instruct", "Qwen/Qwen3-30B-A3B", "Qwen/Qwen3-Next-80B-A3B-Instruct"
VISION, WINDOWS, LATENT = "Qwen/Qwen2.5-VL-7B-Instruct", "openai/gpt-oss-20b", "deepseek-ai/DeepSeek-V3"
CHUNKED = "meta-llama/Llama-4-Scout-17B-16E-Instruct"


class Case(NamedTuple):
    """A value, and where it shows: besides what other options."""

    value: OptionValue
    model: str = DENSE
    gpu: str = "H100"
    beside: Mapping[str, OptionValue] = {}
    version: str | None = None


ONE = {"tensor_parallel_size": 1}
CASES: dict[str, Case] = {
    "tensor_parallel_size": Case(1, gpu="2xH100"),
    "max_model_len": Case(8192),
    "hf_overrides": Case('{"max_position_embeddings": 8192}'),
    "rope_scaling": Case('{"rope_type": "linear", "factor": 2.0}', "Qwen/Qwen3-8B"),
    "max_num_seqs": Case(16),
    "max_num_batched_tokens": Case(32768),
    "kv_cache_dtype": Case("fp8"),
    "gpu_memory_utilization": Case(0.8),
    "enforce_eager": Case(True),
    "pipeline_parallel_size": Case(2, gpu="2xH100"),
    "data_parallel_size": Case(2, gpu="2xH100", beside=ONE),
    "enable_expert_parallel": Case(True, WINDOWS, "8xH100"),
    "decode_context_parallel_size": Case(2, LATENT, "8xH200", {"tensor_parallel_size": 8}),
    "prefill_context_parallel_size": Case(2, EXPERTS, "2xH100", ONE),
    "enable_eplb": Case(True, EXPERTS, "2xH100", {"enable_expert_parallel": True, "num_redundant_experts": 8}),
    "num_redundant_experts": Case(8, EXPERTS, "2xH100", {"enable_expert_parallel": True, "enable_eplb": True}),
    "all2all_backend": Case("deepep_low_latency", EXPERTS, "2xH100",
                            {"data_parallel_size": 2, "enable_expert_parallel": True}),
    "disable_custom_all_reduce": Case(True, gpu="2xH100"),
    "enable_dbo": Case(True, EXPERTS, "2xH100", {"data_parallel_size": 2, "enable_expert_parallel": True}),
    "kv_cache_memory_bytes": Case(20 << 30),
    "num_gpu_blocks_override": Case(10_000),
    "block_size": Case(64),
    "enable_prefix_caching": Case(False, HYBRID, "4xH100"),
    "kv_cache_dtype_skip_layers": Case("0,1", beside={"kv_cache_dtype": "int8_per_token_head"}),
    "disable_hybrid_kv_cache_manager": Case(True, WINDOWS),
    "chunked_attention_in_hybrid_cache": Case(False, CHUNKED, "4xH100"),
    "enable_chunked_prefill": Case(False),
    "async_scheduling": Case(False, WINDOWS),
    "performance_mode": Case("throughput"),
    "attention_backend": Case("FLASHMLA", LATENT, "8xB200"),
    "cudagraph_mode": Case("NONE"),
    "compilation_mode": Case("0"),
    "max_cudagraph_capture_size": Case(16),
    "cudagraph_capture_sizes": Case("1,2,4"),
    "optimization_level": Case("0"),
    "mamba_cache_dtype": Case("float32", HYBRID, "4xH100"),
    "mamba_ssm_cache_dtype": Case("float32", HYBRID, "4xH100"),
    "mamba_block_size": Case(1024, HYBRID, "4xH100", {"enable_prefix_caching": False}),
    "mamba_cache_mode": Case("none", HYBRID, "4xH100"),
    "dtype": Case("float32"),
    "quantization": Case("fp8"),
    "cpu_offload_gb": Case(4.0),
    "kv_offloading_size": Case(20.0),
    "swap_space": Case(16.0, version="0.7.3"),
    "host_memory": Case(64 << 30, beside={"cpu_offload_gb": 4.0}),
    "language_model_only": Case(True, VISION),
    "limit_mm_per_prompt": Case('{"image": 0, "video": 0}', VISION),
    "skip_mm_profiling": Case(True, VISION),
    "mm_encoder_tp_mode": Case("data", VISION, "2xH100"),
    "mm_ipc_gpu_memory_gb": Case(2.0),
    "speculative_method": Case("eagle3"),
    "num_speculative_tokens": Case(5, beside={"speculative_method": "ngram"}),
    "enable_lora": Case(True),
    "max_loras": Case(4, beside={"enable_lora": True}),
    "max_lora_rank": Case(64, beside={"enable_lora": True}),
    "usage": Case("llm"),
    "v2_model_runner": Case(False),
    "estimate_cuda_graphs": Case(False),
    "compile_cache": Case("warm", beside={"max_num_seqs": 16}),
    "pytorch_alloc_conf": Case("expandable_segments:True"),
    "pp_layer_partition": Case("20,12", gpu="2xH100", beside={"pipeline_parallel_size": 2}),
}  # fmt: skip
# Read before a plan is made: the model's file is opened by it.
BEFORE = {"speculative_model"}


def planned(case: Case, given: Mapping[str, OptionValue]) -> dict[str, object]:
    request = PlanRequest(models.load(case.model), gpus.machine(case.gpu), version=case.version, options=given)
    document = to_json(VLLM.plan(request))
    return {key: document[key] for key in ("devices", "kv_cache", "limits", "replicas")}


@pytest.mark.parametrize("name", [o.name for o in options.declared() if o.moves and o.name not in BEFORE])
def test_an_option_that_moves_memory_moves_some(name: str) -> None:
    case = CASES[name]
    assert planned(case, case.beside) != planned(case, {**case.beside, name: case.value})
