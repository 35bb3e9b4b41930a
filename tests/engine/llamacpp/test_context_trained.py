"""What llama.cpp takes for the context that a model was trained with: the length that its GGUF states."""

from __future__ import annotations

import pytest

from kvplanner.catalog import gpus, models
from kvplanner.engine.registry import engine
from kvplanner.engine.request import PlanRequest


@pytest.mark.parametrize(
    ("model", "name", "tokens"),
    [
        # llama.cpp prints llama.context_length = 16384 for it: github:arcee-ai/mergekit issue 143.
        ("deepseek-ai/deepseek-coder-33b-instruct", "llamacpp", 16_384),
        # vLLM multiplies by the factor of a linear rope: vllm/config, _get_and_verify_max_len.
        ("deepseek-ai/deepseek-coder-33b-instruct", "vllm", 65_536),
    ],
)
def test_a_linear_rope_factor_stretches_what_vllm_takes_and_not_what_a_gguf_states(
    model: str, name: str, tokens: int
) -> None:
    plan = engine(name).plan(PlanRequest(models.load(model), gpus.machine("H200"), name))
    assert plan.kv_cache is not None
    assert plan.kv_cache.context_length == tokens
