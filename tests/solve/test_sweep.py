"""A sweep's points are those of planning each; its ranges end where they are said to."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from importlib.resources import files
from itertools import islice, pairwise

import pytest

from kvplanner.catalog import gpus, models
from kvplanner.engine.option import OptionValue
from kvplanner.engine.registry import engine
from kvplanner.engine.request import Load, PlanRequest
from kvplanner.errors import BadInput, UnknownName
from kvplanner.report import sweep as told
from kvplanner.solve.axis import Axis, axis, whole_steps
from kvplanner.solve.sweep import Point, changed, planned, point, runs, sweep
from tests.cli.kit import Terminal

LLAMA = "meta-llama/Llama-3.1-8B-Instruct"


def asked(
    name: str = LLAMA,
    gpu: str = "RTX 4090",
    engine_name: str = "vllm",
    options: dict[str, OptionValue] | None = None,
    load: Load | None = None,
) -> PlanRequest:
    return PlanRequest(models.load(name), gpus.machine(gpu), engine_name, options=options or {}, load=load)


CROWDS = [
    asked(options={"max_model_len": 8192}),
    asked(gpu="3xRTX 4090", options={"max_model_len": 8192, "data_parallel_size": 3, "max_num_seqs": 7}),
    asked(gpu="RTX 3080 10GB"),
    asked("Qwen/Qwen3.5-27B", "H100", options={"max_model_len": 16384}),
    asked(engine_name="sglang"),
    asked("Qwen/Qwen3-8B", "4xH100", "sglang", {"dp_size": 2, "tp_size": 2}),
    asked("Qwen/Qwen3-8B", engine_name="llamacpp", options={"parallel": 4, "ctx_size": 16384}),
    asked("Qwen/Qwen3-8B", engine_name="ollama", options={"num_parallel": 4, "num_ctx": 8192}),
]


@pytest.mark.parametrize("request_", CROWDS, ids=lambda r: f"{r.engine}-{r.model.id.split('/')[1]}-{len(r.options)}")
@pytest.mark.parametrize("load", [Load(1, 1500, 500), Load(1, 100, 3)])
def test_one_plan_stands_for_all_numbers_of_users(request_: PlanRequest, load: Load) -> None:
    request = request_._replace(load=load)
    over = axis(request, "users=1,2,3,5,8,13,16,31,40,64,100,300,700,1024,5000", 16)
    for found in sweep(request, [over]):
        assert found == point(found.values, planned(changed(request, [over], found.values)))


def test_points_are_those_of_the_plan() -> None:
    request = asked(load=Load(4, 1500, 500))
    over = axis(request, "context=4k..128k", 8)
    for found in sweep(request, [over]):
        made = engine("vllm").plan(request._replace(options={"max_model_len": found.values[0]}))
        assert made.kv_cache is not None
        assert (found.fits, found.sure, found.tokens) == (made.fits, made.sure, made.kv_cache.tokens)
        assert (found.serves_users, found.stage) == (made.limits.serves_users, made.stage)


def test_two_settings_are_a_grid_with_the_last_the_fastest() -> None:
    request = asked(load=Load(1, 1500, 500))
    down, across = axis(request, "users=1,50", 8), axis(request, "context=4k,32k", 8)
    found = list(sweep(request, [down, across]))
    assert [one.values for one in found] == [(1, 4000), (1, 32000), (50, 4000), (50, 32000)]
    assert [one.users for one in found] == [1, 1, 50, 50]


def test_whoever_asks_may_stop() -> None:
    request = asked()
    assert len(list(islice(sweep(request, [axis(request, "context=1..128k", 4096)]), 2))) == 2


RANGES = [
    (1, 256, 16), (4000, 128_000, 64), (4096, 1 << 20, 7), (5, 9, 64), (100, 300, 9), (1, 10**9, 100), (7, 7, 3),
    (1, 100, 2),
]  # fmt: skip
WRONG = [
    "", "=", "context", "context=", "context=8k..4k", "context=..4k", "context=x", "users=1", "kv-dtype=auto..fp8",
    "release=0.1..0.2", "format=zzz", "gpus=0", "context=,",
]  # fmt: skip


@pytest.mark.parametrize(("low", "high", "points"), RANGES)
def test_steps_go_from_end_to_end(low: int, high: int, points: int) -> None:
    found = whole_steps(low, high, points)
    assert (found[0], found[-1]) == (low, high)
    assert found == sorted(set(found))
    assert len(found) == min(high - low + 1, points)
    if low >= 1000:
        steps = [after / before for before, after in pairwise(found)]
        assert max(steps) / min(steps) < 1.05


@pytest.mark.parametrize(
    ("text", "name", "values"),
    [
        ("context=4k,8K", "max_model_len", (4000, 8192)),
        ("--max-model-len=4096", "max_model_len", (4096,)),
        ("max_model_len=4096,4096", "max_model_len", (4096,)),
        ("tp=1..8", "tensor_parallel_size", (1, 2, 4, 8)),
        ("-tp=2", "tensor_parallel_size", (2,)),
        ("utilisation=0.90..0.92", "gpu_memory_utilization", (0.9, 0.91, 0.92)),
        ("kv-dtype=auto,fp8", "kv_cache_dtype", ("auto", "fp8")),
        ("eager", "enforce_eager", (False, True)),
        ("release=0.20..0.24", "release", ("0.20", "0.22", "0.24")),
        ("format=fp8,awq", "weight_format", ("FP8", "AWQ 4-bit")),
        ("gpus", "gpus", (1, 2, 4, 8)),
        ("max-requests=8..10", "max_num_seqs", (8, 9, 10)),
    ],
)
def test_what_words_name(text: str, name: str, values: Sequence[OptionValue]) -> None:
    found = axis(asked(), text, 16)
    assert (found.name, found.values) == (name, values)


def test_a_role_is_each_engines_own_option() -> None:
    names = {name: axis(asked("Qwen/Qwen3-8B", engine_name=name), "context=4k", 4).name
             for name in ("vllm", "sglang", "llamacpp", "ollama")}  # fmt: skip
    assert names == {
        "vllm": "max_model_len", "sglang": "context_length", "llamacpp": "ctx_size", "ollama": "num_ctx",
    }  # fmt: skip


@pytest.mark.parametrize("text", WRONG)
def test_what_cannot_be_swept_is_refused(text: str) -> None:
    with pytest.raises(BadInput) as caught:
        axis(asked(), text, 16)
    assert caught.value.remedy or isinstance(caught.value, UnknownName)


def test_what_the_engine_refuses_is_a_point_that_says_why() -> None:
    request = asked()
    found = list(sweep(request, [axis(request, "tp=1,2", 4)]))
    assert [bool(one.refused) for one in found] == [False, True]
    assert "2 GPUs" in found[1].refused


def test_runs_are_where_it_works() -> None:
    made = [Point((value,), fits, sure) for value, fits, sure in
            [(1, True, True), (2, True, False), (3, False, False), (4, True, True)]]  # fmt: skip
    assert runs(made, surely=True) == ((1, 1), (4, 4))
    assert runs(made, surely=False) == ((1, 2), (4, 4))
    assert runs([Point((1,), True, True, users=5, serves_users=4)], surely=False) == ()


def test_the_terminal_as_a_table_and_as_json(terminal: Terminal) -> None:
    ran = terminal("sweep", LLAMA, "--gpu", "RTX 4090", "--over", "context=4k..128k")
    assert ran.status == 0
    assert "Works surely: 4,000 to" in ran.out
    words = ("sweep", LLAMA, "--gpu", "RTX 4090", "--over", "context=4k..128k", "--points", "5", "--json")
    document = json.loads(terminal(*words).out)
    assert document["schema"] == told.SCHEMA
    assert [p["values"][0] for p in document["points"]] == document["axes"][0]["values"]
    assert [document["points"][at]["fits"] for at in (0, -1)] == [True, False]
    assert document["points"][-1]["limit"] == "kv_cache_too_small"


def test_the_terminal_as_a_map(terminal: Terminal) -> None:
    ran = terminal("sweep", LLAMA, "--gpu", "RTX 4090", "--load", "1@1500+500", "--over", "users=1..64", "--over",
                   "context=4k..32k", "--points", "3")  # fmt: skip
    assert ran.status == 0
    assert "Users down, context length across: users served" in ran.out
    assert len(ran.out.splitlines()) == 8


@pytest.mark.parametrize("words", [(), ("--over", "context=4k..8k", "--points", "9999999")])
def test_the_terminal_says_what_to_do(terminal: Terminal, words: Sequence[str]) -> None:
    ran = terminal("sweep", LLAMA, "--gpu", "RTX 4090", *words)
    assert ran.status == 2
    assert ran.err.count("\n") == 1


def test_every_field_is_documented() -> None:
    page = (files("kvplanner.resources") / "help" / "json.md").read_text(encoding="utf-8")
    named = {word for quoted in re.findall(r"`([^`]+)`", page) for word in re.findall(r"\w+", quoted)}
    request = asked()
    over = Axis("max_model_len", "--max-model-len", (4096,))
    document = told.to_json([over], list(sweep(request, [over])), request, "rtx")
    axes, points = document["axes"], document["points"]
    assert isinstance(axes, list)
    assert isinstance(points, list)
    assert {*document, *axes[0], *points[0]} - {"schema"} <= named
    assert told.SCHEMA in page
