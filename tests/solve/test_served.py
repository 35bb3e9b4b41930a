"""What serves more than before, where an engine shortens the context by itself."""

from __future__ import annotations

from kvplanner.catalog import gpus, models
from kvplanner.engine.registry import engine
from kvplanner.engine.request import PlanRequest
from kvplanner.solve.remedies import remedies


def test_a_longer_context_serves_more_though_it_is_one_request_as_before() -> None:
    """Llama-3.3-70B as Q4_K_M on two 4090s: fitting cuts the context, to almost twice as much with an 8-bit cache."""
    model, machine = models.load("meta-llama/Llama-3.3-70B-Instruct"), gpus.machine("2x4090")
    request = PlanRequest(model=model, machine=machine, engine="llamacpp")
    plan = engine("llamacpp").plan(request)
    found = next(remedy for remedy in remedies(request, plan) if remedy.names == ("kv_dtype",))
    assert plan.kv_cache is not None
    assert found.plan.kv_cache is not None
    assert found.plan.kv_cache.max_concurrency == plan.kv_cache.max_concurrency
    assert found.plan.kv_cache.tokens > 1.7 * plan.kv_cache.tokens
    assert found.aim == "more"
