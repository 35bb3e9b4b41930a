"""Every bundled model, planned and told: the contract holds, formulas render, and what is refused says why."""

from __future__ import annotations

import json

import pytest

from kvplanner.catalog import gpus, models
from kvplanner.engine.registry import engine
from kvplanner.engine.request import Load, PlanRequest
from kvplanner.errors import PlannerError
from kvplanner.report import schema
from kvplanner.report import text as report
from kvplanner.report.sentences import summary
from tests.report.contract import check_plan

pytestmark = pytest.mark.slow

CHUNKS = 8


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_every_model_is_planned_by_contract_or_refused_in_words(chunk: int) -> None:
    planned = 0
    vllm, machine = engine("vllm"), gpus.machine("8xH100")
    for entry in models.index()[chunk::CHUNKS]:
        try:
            request = PlanRequest(models.load(entry.id), machine, load=Load(4, 1000, 1000))
            plan = vllm.plan(request)
        except PlannerError as error:
            assert error.what, entry.id
            continue
        check_plan(json.loads(json.dumps(schema.to_json(plan), allow_nan=False)))
        assert summary(plan) in report.text(plan)
        assert report.explain(plan)
        planned += 1
    assert planned >= 30
