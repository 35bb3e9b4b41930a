"""What changes before anything else helps: a context that holds no request of the load, a budget that is not free."""

from __future__ import annotations

from typing import Final

import pytest

from kvplanner.catalog import gpus, models
from kvplanner.engine.option import OptionValue
from kvplanner.engine.registry import engine
from kvplanner.engine.request import Load, PlanRequest
from kvplanner.solve.others import others
from kvplanner.solve.remedies import remedies
from kvplanner.units import GIB

LLAMA: Final = "meta-llama/Llama-3.1-8B-Instruct"
_LONG: Final = Load(8, 16_000, 1000)


@pytest.mark.parametrize(
    ("name", "gpu", "options", "changes"),
    [
        ("vllm", "H100", {"max_model_len": 8192}, {"max_model_len": 17_000}),
        ("sglang", "H100", {"context_length": 8192}, {"context_length": 17_000}),
        ("ollama", "H100", {"num_ctx": 4096, "num_parallel": 8}, {"num_ctx": 17_000}),
        # What is set counts for all slots together.
        ("llamacpp", "H100", {"ctx_size": 65_536, "parallel": 8}, {"ctx_size": 136_000}),
    ],
)  # fmt: skip
def test_a_context_that_holds_the_load_is_the_one_way(
    name: str, gpu: str, options: dict[str, OptionValue], changes: dict[str, OptionValue]
) -> None:
    request = PlanRequest(models.load(LLAMA), gpus.machine(gpu), name, None, options, _LONG)
    plan = engine(name).plan(request)
    assert plan.sure
    assert (plan.limits.serves_users, plan.limits.limited_by) == (0, "context")
    (way,) = remedies(request, plan, others)
    assert {change.option: change.value for change in way.changes} == changes
    assert way.names == ("longer_context",)
    assert way.plan.limits.sure_serves_users == 8
    assert way.weight == 0
    assert engine(name).plan(way.request) == way.plan


def test_what_fails_as_well_is_mended_with_it() -> None:
    """A 72B on 24 GB with slots of 8,192 tokens: fewer layers there, or more cards, both with longer slots."""
    request = PlanRequest(
        models.load("Qwen/Qwen2.5-72B-Instruct"), gpus.machine("RTX 4090"), "llamacpp", None,
        {"n_gpu_layers": "99", "parallel": 8, "ctx_size": 65_536}, _LONG,
    )  # fmt: skip
    plan = engine("llamacpp").plan(request)
    assert plan.stage == "weights"
    found = remedies(request, plan, others)
    assert {way.names for way in found} >= {("longer_context", "layers_on_host"), ("longer_context", "gpus")}
    for way in found:
        assert (way.aim, way.stage_before, way.plan.limits.sure_serves_users) == ("fit", "weights", 8)
        assert len(way.names) == len(way.costs) == len(way.losses)
        assert way.changes[0].option == "ctx_size"


def test_a_model_that_knows_no_such_length_gets_no_longer_context() -> None:
    request = PlanRequest(
        models.load("google/gemma-2-27b-it"), gpus.machine("8xH100"), "sglang", None, {"context_length": 4096}, _LONG
    )
    assert remedies(request, engine("sglang").plan(request), others) == ()


def test_a_context_that_holds_the_load_and_does_not_fit_is_completed() -> None:
    """On one 4090, 20 GB of weights beside a context for a user's 30,000 tokens take a smaller cache."""
    request = PlanRequest(
        models.load("Qwen/Qwen3-32B-AWQ"), gpus.machine("RTX 4090"), "vllm", None, {"max_model_len": 4096},
        Load(1, 29_000, 1000),
    )  # fmt: skip
    plan = engine("vllm").plan(request)
    found = remedies(request, plan, others)
    assert found
    assert all(way.names[0] == "longer_context" and len(way.names) > 1 for way in found)
    assert all(way.changes[0] == ("max_model_len", 30_000) for way in found)
    assert all(way.sure and way.plan.limits.sure_serves_users == 1 for way in found[:1])


@pytest.mark.parametrize(("free", "first"), [(10, "sister"), (14, "online_quantization")])
def test_a_budget_that_is_not_free_is_made_smaller_before_what_else_has_to_change(free: int, first: str) -> None:
    """Nothing was offered where other programs take so much that the weights do not fit beside them either."""
    machine = gpus.machine("RTX 4090")
    device = machine.devices[0]._replace(free_bytes=free * GIB)
    request = PlanRequest(models.load(LLAMA), machine._replace(devices=(device,)), "vllm", None, {}, None)
    plan = engine("vllm").plan(request)
    assert plan.stage == "free_memory_check"
    found = remedies(request, plan, others)
    assert found[0].names == ("budget_share", first, "context")
    for way in found:
        assert "budget_share" in way.names
        assert way.sure
        assert engine("vllm").plan(way.request) == way.plan
        assert way.stage_before == "free_memory_check"
