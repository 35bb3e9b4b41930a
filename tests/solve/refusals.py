"""A request for every place where an engine refuses to plan: what is walked to see that none is a dead end.

A place is a raise statement under kvplanner/engine that a request can come to, by file, function and its number there.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

import kvplanner.engine
from kvplanner.catalog import gpus, models
from kvplanner.engine.option import OptionValue
from kvplanner.engine.registry import engine
from kvplanner.engine.request import PlanRequest
from kvplanner.errors import PlannerError

ROOT: Final = Path(kvplanner.engine.__file__).parent
LLAMA, QWEN, GEMMA = "meta-llama/Llama-3.1-8B-Instruct", "Qwen/Qwen3-8B", "google/gemma-3-27b-it"
HYBRID, LATENT, SPARSE = "Qwen/Qwen3.5-27B", "deepseek-ai/DeepSeek-V2-Lite", "deepseek-ai/DeepSeek-V3.2"
YARN: Final = '{"rope_type": "yarn", "factor": %s}'
TWO_KV_HEADS: Final = "Qwen/Qwen2.5-3B"

Place = tuple[str, str, int]


class Refused(NamedTuple):
    """A request that is refused. bare: of a model whose tensors are not known. draft: a draft model's id."""

    engine: str
    model: str
    gpu: str = "H100"
    options: Mapping[str, OptionValue] = MappingProxyType({})
    version: str | None = None
    weight_format: str | None = None
    bare: bool = False
    draft: str = ""

    def request(self) -> PlanRequest:
        """The request; of no GPU where none is named."""
        model = models.load(self.model)
        model = model._replace(inventory=None) if self.bare else model
        machine = gpus.machine(self.gpu or "H100")
        machine = machine if self.gpu else machine._replace(devices=())
        draft = models.load(self.draft) if self.draft else None
        return PlanRequest(model, machine, self.engine, self.version, self.options,
                           weight_format=self.weight_format, draft=draft)  # fmt: skip


def refused(case: Refused) -> tuple[PlanRequest, PlannerError]:
    """A case's request with what its engine says."""
    request = case.request()
    try:
        engine(case.engine).plan(request)
    except PlannerError as error:
        return request, error
    raise AssertionError(f"planned: {case}")


def _vllm(options: dict[str, OptionValue], model: str = LLAMA, gpu: str = "H100", **more: str | bool) -> Refused:
    return Refused("vllm", model, gpu, options, **more)  # type: ignore[arg-type]  # fields of the case, by name


def _sglang(options: dict[str, OptionValue], model: str = LLAMA, gpu: str = "H100", **more: str | bool) -> Refused:
    return Refused("sglang", model, gpu, options, **more)  # type: ignore[arg-type]  # fields of the case, by name


def _llamacpp(options: dict[str, OptionValue], model: str = LLAMA, gpu: str = "H100", **more: str | bool) -> Refused:
    return Refused("llamacpp", model, gpu, options, **more)  # type: ignore[arg-type]  # fields of the case, by name


CASES: Final[tuple[Refused, ...]] = (
    # What no engine plans -----------------------------------------------------------------------------------------
    _vllm({}, weight_format="FP8", bare=True),
    _vllm({}, weight_format="FP3"),
    _llamacpp({}, weight_format="INT8"),
    _vllm({"max_cudagraph_capture_size": 10**9}),
    # vLLM ---------------------------------------------------------------------------------------------------------
    _vllm({}, gpu=""),
    _vllm({}, bare=True),
    _vllm({}, version="abc"),
    _vllm({}, HYBRID, version="0.9"),
    _vllm({}, "Qwen/Qwen3-8B-MLX-8bit"),
    _vllm({}, "microsoft/Phi-3-small-8k-instruct"),
    _vllm({}, "Qwen/Qwen3-8B-FP8", "V100 16GB"),
    _vllm({}, weight_format="NVFP4", version="0.6.6"),
    _vllm({"max_model_len": 50_000}, QWEN),
    _vllm({"max_model_len": 0}, QWEN),
    _vllm({"tensor_parallel_size": 4}, gpu="2xH100"),
    _vllm({"tensor_parallel_size": 3}, gpu="4xH100"),
    _vllm({"tensor_parallel_size": 7}, "Qwen/Qwen2.5-7B-Instruct", "8xH100"),
    _vllm({"tensor_parallel_size": 28}, "Qwen/Qwen2.5-7B-Instruct", "32xH200"),
    _vllm({"tensor_parallel_size": 8}, "allenai/Olmo-Hybrid-Instruct-SFT-7B", "8xH100"),
    _vllm({"tensor_parallel_size": 8}, "Qwen/Qwen3-235B-A22B-FP8", "8xH100", version="0.11"),
    _vllm({"pipeline_parallel_size": 64}, "HuggingFaceTB/SmolLM2-135M-Instruct", "64xH100"),
    _vllm({"pipeline_parallel_size": 2, "pp_layer_partition": "a,b"}, gpu="2xH100"),
    _vllm({"pipeline_parallel_size": 2, "pp_layer_partition": "20,20"}, gpu="2xH100"),
    _vllm({"decode_context_parallel_size": 4}, gpu="2xH100"),
    _vllm({"decode_context_parallel_size": 2}, "openai/gpt-oss-20b", "2xH100"),
    _vllm({"decode_context_parallel_size": 2}, gpu="2xH100"),
    _vllm({"max_num_batched_tokens": 1000, "enable_chunked_prefill": False}),
    _vllm({"max_num_batched_tokens": 128, "max_num_seqs": 256}),
    _vllm({"dtype": "bfloat16"}, gpu="T4"),
    _vllm({"dtype": "float16"}, "google/gemma-3-4b-it"),
    _vllm({"dtype": "float32"}, "Qwen/Qwen3-8B-AWQ"),
    _vllm({"kv_cache_dtype": "float16"}),
    _vllm({"kv_cache_dtype": "nvfp4"}, version="0.8"),
    _vllm({"kv_cache_dtype": "fp8"}, gpu="T4"),
    _vllm({"kv_cache_dtype": "nvfp4"}),
    _vllm({"kv_cache_dtype": "nvfp4_ds_mla"}),
    _vllm({"kv_cache_dtype": "nvfp4"}, LATENT),
    _vllm({"kv_cache_dtype": "nvfp4_ds_mla"}, LATENT),
    _vllm({"kv_cache_dtype": "turboquant_k8v4"}, "deepseek-ai/DeepSeek-V4-Flash"),
    _vllm({}, SPARSE, "8xA100-SXM4-80GB"),
    _vllm({"kv_cache_dtype_skip_layers": "99"}),
    _vllm({"block_size": 3}),
    _vllm({"attention_backend": "FASTEST"}),
    _vllm({"attention_backend": "FLASHMLA"}),
    _vllm({"cudagraph_capture_sizes": "many"}),
    _vllm({"cudagraph_capture_sizes": "1,2,4", "max_cudagraph_capture_size": 8}),
    _vllm({"limit_mm_per_prompt": "many"}, GEMMA),
    _vllm({"hf_overrides": "{"}, QWEN),
    _vllm({"hf_overrides": "[1]"}, QWEN),
    _vllm({"hf_overrides": '{"num_hidden_layers": 4}'}, QWEN),
    _vllm({"hf_overrides": '{"architectures": ["Other"]}'}, QWEN),
    _vllm({"hf_overrides": '{"max_position_embeddings": "x"}'}, QWEN),
    _vllm({"rope_scaling": YARN % '"x"'}, QWEN),
    _vllm({"rope_scaling": YARN % "2.0"}, QWEN, version="0.9"),
    _vllm({"quantization": "torchao"}),
    _vllm({"quantization": "squeeze"}),
    _vllm({"quantization": "fp8"}, "Qwen/Qwen3-8B-AWQ"),
    _vllm({"quantization": "awq"}),
    _vllm({"quantization": "fp8_per_block"}, version="0.11"),
    _vllm({"num_speculative_tokens": 3}),
    _vllm({"speculative_method": "mtp"}),
    _vllm({"speculative_method": "ngram", "num_speculative_tokens": 0}),
    _vllm({"speculative_model": "nobody/nothing"}),
    _vllm({"speculative_method": "ngram", "use_heterogeneous_vocab": True}),
    _vllm({"speculative_model": QWEN, "speculative_method": "draft_model"}, draft=QWEN),
    _vllm({"speculative_model": LLAMA, "speculative_method": "draft_model"}, draft=LLAMA, version="0.11"),
    _vllm({"speculative_model": GEMMA, "speculative_method": "draft_model"}, GEMMA, draft=GEMMA, version="0.16"),
    _vllm({"speculative_model": LLAMA, "speculative_method": "draft_model", "draft_tensor_parallel_size": 3},
          gpu="2xH100", draft=LLAMA),
    _vllm({"speculative_model": LLAMA, "speculative_method": "draft_model", "draft_tensor_parallel_size": 1},
          gpu="2xH100", draft=LLAMA),
    _vllm({"speculative_model": LLAMA, "speculative_method": "draft_model", "draft_tensor_parallel_size": 1},
          gpu="2xH100", draft=LLAMA, version="0.9"),
    # SGLang -------------------------------------------------------------------------------------------------------
    _sglang({}, version="abc"),
    _sglang({}, bare=True),
    _sglang({"context_length": 100_000}, QWEN),
    _sglang({"tp_size": 4}),
    _sglang({"tp_size": 3}, gpu="3xH100"),
    _sglang({"tp_size": 16}, "Qwen/Qwen3-235B-A22B-FP8", "16xH100"),
    _sglang({"tp_size": 28}, "Qwen/Qwen2.5-7B-Instruct", "32xH200"),
    _sglang({"pp_size": 2}, "LiquidAI/LFM2.5-8B-A1B", "2xH100"),
    _sglang({"tp_size": 2, "ep_size": 8}, "Qwen/Qwen3-30B-A3B", "2xH100"),
    _sglang({"tp_size": 2, "dp_size": 3, "enable_dp_attention": True}, gpu="2xH100"),
    _sglang({"cuda_graph_bs_prefill": "many"}),
    _sglang({}, "meta-llama/Llama-3.1-405B-Instruct-FP8", "8xGTX 1080 Ti"),
    _sglang({"mamba_radix_cache_strategy": "no_buffer", "page_size": 64}, HYBRID),
    _sglang({"mamba_radix_cache_strategy": "no_buffer"}, HYBRID),
    _sglang({"mamba_radix_cache_strategy": "no_buffer", "disable_overlap_schedule": True,
             "attention_backend": "trtllm_mha"}, HYBRID, "B200"),
    # llama.cpp and Ollama -----------------------------------------------------------------------------------------
    _llamacpp({}, version="zz"),
    _llamacpp({}, bare=True),
    _llamacpp({}, "deepseek-ai/DeepSeek-V4-Flash"),
    _llamacpp({}, gpu="M3 Max"),
    _llamacpp({}, gpu="M3 Max 64GiB"),
    _llamacpp({"spec_type": "draft-mtp"}),
    _llamacpp({"main_gpu": 3, "split_mode": "none"}),
    _llamacpp({"n_gpu_layers": "many"}),
    _llamacpp({"device": "CUDA7"}),
    _llamacpp({"tensor_split": "much"}, gpu="2xH100"),
    _llamacpp({"tensor_split": "-1,2"}, gpu="2xH100"),
    _llamacpp({"fit_target": "much"}),
    _llamacpp({"cache_type_v": "q8_0", "flash_attn": "off"}),
    _llamacpp({"cache_type_v": "q8_0"}, version="b9500"),
    _llamacpp({"cache_type_k": "q8_0"}, "deepseek-ai/DeepSeek-V2-Lite"),
    _llamacpp({"cache_type_k": "q8_0"}, "stabilityai/stablelm-3b-4e1t"),
    _llamacpp({"split_mode": "row"}, gpu="2xH100"),
    _llamacpp({"split_mode": "tensor"}, gpu="2xH100", version="b6300"),
    _llamacpp({"split_mode": "tensor"}, "allenai/OLMo-2-0325-32B", "2xH100"),
    _llamacpp({"split_mode": "tensor", "device": "none"}, gpu="2xH100"),
    _llamacpp({"split_mode": "tensor", "flash_attn": "off"}, gpu="2xH100"),
    _llamacpp({"parallel": 0}),
    _llamacpp({"override_tensor": "x"}),
    Refused("ollama", LLAMA, version="b1"),
    Refused("ollama", LLAMA, version="0.4"),
)  # fmt: skip


# Where no request of the catalogue comes to, and why: another place refuses it before, or only files are so.
_RANGE: Final = "the option's own range or choices refuse it before"
_FILES: Final = "no model of the catalogue is so"
BEHIND: Final[dict[Place, str]] = {
    ("sglang/kv/cells.py", "_mixer", 0): _FILES,
    ("sglang/kv/deepseek_v4.py", "compression", 0): _FILES,
    ("vllm/settle/cache.py", "settle_cache", 0): _RANGE,
    ("vllm/settle/cache.py", "settle_cache", 1): _RANGE,
    ("vllm/settle/cache.py", "_dtype", 0): _RANGE,
    ("vllm/settle/check.py", "check_configuration", 0): _FILES,
    ("vllm/settle/check.py", "_check_context_parallel", 3): _FILES,
    ("vllm/settle/draft.py", "draft_wanted", 0): "asked before the plan: test_a_draft_model_that_is_not_named",
    ("vllm/settle/graphs.py", "_named_mode", 0): _RANGE,
    ("vllm/settle/length.py", "_changed", 1): _FILES,
    ("vllm/settle/media.py", "_items", 0): "its caller says it",
    ("vllm/settle/model.py", "_dtype", 0): _RANGE,
    ("vllm/settle/parallel.py", "settle_parallel", 0): _RANGE,
    ("vllm/settle/support.py", "_check_method", 2): _FILES,
    ("vllm/weights/rank.py", "partition", 0): "settle/parallel.py refuses it before",
    ("vllm/weights/rank.py", "partition", 1): "settle/check.py refuses it before",
    ("vllm/weights/rank.py", "inventory_of", 0): "the planner refuses it before",
}
# Read by what comes before a request: command lines, packs, the engine's own program, verdicts rather than refusals.
OTHERS: Final = ("command.py", "values.py", "registry.py", "vllm/constants.py", "llamacpp/probe.py",
                 "llamacpp/place.py", "sglang/kv/pools.py", "log.py")  # fmt: skip


@cache
def places() -> dict[Place, tuple[str, int, int]]:
    """Every raise statement of the engines: what it raises, and its first and last line."""
    found: dict[Place, tuple[str, int, int]] = {}
    for path in sorted(ROOT.rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        for function in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(function, ast.FunctionDef):
                raised = [node for node in ast.walk(function) if isinstance(node, ast.Raise) and node.exc is not None]
                raised.sort(key=lambda node: node.lineno)
                for number, node in enumerate(raised):
                    assert node.exc is not None
                    end = node.end_lineno or node.lineno
                    found[name, function.name, number] = ast.unparse(node.exc), node.lineno, end
    return found


def place(error: PlannerError) -> Place | None:
    """Where an error was raised, None outside the engines."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return None
    path = Path(trace.tb_frame.f_code.co_filename)
    if not path.is_relative_to(ROOT):
        return None
    name, function, line = path.relative_to(ROOT).as_posix(), trace.tb_frame.f_code.co_name, trace.tb_lineno
    of_function = (key for key, (_, first, last) in places().items()
                   if key[:2] == (name, function) and first <= line <= last)  # fmt: skip
    return next(of_function, None)
