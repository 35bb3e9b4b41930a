"""Everything that can be changed is offered somewhere, and nowhere where the engine refuses it: each is planned."""

from __future__ import annotations

from functools import cache
from typing import Final

import pytest

from kvplanner.catalog import gpus, models
from kvplanner.engine.option import OptionValue
from kvplanner.engine.registry import engine
from kvplanner.engine.request import Load, PlanRequest
from kvplanner.report.remedies import button, whole_button
from kvplanner.solve.others import others
from kvplanner.solve.remedies import Remedy, remedies

LLAMA, LARGE = "meta-llama/Llama-3.1-8B-Instruct", "meta-llama/Llama-3.3-70B-Instruct"
SEVERAL: Final = Load(32, 1500, 500)


def asked(
    model: str, gpu: str, options: dict[str, OptionValue] | None = None, load: Load | None = None,
    engine_: str = "vllm", weight_format: str | None = None,
) -> PlanRequest:  # fmt: skip
    return PlanRequest(
        models.load(model), gpus.machine(gpu), engine_, None, options or {}, load, weight_format=weight_format
    )


# Where each change is worth something, by the name of its lever. Whole experts on each GPU take as much as parts of
# all: they are offered where parts are refused, and by the best split.
OFFERED: Final[dict[str, PlanRequest]] = {
    "budget_share": asked(LLAMA, "H100", {"gpu_memory_utilization": 0.8}),
    "smaller_budget": asked("meta-llama/Llama-3.2-1B-Instruct", "A100-SXM4-80GB", {"max_model_len": 8192}, SEVERAL),
    "kv_bytes": asked("meta-llama/Llama-3.2-1B-Instruct", "A100-SXM4-80GB", {"max_model_len": 8192}, SEVERAL),
    "context": asked(LLAMA, "RTX 4090"),
    "max_requests": asked("Qwen/Qwen3.5-27B", "H100"),
    "step_tokens": asked(LLAMA, "RTX 4090", {"max_num_batched_tokens": 65_536}),
    "chunked_prefill": asked(LLAMA, "RTX 4090", {"enable_chunked_prefill": False}),
    "kv_dtype": asked(LLAMA, "H100", {"max_model_len": 65_536}),
    "eager": asked("openai/gpt-oss-120b", "H100"),
    "capture_sizes": asked("Qwen/Qwen3-Embedding-0.6B", "L4", {"gpu_memory_utilization": 0.3}),
    "tensor_parallel": asked(LARGE, "4xH100", {"tensor_parallel_size": 1}),
    "pipeline_parallel": asked(LARGE, "4xH100", {"tensor_parallel_size": 1}),
    "data_parallel": asked(LLAMA, "4xH100", {"tensor_parallel_size": 1}, SEVERAL),
    "gpus": asked(LARGE, "H100"),
    "sister": asked(LARGE, "H100"),
    "weight_format": asked("google/gemma-2b", "4GiB", engine_="sglang"),
    "online_quantization": asked("Qwen/Qwen3-32B", "H100"),
    "text_only": asked("Qwen/Qwen3.5-27B", "2xH100", {"max_num_seqs": 64}),
    "no_draft": asked("deepseek-ai/DeepSeek-V3", "8xH200", {"speculative_method": "mtp"}),
    "no_adapters": asked(LLAMA, "H100", {"enable_lora": True, "max_loras": 8, "max_lora_rank": 256}),
    "cpu_offload": asked("Qwen/Qwen3-32B", "RTX 4090"),
    "layer_partition": asked("Qwen/Qwen3-14B", "1xRTX 4080,1xRTX 5090",
                             {"pipeline_parallel_size": 2, "max_model_len": 32_768}),
    "no_prefix_caching": asked("Qwen/Qwen3.5-27B", "H200", {"max_num_seqs": 256}),
    "context_parallel": asked("deepseek-ai/DeepSeek-V3", "8xH200", {"tensor_parallel_size": 8}),
    "flash_attention": asked(LLAMA, "RTX 4090", {"flash_attn": "off"}, None, "llamacpp", "GGUF Q8_0"),
    "experts_on_host": asked("Qwen/Qwen3-30B-A3B", "RTX 4080", {"fit": "off", "n_gpu_layers": "99"}, None, "llamacpp",
                             "GGUF Q8_0"),
    "layers_on_host": asked("Qwen/Qwen3-32B", "RTX 4080", {"n_gpu_layers": "99"}, None, "llamacpp", "GGUF Q4_K_M"),
}  # fmt: skip


@cache
def ways(name: str) -> tuple[Remedy, ...]:
    request = OFFERED[name]
    return remedies(request, engine(request.engine).plan(request), others)


@pytest.mark.parametrize(
    ("name", "first"),
    [("gpus", "4 × H100 80GB HBM3"), ("sister", "…-NVFP4 instead"), ("context", "Context length"),
     ("cpu_offload", "Weights on the host")],
)  # fmt: skip
def test_a_button_has_room_for_what_counts(name: str, first: str) -> None:
    """Names without vendors and without what the model's own has; of several changes the one that costs most."""
    way = next(way for way in ways(name) if way.names[0] == name)
    shown = button(way, OFFERED[name].model.id)
    assert shown.startswith(first), shown
    assert len(way.changes) == 1 or " + " in shown


def test_buttons_side_by_side_name_what_differs_between_them() -> None:
    """A context of nearly the same length in all three says nothing of which is which; a wide button tells all."""
    request = asked("Qwen/Qwen3-VL-8B-Thinking-FP8", "RTX 4090", {"gpu_memory_utilization": 0.97}, Load(128, 500, 500))
    found = [way for way in remedies(request, engine("vllm").plan(request), others) if way.sure]
    same = [way._replace(changes=(found[1].changes[0], way.changes[-1])) for way in found if len(way.changes) == 2]
    shown = [button(way, request.model.id, same) for way in same]
    assert len(set(shown)) == len(same) > 1, shown
    assert not any(text.startswith("Context length") for text in shown)
    assert whole_button(same[0], request.model.id).startswith("Context length 59,840, ")


@pytest.mark.parametrize("name", OFFERED)
def test_each_change_is_offered_where_it_helps(name: str) -> None:
    found = [way for way in ways(name) if name in way.names]
    assert found, [way.names for way in ways(name)]
    assert all(engine(way.request.engine).plan(way.request).fits for way in found)
