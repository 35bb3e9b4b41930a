"""Machines for users and users for machines: each way is a plan of its own, and both questions agree."""

from __future__ import annotations

import json

import pytest

from kvplanner.catalog import gpus, models
from kvplanner.engine.option import OptionValue
from kvplanner.engine.registry import engine
from kvplanner.engine.request import Load, PlanRequest
from kvplanner.errors import BadInput
from kvplanner.solve.nodes import for_users, on_nodes
from tests.cli.kit import Terminal

LARGE, SMALL, HUGE = "meta-llama/Llama-3.3-70B-Instruct", "meta-llama/Llama-3.1-8B-Instruct", "deepseek-ai/DeepSeek-V3"


def asked(
    name: str = LARGE, gpu: str = "8xH100", engine_name: str = "vllm", users: int = 500, **options: OptionValue
) -> PlanRequest:
    load = Load(users, 1500, 500)
    return PlanRequest(models.load(name), gpus.machine(gpu), engine_name, options=options, load=load)


@pytest.mark.parametrize("users", [1, 500, 2000, 30_000])
def test_as_many_machines_as_are_found_serve_the_users_and_fewer_do_not(users: int) -> None:
    request = asked()
    best = for_users(request, users)[0]
    assert best.surely_serves >= users
    assert max((way.surely_serves for way in on_nodes(request, best.nodes)), default=0) >= users
    if best.nodes > 1:
        assert all(way.surely_serves < users for way in on_nodes(request, best.nodes - 1))


def test_a_way_is_what_its_plan_says() -> None:
    for way in for_users(asked(), 500):
        options: dict[str, OptionValue] = {"tensor_parallel_size": way.gpus // way.span}
        options |= {"pipeline_parallel_size": way.span} if way.span > 1 else {}
        machine = gpus.machine(f"{way.gpus}xH100")
        load = Load(way.users, 1500, 500)
        plan = engine("vllm").plan(PlanRequest(models.load(LARGE), machine, options=options, load=load))
        assert (plan.limits.serves_users, plan.fits) == (way.users, True)
        assert plan.limits.sure_serves_users == way.sure_users


def test_what_no_machine_holds_lies_on_several() -> None:
    ways = for_users(asked(HUGE), 100)
    assert ways
    assert all(way.span > 1 for way in ways)
    assert on_nodes(asked(HUGE), 1) == ()


def test_a_small_model_is_replicated_within_a_machine() -> None:
    best = on_nodes(asked(SMALL), 2)[0]
    assert (best.span, best.nodes) == (1, 2)
    assert best.replicas == 2 * best.a_node > 2


@pytest.mark.parametrize("name", ["sglang", "llamacpp"])
def test_other_engines_have_ways_too(name: str) -> None:
    found = for_users(asked("Qwen/Qwen3-8B", "2xH100", name, users=40), 40)
    assert found
    assert found[0].surely_serves >= 40


def test_what_cannot_be_asked_is_refused() -> None:
    with pytest.raises(BadInput, match="tokens are needed"):
        for_users(asked()._replace(load=None), 5)
    with pytest.raises(BadInput, match="not alike"):
        for_users(asked(gpu="RTX 4090,RTX 3090"), 5)
    with pytest.raises(BadInput):
        on_nodes(asked(), 0)


def test_the_command_answers_both_questions(terminal: Terminal) -> None:
    ran = terminal("nodes", LARGE, "--gpu", "8xH100", "--load", "2000@1500+500")
    assert ran.status == 0
    assert "for 2,000 users of 1,500 + 500 tokens" in ran.out
    document = json.loads(
        terminal("nodes", LARGE, "--gpu", "8xH100", "--load", "1@1500+500", "--nodes", "4", "--json").out
    )
    assert document["schema"] == "kvplanner.nodes/1"
    assert document["nodes"] == 4
    assert document["ways"][0]["surely_serves"] >= document["ways"][-1]["surely_serves"]
    assert terminal("nodes", HUGE, "--gpu", "RTX 4090", "--load", "9@1500+500").status == 1
    assert terminal("nodes", LARGE, "--gpu", "8xH100").status == 2
