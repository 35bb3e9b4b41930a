"""Weights that the engine of its own keeps in RAM: the first sentence says so, and the ways have all on the GPUs."""

from __future__ import annotations

import pytest

from kvplanner.catalog import gpus, models
from kvplanner.engine.option import OptionValue
from kvplanner.engine.plan import Plan
from kvplanner.engine.registry import engine
from kvplanner.engine.request import PlanRequest
from kvplanner.report.sentences import summary
from kvplanner.solve.remedies import Remedy, remedies


def planned(model: str, gpu: str, name: str, **options: OptionValue) -> tuple[Plan, tuple[Remedy, ...]]:
    request = PlanRequest(models.load(model), gpus.machine(gpu), name, None, options, weight_format="GGUF Q4_K_M")
    plan = engine(name).plan(request)
    return plan, tuple(way for way in remedies(request, plan) if way.aim == "faster")


@pytest.mark.parametrize(
    ("model", "gpu", "name", "context"),
    [
        ("meta-llama/Llama-3.3-70B-Instruct", "2xRTX 3090", "ollama", "num_ctx"),
        ("Qwen/Qwen3-32B", "RTX 3090", "llamacpp", "ctx_size"),
    ],
)
def test_a_shorter_context_has_all_weights_on_the_gpus(model: str, gpu: str, name: str, context: str) -> None:
    plan, ways = planned(model, gpu, name, **({"ctx_size": 40_960} if name == "llamacpp" else {}))
    assert plan.moved_bytes > 0
    assert str(summary(plan)).startswith("Fits with ")
    first = ways[0]
    length = first.request.options[context]
    assert (first.names, first.sure, first.plan.moved_bytes) == (("whole_on_gpus",), True, 0)
    assert isinstance(length, int)
    longer = first.request._replace(options={**first.request.options, context: length + 4096})
    assert engine(name).plan(longer).moved_bytes > 0


def test_a_context_that_slots_share_is_shortened_as_a_whole() -> None:
    """Of four slots a quarter each was taken for the whole: 4,096 tokens were offered where 16,384 do."""
    _, ways = planned("Qwen/Qwen3-32B", "RTX 3090", "llamacpp", ctx_size=40_960, parallel=4)
    assert ways[0].request.options["ctx_size"] == 16_384
    assert ways[0].costs == ("all slots together have 16,384 tokens, prompts and answers",)


def test_a_quantised_cache_is_named_where_it_is_enough() -> None:
    _, ways = planned("Qwen/Qwen3-32B", "RTX 3090", "llamacpp", ctx_size=40_960)
    assert [way.request.options.get("cache_type_k") for way in ways] == [None, "q4_0"]


def test_nothing_is_said_of_what_the_user_put_there_or_what_no_context_helps() -> None:
    plan, ways = planned("Qwen/Qwen3-32B", "RTX 3090", "llamacpp", ctx_size=40_960, n_gpu_layers="20")
    assert (plan.moved_bytes, ways) == (0, ())
    assert str(summary(plan)).startswith("Fits: ")
    plan, ways = planned("Qwen/Qwen3-30B-A3B", "RTX 4060 Ti 16GB", "llamacpp", ctx_size=32_768)
    assert plan.moved_bytes > 0
    assert ways == ()
