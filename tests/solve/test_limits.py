"""Limits have two marks in every engine: what is sure, once applied, surely works; what may be, works by the values."""

from __future__ import annotations

import pytest

from kvplanner.catalog import gpus, models
from kvplanner.engine.command import role_option
from kvplanner.engine.plan import Plan
from kvplanner.engine.registry import engine, names
from kvplanner.engine.request import Load, PlanRequest
from kvplanner.errors import PlannerError

MODELS = (
    "meta-llama/Llama-3.1-8B-Instruct", "Qwen/Qwen3-32B", "openai/gpt-oss-20b", "google/gemma-3-27b-it",
    "Qwen/Qwen3.5-27B", "Qwen/Qwen3-30B-A3B", "RedHatAI/Llama-3.3-70B-Instruct-quantized.w4a16",
)  # fmt: skip
MACHINES = ("RTX 4090", "2xRTX 3090", "H100", "RTX 5090")


def planned(request: PlanRequest) -> Plan | None:
    try:
        return engine(request.engine).plan(request)
    except PlannerError:
        return None


@pytest.mark.slow
@pytest.mark.parametrize("name", names())
def test_a_sure_context_is_sure_once_it_is_set(name: str) -> None:
    option = role_option(engine(name), None, "context")
    assert option is not None
    tried = 0
    for model in MODELS:
        for machine in MACHINES:
            request = PlanRequest(models.load(model), gpus.machine(machine), engine=name)
            plan = planned(request)
            if plan is None or not plan.limits.max_context_length:
                continue
            longest, sure = plan.limits.max_context_length, plan.limits.sure_max_context_length
            at = planned(request._replace(options={option.name: longest}))
            assert at is not None
            assert at.fits, (model, machine, longest)
            if sure is None:
                continue
            assert sure <= longest
            surely = planned(request._replace(options={option.name: sure}))
            assert surely is not None
            assert surely.sure, (model, machine, sure)
            tried += 1
    assert tried >= 6, tried


@pytest.mark.parametrize("name", names())
def test_sure_users_are_no_more_than_those_that_may_be(name: str) -> None:
    for model in MODELS:
        request = PlanRequest(models.load(model), gpus.machine("H100"), engine=name, load=Load(64, 1500, 500))
        plan = planned(request)
        if plan is None or plan.fits is None:
            continue
        limits = plan.limits
        assert limits.sure_serves_users is not None
        assert limits.sure_serves_users <= (limits.serves_users or 0)
        assert (limits.sure_max_concurrent_requests or 0) <= (limits.max_concurrent_requests or 0)
        if not plan.sure:
            assert limits.sure_serves_users == 0
