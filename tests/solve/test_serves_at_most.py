"""What an engine says that no plan of a request exceeds: no plan does, and a search leaves out what cannot gain."""

from __future__ import annotations

from typing import Any

import pytest

from kvplanner.catalog import gpus, models
from kvplanner.engine.llamacpp.compute import chain
from kvplanner.engine.llamacpp.compute.laid import Laid
from kvplanner.engine.option import OptionValue
from kvplanner.engine.registry import engine
from kvplanner.engine.request import Load, PlanRequest
from kvplanner.request.named import parse_load
from kvplanner.solve.others import others
from kvplanner.solve.ranking import served
from kvplanner.solve.remedies import remedies

OPTIONS: dict[str, tuple[dict[str, OptionValue], ...]] = {
    "llamacpp": (
        {}, {"ctx_size": 5000}, {"parallel": 3}, {"parallel": 3, "kv_unified": True, "ctx_size": 9000},
        {"fit": "off", "parallel": 2}, {"n_gpu_layers": "10"},
    ),
    "ollama": ({}, {"num_ctx": 5000}, {"num_parallel": 4}, {"num_gpu": 5, "num_ctx": 100_000}),
}  # fmt: skip


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("model", ["Qwen/Qwen3-8B", "openai/gpt-oss-20b", "Qwen/Qwen3.5-27B"])
def test_no_plan_serves_more(name: str, model: str) -> None:
    chosen = engine(name)
    for gpu in ("T4", "2xRTX 4090"):
        for options in OPTIONS[name]:
            for load in (None, Load(3, 1500, 500), Load(64, 7000, 1500), parse_load("64@9:100+50,1:2k+500")):
                request = PlanRequest(models.load(model), gpus.machine(gpu), name, None, options, load)
                plan, most = chosen.plan(request), chosen.serves_at_most(request)
                length = plan.kv_cache.context_length if load is None and plan.kv_cache is not None else 1
                assert most is not None
                assert served(plan) * length <= most, (gpu, options, load)


def test_what_memory_decides_is_left_to_plans() -> None:
    for name in ("vllm", "sglang"):
        request = PlanRequest(models.load("Qwen/Qwen3-8B"), gpus.machine("RTX 4090"), name)
        assert engine(name).serves_at_most(request) is None


def test_a_search_plans_nothing_that_cannot_serve_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of given slots and context neither a smaller cache, smaller weights nor more GPUs make more."""
    packed: list[object] = []
    plain = Laid.reserve

    def counted(*args: Any) -> tuple[int, ...]:
        packed.append(args)
        return plain(*args)

    request = PlanRequest(
        models.load("Qwen/Qwen3-235B-A22B-Instruct-2507"), gpus.machine("4xRTX 4090"), "ollama", None,
        {"num_ctx": 8192},
    )  # fmt: skip
    plan = engine("ollama").plan(request)
    assert plan.sure
    monkeypatch.setattr(Laid, "reserve", counted)
    monkeypatch.setattr(chain, "_RESERVED", {})
    assert remedies(request, plan, others) == ()
    assert not packed
    # Without a context of its own, GPUs of more memory in all get a longer one.
    bare = request._replace(options={})
    more = bare._replace(machine=gpus.machine("T4"))
    assert (engine("ollama").serves_at_most(bare) or 0) > (engine("ollama").serves_at_most(more) or 0) > 0
