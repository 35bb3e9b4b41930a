"""The JSON's documentation names every field that a plan has, and no plan has others."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from importlib.resources import files

import pytest

from kvplanner.catalog import gpus, models
from kvplanner.engine.lever import WEIGHT
from kvplanner.engine.registry import engine
from kvplanner.engine.request import PlanRequest
from kvplanner.engine.segment import SEGMENT_KINDS
from kvplanner.estimate import BASES, BASIS_MEANING
from kvplanner.report import schema
from kvplanner.request import planfile
from kvplanner.solve.others import others
from kvplanner.solve.remedies import remedies
from tests import sample_plans

PAGE = (files("kvplanner.resources") / "help" / "json.md").read_text(encoding="utf-8")
NAMED = {word for quoted in re.findall(r"`([^`]+)`", PAGE) for word in re.findall(r"\w+", quoted)}


def keys(value: object, path: tuple[str, ...] = ()) -> Iterator[str]:
    """All field names, the engine's own names of options and figures apart."""
    if isinstance(value, dict):
        for name, inner in value.items():
            if path != ("options",) and path[-1:] != ("figures",):
                yield name
            yield from keys(inner, (*path, name))
    elif isinstance(value, list):
        for inner in value:
            yield from keys(inner, path)


@pytest.mark.parametrize("name", sample_plans.ALL)
def test_every_field_of_a_plan_is_documented(name: str) -> None:
    document = json.loads(json.dumps(schema.to_json(sample_plans.ALL[name]())))
    assert set(keys(document)) - {"schema"} <= NAMED


def test_every_field_of_a_remedy_is_documented() -> None:
    request = PlanRequest(models.load("meta-llama/Llama-3.1-8B-Instruct"), gpus.machine("RTX 4090"))
    plan = engine("vllm").plan(request)
    document = schema.to_json(plan, remedies(request, plan, others))
    assert document["remedies"]
    assert set(keys(document)) - {"schema"} <= NAMED
    assert set(WEIGHT) <= NAMED | set(re.findall(r"\w+", PAGE))


def test_every_field_of_a_plan_file_is_documented() -> None:
    request = sample_plans.other_programs().request
    assert set(planfile.to_json(planfile.from_request(request, "m", "g"))) - {"schema"} <= NAMED


def test_every_schema_is_named() -> None:
    assert {schema.SCHEMA, planfile.SCHEMA} <= set(re.findall(r"kvplanner\.\w+/\d", PAGE))


def test_the_help_tells_how_sure_a_number_is_in_the_windows_words() -> None:
    page = (files("kvplanner.resources") / "help" / "bar.md").read_text(encoding="utf-8")
    rows = [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in page.splitlines() if "|" in line]
    assert rows[2:] == [(basis, BASIS_MEANING[basis]) for basis in BASES]


def test_the_jsons_page_names_every_basis_and_kind() -> None:
    assert {*BASES, *SEGMENT_KINDS} <= set(re.findall(r"\w+", PAGE))
