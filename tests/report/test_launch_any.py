"""Any plan, written in any form and pasted back, is the same request: every engine, release, model kind and option."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvplanner.catalog import gpus, models
from kvplanner.cli.plan import sources, words_from
from kvplanner.engine.option import Option, OptionValue
from kvplanner.engine.plan import Plan
from kvplanner.engine.registry import engine, names
from kvplanner.engine.request import PlanRequest
from kvplanner.errors import PlannerError
from kvplanner.model.model import Model
from kvplanner.model.whatif import WHATIF_FORMATS
from kvplanner.report.launch import FORMS, Form, snippet, started
from kvplanner.request.words import PlanWords, Sources, build

KINDS = sorted({entry.architecture: entry.id for entry in models.index()}.values())
MACHINES = ("H100", "8xH100", "RTX 4090", "2x24GiB", "3xRTX 3090", "16xH100", "4xA100-SXM4-80GB", "GTX 1080 Ti")
WITH_IMAGE = ("docker", "compose", "kubernetes")


def values(option: Option) -> st.SearchStrategy[OptionValue]:
    """What the option takes."""
    if option.type == "bool":
        return st.booleans()
    if option.type == "choice":
        return st.sampled_from(option.choices)
    if option.type == "float":
        return st.floats(option.low or 0.0, option.high or 2.0)
    if option.type == "text":
        return st.sampled_from(("1,2,4", "auto", '{"a": 1}', "a b", "it's"))
    return st.integers(int(option.low or 0), int(option.high or 10**9))


@st.composite
def plans(draw: st.DrawFn) -> Plan | None:
    """A plan of whatever engine, None where it refuses what was drawn."""
    name = draw(st.sampled_from(names()))
    version = draw(st.none() | st.sampled_from(engine(name).versions))
    known = [option for option in engine(name).options(version) if "draft" not in option.name + option.role]
    chosen = draw(st.lists(st.sampled_from(known), max_size=5, unique_by=lambda option: option.name))
    options = {option.name: draw(values(option)) for option in chosen}
    model, machine = models.load(draw(st.sampled_from(KINDS))), gpus.machine(draw(st.sampled_from(MACHINES)))
    wished = draw(st.none() | st.sampled_from(sorted(WHATIF_FORMATS)))
    try:
        return engine(name).plan(PlanRequest(model, machine, name, version, options, weight_format=wished))
    except PlannerError:
        return None


def pasted(text: str, plan: Plan) -> PlanRequest:
    """The request of a text on the same machine. Hub models are named in it; files are only called like them."""
    model = plan.request.model
    named = plan.request.engine in ("vllm", "sglang")

    def opened(name: str) -> Model:
        assert not named or name == model.id, name
        return model

    machine = plan.request.machine
    words = PlanWords(model="" if named else model.id, flags=(text,))
    return build(words, Sources(opened, lambda: machine)).request


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(plans())
def test_any_plan_is_the_same_request_when_it_is_pasted_back(plan: Plan | None) -> None:
    _comes_back(plan)


@pytest.mark.slow
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(plans())
def test_any_of_many_plans_is_the_same_request_when_it_is_pasted_back(plan: Plan | None) -> None:
    _comes_back(plan)


def _comes_back(plan: Plan | None) -> None:
    if plan is None:
        return
    for form in FORMS:
        try:
            text = snippet(form, plan)
        except PlannerError:
            continue
        _same(form, pasted(text, plan), plan)


def _same(form: Form, again: PlanRequest, plan: Plan) -> None:
    wanted, chosen = started(plan), engine(plan.request.engine)
    assert (again.engine, again.machine, again.weight_format) == (wanted.engine, wanted.machine, wanted.weight_format)
    if form in WITH_IMAGE:
        assert (again.version or "").removesuffix(".0") == plan.engine_version.removesuffix(".0")
    else:
        assert again.version == wanted.version
    if form == "python":  # an offline start states the batches that the server has by itself
        same = chosen.plan(again)
        assert (same.verdict, same.kv_cache, same.devices) == (plan.verdict, plan.kv_cache, plan.devices)
    else:
        assert dict(again.options) == chosen.as_started(wanted.options, wanted.version)


QUESTIONS = Path(__file__).parent.parent / "solve" / "questions.jsonl"
# A command of which a part is left to the reader, or several at once.
_PARTS = re.compile(r"\.\.\.|[|\[;]| \(")


def whole_commands() -> list[str]:
    rows = map(json.loads, QUESTIONS.read_text(encoding="utf-8").splitlines())
    return [row["command"] for row in rows if row["command"].startswith("plan ") and not _PARTS.search(row["command"])]


@pytest.mark.parametrize("command", whole_commands())
def test_every_whole_command_of_a_public_question_is_taken_as_it_stands(command: str) -> None:
    """As the terminal's words, and the part behind "--" as a text that is pasted."""
    _, words = words_from(shlex.split(command)[1:])
    typed = build(words, sources()).request
    assert engine(typed.engine).plan(typed).options
    if words.flags:
        text = command.partition(" -- ")[2] + "\n"
        again = build(words._replace(flags=(text,)), sources()).request
        assert (again.engine, again.options, again.model.id, again.machine) == (
            typed.engine, typed.options, typed.model.id, typed.machine,
        )  # fmt: skip
