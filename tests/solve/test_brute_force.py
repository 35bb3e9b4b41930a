"""Each question that a solver answers, for every engine that has it, against every value there is."""

from __future__ import annotations

from functools import cache
from itertools import product
from typing import Final

import pytest

from kvplanner.catalog import gpus, models
from kvplanner.engine.option import OptionValue, Role
from kvplanner.engine.registry import names
from kvplanner.engine.request import PlanRequest
from kvplanner.errors import BadInput
from kvplanner.request.named import parse_load
from kvplanner.solve.solver import ASKED, Asked, solve
from tests.solve import brute
from tests.solve.brute import LOADS, of, option_of, plan

LLAMA, HYBRID, EXPERTS = "meta-llama/Llama-3.1-8B-Instruct", "Qwen/Qwen3.5-27B", "Qwen/Qwen3-30B-A3B"
TORCH, GGML = ("vllm", "sglang"), ("llamacpp", "ollama")
TWO: Final = LOADS[:2]  # of one kind, and of two


def asked(
    name: str, model: str, gpu: str, load: str, roles: dict[Role, OptionValue], weight_format: str | None = None
) -> PlanRequest:
    request = PlanRequest(
        models.load(model), gpus.machine(gpu), name, load=parse_load(load), weight_format=weight_format
    )
    return request._replace(options={option_of(request, role): value for role, value in roles.items()})


# What settings are given, so that no other question is part of this one.
CARRYING: Final = [
    *(asked(name, LLAMA, "RTX 4090", load, {"context": 16_384, "max_requests": 16})
      for name, load in product(TORCH, TWO)),
    *(asked(name, LLAMA, "RTX 4080", load, {"context": 131_072, "max_requests": 8}, "GGUF Q8_0")
      for name, load in product(GGML, TWO)),
]  # fmt: skip


def short(request: PlanRequest) -> str:
    return f"{request.engine}-{'mix' if request.load and request.load.mix else 'plain'}"


@pytest.mark.parametrize("request_", CARRYING, ids=short)
def test_fewest_gpus(request_: PlanRequest) -> None:
    found = solve("gpus", request_)
    assert found.sure_value is not None
    assert not brute.differs(found, brute.by_gpus(request_))


@pytest.mark.parametrize("request_", CARRYING, ids=short)
def test_largest_format(request_: PlanRequest) -> None:
    request = request_._replace(weight_format=None)
    assert not brute.differs(solve("format", request), brute.by_format(request))


@pytest.mark.parametrize("load", TWO)
@pytest.mark.parametrize("name", TORCH)
def test_smallest_share(name: str, load: str) -> None:
    request = asked(name, LLAMA, "RTX 4090", load, {"context": 16_384, "max_requests": 8})
    assert not brute.differs(solve("utilisation", request), brute.by_share(request))


@pytest.mark.parametrize("load", ["200@3000+500", "90@60%:1500+500,40%:9k+1k", "4@3000+500"])
@pytest.mark.parametrize(("model", "gpu"), [(LLAMA, "4xRTX 4090"), (EXPERTS, "4xL40S")])
@pytest.mark.parametrize("name", TORCH)
def test_best_split(name: str, model: str, gpu: str, load: str) -> None:
    """No other split surely carries more of the load; of those that carry as much none has fewer stages."""
    request = asked(name, model, gpu, load, {"context": 16_384})
    found = solve("tp", request)
    assert found.plan is not None
    assert found.plan.sure
    stages = int(found.plan.request.options[option_of(request, "pipeline_parallel")])
    assert (found.plan.limits.sure_serves_users, -stages) >= brute.best_split(request, surely=True)
    assert not brute.unkept(found)


@pytest.mark.parametrize(
    ("name", "model", "roles", "kind", "most"),
    [
        ("vllm", LLAMA, {"context": 10_240}, None, 60),
        ("vllm", HYBRID, {"context": 10_240, "max_requests": 24}, "FP8", 30),
        ("sglang", LLAMA, {"context": 10_240, "max_requests": 24}, None, 30),
        ("llamacpp", LLAMA, {"context": 90_112, "max_requests": 8}, "GGUF Q8_0", 10),
        ("ollama", LLAMA, {"context": 10_240, "max_requests": 6}, "GGUF Q8_0", 8),
    ],
)
@pytest.mark.parametrize("load", TWO)
def test_most_users(
    name: str, model: str, roles: dict[Role, OptionValue], kind: str | None, most: int, load: str
) -> None:
    request = asked(name, model, "RTX 4090" if model == LLAMA else "H100", load, roles, kind)
    found = solve("users", request)
    assert found.value is not None
    assert not brute.differs(found, brute.by_users(request, most))


@pytest.mark.parametrize("load", TWO)
@pytest.mark.parametrize("name", names())
def test_longest_context(name: str, load: str) -> None:
    """By a grid, and by its neighbours: a range of 131,072 is too long to try."""
    kind = "GGUF Q8_0" if name in GGML else None
    request = asked(name, LLAMA, "RTX 4080" if kind else "RTX 4090", load, {"max_requests": 4}, kind)
    found, option = solve("context", request), option_of(request, "context")
    assert found.request is not None
    assert found.request.load == request.load
    assert request.load is not None

    @cache
    def fits(length: int, surely: bool) -> bool:
        made = plan(of(request, **{option: length}))
        return made is not None and bool(made.sure if surely else made.fits)

    for surely, value in ((False, found.value), (True, found.sure_value)):
        assert isinstance(value, int)
        assert fits(value, surely)
        assert value >= request.load.tokens_per_user
        for more in (*(value + n for n in (1, 2, 7, 16, 64, 500)), *range(131_072, value, -9999)):
            assert more > 131_072 or not fits(more, surely), more


@pytest.mark.parametrize("what", ASKED)
@pytest.mark.parametrize("name", names())
def test_a_question_that_an_engine_does_not_have_is_refused_in_words(name: str, what: Asked) -> None:
    """llama.cpp and Ollama have neither a share of the memory nor ranks: all others answer."""
    request = asked(name, LLAMA, "H100", TWO[0], {"context": 32_768}, "GGUF Q8_0" if name in GGML else None)
    if name in GGML and what in ("utilisation", "tp"):
        with pytest.raises(BadInput, match="has no setting for that"):
            solve(what, request)
    else:
        assert solve(what, request).sure_value is not None
