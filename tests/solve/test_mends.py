"""Ways back from a refusal: each gives a plan, and the nearest comes first."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

import pytest

from kvplanner.catalog import gpus, models
from kvplanner.engine.option import OptionValue
from kvplanner.engine.registry import engine
from kvplanner.engine.request import PlanRequest
from kvplanner.errors import PlannerError
from kvplanner.report.mends import button, sentence
from kvplanner.solve.change import GPUS, WEIGHT_FORMAT
from kvplanner.solve.mends import Mend, mends

LLAMA = "meta-llama/Llama-3.1-8B-Instruct"
TWELVE_LAYERS = "HuggingFaceTB/SmolLM2-135M-Instruct"


def refused(
    model: str, gpu: str, options: Mapping[str, OptionValue] | None = None, *, engine_: str = "vllm",
    version: str | None = None, weight_format: str | None = None,
) -> tuple[PlanRequest, PlannerError]:  # fmt: skip
    request = PlanRequest(models.load(model), gpus.machine(gpu), engine=engine_, version=version,
                          options=options or {}, weight_format=weight_format)  # fmt: skip
    with pytest.raises(PlannerError) as raised:
        engine(engine_).plan(request)
    return request, raised.value


def first(request: PlanRequest, error: PlannerError, count: int = 3) -> list[Mend]:
    return list(islice(mends(request, error), count))


# Each kind of refusal of a whole request, with what its buttons say first.
REFUSALS: list[tuple[tuple[PlanRequest, PlannerError], list[str]]] = [
    (refused("Qwen/Qwen3-8B", "H100", {"max_model_len": 50_000}), ["Use 40,960"]),
    (refused(LLAMA, "2xH100", {"tensor_parallel_size": 4}), ["Use tensor parallel 2", "Use 4 GPUs"]),
    (refused(LLAMA, "4xH100", {"tensor_parallel_size": 3}), ["Use tensor parallel 2", "Reset tensor parallel"]),
    (refused(LLAMA, "2xH100", {"pipeline_parallel_size": 3}), ["Use pipeline parallel 2"]),
    (refused(TWELVE_LAYERS, "2xH100", {"pipeline_parallel_size": 64}), ["Use pipeline parallel 2"]),
    (refused(LLAMA, "H100", {"max_num_batched_tokens": 1000, "enable_chunked_prefill": False}),
     ["Use 131,072", "Reset chunked prefill"]),
    (refused(LLAMA, "H100", {"max_num_batched_tokens": 128, "max_num_seqs": 256}), ["Use tokens per step 256"]),
    (refused(LLAMA, "H100", {"kv_cache_dtype": "float16"}), ["Reset KV cache type"]),
    (refused(LLAMA, "T4", {"dtype": "bfloat16"}), ["Reset compute type"]),
    (refused(LLAMA, "H100", {"quantization": "torchao"}), ["Reset quantisation"]),
    (refused("Qwen/Qwen3-8B-FP8", "V100 16GB"), ["Plan it as INT8"]),
    (refused(LLAMA, "V100 16GB", weight_format="NVFP4"), ["Weights as stored"]),
    (refused("Qwen/Qwen3.5-27B", "H100", version="0.9"), ["Use vLLM 0.18"]),
    (refused(LLAMA, "H100", version="abc"), ["Use the newest release"]),
    (refused("Qwen/Qwen3-8B", "H100", {"context_length": 100_000}, engine_="sglang"), ["Use 40,960"]),
    (refused(LLAMA, "1xH100", {"tp_size": 4}, engine_="sglang"), ["Use tensor parallel 1", "Use 4 GPUs"]),
    (refused(LLAMA, "2xH100", {"tp_size": 2, "dp_size": 3, "enable_dp_attention": True}, engine_="sglang"),
     ["Use data parallel 2"]),
    (refused(LLAMA, "H100", {"main_gpu": 3, "split_mode": "none"}, engine_="llamacpp"), ["Use main GPU 0"]),
    (refused(LLAMA, "H100", {"cache_type_v": "q8_0", "flash_attn": "off"}, engine_="llamacpp"),
     ["Reset value cache type"]),
    (refused(LLAMA, "2xH100", {"split_mode": "row"}, engine_="llamacpp"), ["Reset split mode"]),
    (refused(LLAMA, "H100", version="zz", engine_="llamacpp"), ["Use the newest release"]),
    (refused(LLAMA, "H100", version="0.4", engine_="ollama"), ["Use the newest release"]),
]  # fmt: skip


@pytest.mark.parametrize(("case", "said"), REFUSALS, ids=[str(case[1].where)[:30] for case, _ in REFUSALS])
def test_each_refusal_is_answered_with_the_nearest_plan(
    case: tuple[PlanRequest, PlannerError], said: list[str]
) -> None:
    found = first(*case)
    assert [button(mend) for mend in found][: len(said)] == said
    for mend in found:
        plan = engine(mend.request.engine).plan(mend.request)
        assert (plan.devices, plan.kv_cache) == (mend.plan.devices, mend.plan.kv_cache)
        told = sentence(mend)
        assert any(word in told for word in ("fits", "fit")), told
        assert "None" not in told


def test_a_number_is_the_nearest_that_is_taken() -> None:
    """A step of fewer tokens than sequences is refused: the least that is taken has as many."""
    request, error = refused(LLAMA, "H100", {"max_num_batched_tokens": 100, "max_num_seqs": 200})
    mend = first(request, error)[0]
    at = mend.request.options["max_num_batched_tokens"]
    assert at == 200
    for value in range(150, 200, 7):
        with pytest.raises(PlannerError):
            engine("vllm").plan(request._replace(options={**request.options, "max_num_batched_tokens": value}))


def test_changes_are_all_that_differs() -> None:
    for request, error in (REFUSALS[1][0], REFUSALS[11][0], REFUSALS[12][0]):
        for mend in first(request, error, 6):
            named = {change.option for change in mend.changes}
            assert named
            assert (mend.request.machine == request.machine) == (GPUS not in named)
            assert (mend.request.weight_format == request.weight_format) == (
                WEIGHT_FORMAT not in named and "model" not in named
            )


def test_plans_alike_are_told_once() -> None:
    request, error = refused(LLAMA, "H100", {"kv_cache_dtype": "float16"})
    found = list(mends(request, error))
    figures = [(mend.plan.devices, mend.plan.kv_cache) for mend in found]
    assert all(figures.count(one) == 1 for one in figures)
