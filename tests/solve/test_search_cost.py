"""What a search for remedies works out, and what it leaves to whoever reads a remedy: counted, not timed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kvplanner.catalog import gpus, models
from kvplanner.engine.llamacpp.compute import chain
from kvplanner.engine.llamacpp.compute.laid import Laid
from kvplanner.engine.plan import Plan
from kvplanner.engine.registry import engine
from kvplanner.engine.request import Load, PlanRequest
from kvplanner.engine.sglang.settle.check import check_model
from kvplanner.engine.sglang.settle.settle import settle
from kvplanner.engine.sglang.weights.check import check_tensors
from kvplanner.engine.vllm.memory import activations, graphs, workspace
from kvplanner.errors import BadInput
from kvplanner.solve.others import others
from kvplanner.solve.remedies import remedies
from tests.bench.bench_solve import SPREAD


def test_a_search_over_a_large_mixture_packs_few_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two dozen changed plans only those whose weights and cache fit ask for a compute buffer."""
    packed: list[object] = []
    plain = Laid.reserve

    def counted(*args: Any) -> tuple[int, ...]:
        packed.append(args)
        return plain(*args)

    monkeypatch.setattr(Laid, "reserve", counted)
    monkeypatch.setattr(chain, "_RESERVED", {})
    request = PlanRequest(
        models.load("zai-org/GLM-5.3"), gpus.machine("H100"), "llamacpp", None,
        {"n_gpu_layers": "99", "ctx_size": 32_768}, Load(8, 16_000, 1000),
    )  # fmt: skip
    plan = engine("llamacpp").plan(request)
    assert plan.stage == "weights"
    assert not packed
    found = remedies(request, plan, others)
    assert {name for remedy in found for name in remedy.names} >= {"experts_on_host", "layers_on_host", "gpus"}
    assert len(packed) <= 6
    assert plan.devices[0].segment("compute") is not None  # there for who reads it
    assert plan.limits.max_context_length is None


@pytest.mark.parametrize(
    "name", ["google/gemma-2-27b-it", "Qwen/Qwen2.5-7B-Instruct", "Qwen/Qwen3-Next-80B-A3B-Instruct"]
)
@pytest.mark.parametrize("count", [6, 8, 64])
def test_the_derived_size_is_the_largest_that_is_not_refused(name: str, count: int) -> None:
    request = PlanRequest(models.load(name), gpus.machine(f"{count}xH100"), "sglang")

    def taken(size: int) -> bool:
        settled = settle(request._replace(options={"tp_size": size}))
        try:
            check_model(request.model.spec, settled.settings)
            check_tensors(request.model, settled.settings)
        except BadInput:
            return False
        return True

    assert engine("sglang").plan(request).options["tp_size"].value == max(n for n in range(1, count + 1) if taken(n))


def test_a_plan_that_fails_with_its_weights_works_out_nothing_that_comes_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []
    parts = ((workspace, "persistent"), (activations, "profiled"), (graphs, "actual"))
    for module, name in parts:
        monkeypatch.setattr(module, name, _counting(getattr(module, name), name, asked))
    request = PlanRequest(models.load("meta-llama/Llama-3.1-70B-Instruct"), gpus.machine("RTX 4090"))
    plan = engine("vllm").plan(request)
    assert (plan.stage, plan.verdict.certainty, plan.limits.max_context_length) == ("weights", "certain", None)
    assert not asked
    kinds = {segment.kind for segment in plan.devices[0].segments}  # there for who reads it
    assert {"workspace", "activations", "cuda_graphs"} <= kinds
    assert {*asked} == {name for _, name in parts}


def _counting(plain: Callable[..., object], name: str, asked: list[str]) -> Callable[..., object]:
    def counted(*args: Any, **kwargs: Any) -> object:
        asked.append(name)
        return plain(*args, **kwargs)

    return counted


def test_nothing_is_planned_for_prompts_that_are_longer_than_any_context(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gemma 2 knows 8,192 tokens: neither other settings nor other weights or machines serve prompts of 16,000."""
    chosen = engine("sglang")
    asked: list[str] = []
    request = PlanRequest(
        models.load("google/gemma-2-27b-it"), gpus.machine("8xH100"), "sglang", None, {"mem_fraction_static": 0.95},
        Load(8, 16_000, 1000),
    )  # fmt: skip
    plan = chosen.plan(request)
    assert plan.verdict.doubt is not None
    monkeypatch.setattr(type(chosen), "plan", _counting(type(chosen).plan, "plan", asked))
    assert remedies(request, plan, others) == ()
    assert not asked
    shorter = request._replace(load=Load(8, 7000, 1000))
    assert remedies(shorter, chosen.plan(shorter), others)


@pytest.mark.parametrize(("name", "place"), [(name, place) for name, of in SPREAD.items() for place in range(len(of))])
def test_a_full_set_of_remedies_takes_few_plans(name: str, place: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans that fail at each stage, work, or barely do: none is planned twice, and bounds come before plans."""
    chosen, (model, gpu, options, release, load) = engine(name), SPREAD[name][place]
    request = PlanRequest(models.load(model), gpus.machine(gpu), name, release, options, load)
    plan = chosen.plan(request)
    asked: list[PlanRequest] = []
    plain = type(chosen).plan

    def counted(self: object, request: PlanRequest) -> Plan:
        asked.append(request)
        return plain(self, request)  # type: ignore[arg-type]  # whichever engine it is

    monkeypatch.setattr(type(chosen), "plan", counted)
    remedies(request, plan, others)
    assert len(asked) <= 48
    seen = [(id(r.model), r.weight_format, id(r.machine), *sorted(r.options.items())) for r in asked]
    assert len(set(seen)) == len(seen)
