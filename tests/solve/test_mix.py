"""A mix of requests: as many users as trying every number gives, and no more than memory and slots hold."""

from __future__ import annotations

import json

import pytest

from kvplanner.catalog import gpus, models
from kvplanner.engine.mix import counts
from kvplanner.engine.option import OptionValue
from kvplanner.engine.registry import engine
from kvplanner.engine.request import Load, Part, PlanRequest, mixed
from kvplanner.errors import BadInput
from kvplanner.request.named import parse_mix
from kvplanner.solve.solver import Solved, solve
from tests.cli.kit import Terminal

MIX = parse_mix("70%:1500+500,30%:8k+1k")
LLAMA = "meta-llama/Llama-3.1-8B-Instruct"


def asked(model: str, gpu: str, options: dict[str, OptionValue] | None = None, name: str = "vllm") -> PlanRequest:
    return PlanRequest(models.load(model), gpus.machine(gpu), engine=name, options=options or {})


def users_of_mix(request: PlanRequest, mix: tuple[Part, ...]) -> Solved:
    return solve("users", request._replace(load=mixed(1, mix)))


@pytest.mark.parametrize("users", [1, 2, 3, 10, 99])
def test_users_are_dealt_by_their_shares(users: int) -> None:
    dealt = counts(users, MIX)
    assert sum(dealt) == users
    assert all(abs(n - users * part.share) < 1 for n, part in zip(dealt, MIX, strict=True))


def test_the_users_of_a_mix_hold_their_blocks_and_one_more_does_not() -> None:
    """Worked out by hand: blocks of 16 tokens, one of them kept back, 125 and 563 blocks a user."""
    request = asked(LLAMA, "H100", {"max_model_len": 16_384})
    plan = engine("vllm").plan(request)
    assert plan.kv_cache is not None
    found = users_of_mix(request, MIX)
    assert isinstance(found.value, int)

    def blocks(users: int) -> int:
        short, long = counts(users, MIX)
        return short * 125 + long * 563

    assert blocks(found.value) <= plan.kv_cache.units - 1 < blocks(found.value + 1)
    assert isinstance(found.sure_value, int)
    assert found.sure_value < found.value
    low = plan.kv_cache.units * plan.kv_cache.tokens_low // plan.kv_cache.tokens
    assert blocks(found.sure_value) <= low - 1 < blocks(found.sure_value + 1)
    assert sum(number for number, _ in found.parts) == found.sure_value


@pytest.mark.parametrize("name", ["vllm", "sglang", "llamacpp", "ollama"])
def test_a_mix_of_one_kind_is_a_load(name: str) -> None:
    options: dict[str, OptionValue] = {"max_model_len": 8192} if name == "vllm" else {}
    request = asked("Qwen/Qwen3-8B", "H100", options, name)
    mixed = users_of_mix(request, parse_mix("100%:1500+500"))
    alone = solve("users", request._replace(load=Load(1, 1500, 500)))
    assert isinstance(mixed.value, int)
    assert isinstance(alone.value, int)
    assert mixed.value == pytest.approx(alone.value, abs=1) or (name == "ollama" and mixed.value > alone.value)


def test_requests_at_once_bind_where_they_were_set() -> None:
    found = users_of_mix(asked(LLAMA, "H100", {"max_model_len": 16_384, "max_num_seqs": 8}), MIX)
    assert (found.value, found.sure_value, found.bound_by) == (8, 8, "max_requests")


def test_the_longest_kind_sets_the_context_where_the_models_own_does_not_fit() -> None:
    found = users_of_mix(asked(LLAMA, "RTX 4090"), MIX)
    assert found.sure_value
    assert {change.option: change.value for change in found.changes}["max_model_len"] == 9000


def test_a_kind_longer_than_the_context_is_not_served() -> None:
    found = users_of_mix(asked(LLAMA, "H100", {"max_model_len": 4096}), MIX)
    assert (found.value, found.bound_by) == (None, "context")


@pytest.mark.parametrize("text", ["", "x", "50%:1500", "0%:1+1", "10%:0+0", ",".join(["1%:1+1"] * 17), "5%:1e9z+1"])
def test_what_is_no_mix_says_how_to_write_one(text: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse_mix(text)
    assert caught.value.where == "--mix"
    assert caught.value.remedy


def test_the_terminal_tells_a_mix(terminal: Terminal) -> None:
    words = ("plan", "Llama-3.1-8B-Instruct", "--gpu", "H100", "--mix", "70%:1500+500,30%:8k+1k")
    lines = terminal(*words).out.splitlines()
    assert lines[1].startswith("Most users at once")
    assert "of 1,500 + 500 tokens" in lines[2]
    solved = json.loads(terminal(*words, "--json").out)["solved"]
    assert sum(part["users"] for part in solved["mix"]) == solved["sure_value"]
    assert terminal(*words, "--solve", "tp").status == 2
