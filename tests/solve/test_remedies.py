"""Every change that is proposed gives the plan that it promises, and a sure one fits at the ends of its bands."""

from __future__ import annotations

import random
import shlex
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from kvplanner.catalog import gpus, models
from kvplanner.cli.plan import sources, words_from
from kvplanner.engine.lever import WEIGHT
from kvplanner.engine.option import OptionValue
from kvplanner.engine.plan import Plan
from kvplanner.engine.registry import engine
from kvplanner.engine.request import Load, PlanRequest
from kvplanner.errors import PlannerError
from kvplanner.report.remedies import flags_of
from kvplanner.request.words import build
from kvplanner.solve.change import MODEL
from kvplanner.solve.others import others
from kvplanner.solve.ranking import ranked, served
from kvplanner.solve.remedies import Remedy, aim_of, remedies
from tests.solve import wide

_MODELS = (
    "meta-llama/Llama-3.1-8B-Instruct", "google/gemma-3-27b-it", "Qwen/Qwen3.5-27B", "deepseek-ai/DeepSeek-V2-Lite",
    "Qwen/Qwen3-30B-A3B", "openai/gpt-oss-20b", "mistralai/Mistral-7B-Instruct-v0.3", "Qwen/Qwen2.5-VL-7B-Instruct",
    "nvidia/NVIDIA-Nemotron-Nano-9B-v2", "meta-llama/Llama-3.3-70B-Instruct", "Qwen/Qwen3-8B-FP8",
)  # fmt: skip
_GPUS = (
    "H100",
    "RTX 4090",
    "2xRTX 3090",
    "L40S",
    "4xA10",
    "A100-SXM4-80GB",
    "RTX 5090",
    "2xH100",
    "T4",
    "1xRTX 4090,1xRTX 3090",
)
_VERSIONS = (None, "0.24", "0.16", "0.11", "0.9", "0.6.6")
_OPTIONS: tuple[dict[str, OptionValue], ...] = (
    {}, {}, {"gpu_memory_utilization": 0.98}, {"gpu_memory_utilization": 0.5}, {"max_model_len": 8192},
    {"enable_chunked_prefill": False}, {"max_num_seqs": 512}, {"enforce_eager": True, "max_model_len": 32768},
)  # fmt: skip
_LOADS = (None, Load(32, 1500, 500), Load(4, 30_000, 2000))


def cases(count: int, seed: int) -> Iterator[PlanRequest]:
    chosen = random.Random(seed)
    for _ in range(count):
        machine = gpus.machine(chosen.choice(_GPUS))
        if chosen.random() < 0.2:
            free = tuple(
                d._replace(free_bytes=(d.gpu.cuda_total.value * 3) // 4) for d in machine.devices if d.gpu.cuda_total
            )
            machine = machine._replace(devices=free)
        yield PlanRequest(
            models.load(chosen.choice(_MODELS)), machine, version=chosen.choice(_VERSIONS),
            options=chosen.choice(_OPTIONS), load=chosen.choice(_LOADS),
        )  # fmt: skip


def planned(request: PlanRequest) -> Plan | None:
    try:
        return engine(request.engine).plan(request)
    except PlannerError:
        return None


class Case(NamedTuple):
    asked: PlanRequest
    plan: Plan
    remedy: Remedy


def all_remedies(count: int, seed: int) -> Iterator[Case]:
    for request in cases(count, seed):
        plan = planned(request)
        if plan is not None and plan.fits is not None:
            yield from (Case(request, plan, remedy) for remedy in remedies(request, plan, others))


@pytest.fixture(scope="module")
def found() -> list[Case]:
    made = list(all_remedies(60, 11))
    assert len(made) > 150
    assert {len(remedy.names) for _, _, remedy in made} == {1, 2, 3, 4}  # a budget that is free, then up to three
    assert {remedy.aim for _, _, remedy in made} == {"fit", "more", "less"}
    return made


@pytest.mark.slow
def test_a_remedy_gives_the_plan_that_it_carries(found: list[Case]) -> None:
    for _, _, remedy in found:
        assert planned(remedy.request) == remedy.plan
        assert remedy.plan.fits, remedy.names
        if remedy.sure:
            assert remedy.plan.verdict.certainty == "certain"


@pytest.mark.slow
def test_a_remedy_changes_nothing_but_what_it_says(found: list[Case]) -> None:
    for asked, _, remedy in found:
        before, after = asked, remedy.request
        told = {change.option: change.value for change in remedy.changes}
        for name in {*before.options, *after.options}:
            if before.options.get(name) != after.options.get(name):
                assert name in told, (remedy.names, name)
                assert told[name] == after.options.get(name)
        assert (before.model.id != after.model.id) == (MODEL in told)
        assert (before.machine != after.machine) == ("gpus" in told)
        assert (before.weight_format != after.weight_format) == ("weight_format" in told)
        assert (before.load, before.version) == (after.load, after.version)


@pytest.mark.slow
def test_a_sure_remedy_holds_where_each_part_is_at_its_high_end(found: list[Case]) -> None:
    """A band says how far a part may lie off; parts are independent, so that each is tried alone."""
    tried = 0
    for _, _, remedy in found[::3]:
        if not remedy.sure or remedy.request.measured:
            continue
        for kind in ("runtime_outside", "runtime", "weights", "workspace", "activations", "cuda_graphs"):
            segments = [s for d in remedy.plan.devices if (s := d.segment(kind)) is not None]
            high = max((s.estimate.high for s in segments), default=0)
            if not segments or any(s.estimate.high != segments[0].estimate.high for s in segments):
                continue
            worse = planned(remedy.request._replace(measured={kind: high}))
            assert worse is None or worse.fits, (remedy.request.model.id, remedy.changes, kind)
            tried += 1
    assert tried > 100


@pytest.mark.slow
def test_what_serves_more_serves_more_and_what_needs_less_serves_no_less(found: list[Case]) -> None:
    for _, plan, remedy in found:
        if remedy.aim == "more":
            assert served(remedy.plan) > served(plan)
        if remedy.aim == "less":
            assert (remedy.plan.limits.sure_serves_users or 0) >= (plan.limits.sure_serves_users or 0)


@pytest.mark.slow
def test_the_flags_give_the_plan_where_they_stand_behind_the_command(found: list[Case]) -> None:
    tried = 0
    for asked, _, remedy in found:
        request = asked
        custom = any(d.free_bytes is not None for d in request.machine.devices)
        if custom or any(change.option == MODEL or change.value is None for change in remedy.changes):
            continue
        load = request.load
        words = [request.model.id, "--gpu", gpus.machine_words(request.machine)]
        words += ["--engine-version", request.version] if request.version else []
        words += ["--load", f"{load.users}@{load.prompt_tokens}+{load.output_tokens}"] if load else []
        own, _, flags = f" {flags_of(remedy)}".partition(" -- ")
        before = shlex.split(_flags(request))
        _, given = words_from([*words, *shlex.split(own), "--", *before, *shlex.split(flags)])
        again = planned(build(given, sources()).request)
        assert again is not None
        assert again.verdict == remedy.plan.verdict, remedy.changes
        assert again.limits == remedy.plan.limits
        assert again.kv_cache == remedy.plan.kv_cache
        tried += 1
    assert tried > 80


def _flags(request: PlanRequest) -> str:
    from kvplanner.engine.command import format_command

    bare = format_command(engine(request.engine), request._replace(options={}))
    return format_command(engine(request.engine), request).removeprefix(bare).strip()


def test_ranked_remedies_put_sure_and_cheap_ones_first() -> None:
    request = PlanRequest(models.load("meta-llama/Llama-3.1-8B-Instruct"), gpus.machine("RTX 4090"))
    plan = engine("vllm").plan(request)
    ways = remedies(request, plan, others)
    assert aim_of(plan) == "fit"
    assert [way.sure for way in ways] == sorted((way.sure for way in ways), reverse=True)
    assert [way.weight for way in ways if way.sure] == sorted(way.weight for way in ways if way.sure)
    assert {way.names for way in ways[:2]} == {("context",), ("sister",)}  # of one weight: what serves more first


@pytest.mark.slow
def test_changes_in_another_order_are_one_way(found: list[Case]) -> None:
    several = [remedy for _, _, remedy in found if len(remedy.changes) > 1]
    turned = tuple(remedy._replace(changes=remedy.changes[::-1]) for remedy in several)
    assert several
    for remedy, again in zip(several, turned, strict=True):
        assert ranked((remedy, again)) == (remedy,)


@pytest.mark.slow
def test_of_ways_that_differ_by_one_figure_and_come_to_the_same_one_is_listed(found: list[Case]) -> None:
    """Another figure that comes to something else is another way; so is another machine, whatever comes of it."""
    case = next(c for c in found if [c_.option for c_ in c.remedy.changes] == ["max_model_len"] and c.plan.kv_cache)
    change = case.remedy.changes[0]
    other = case.remedy._replace(changes=(change._replace(value=1024),))
    assert ranked((case.remedy, other)) == (case.remedy,)
    assert len(ranked((case.remedy, other._replace(plan=case.plan)))) == 2
    machine = case.remedy._replace(changes=(change._replace(option="gpus", value="2xH100"),))
    assert len(ranked((machine, machine._replace(changes=(change._replace(option="gpus", value="4xH100"),))))) == 2


def test_hardware_costs_most() -> None:
    assert max(WEIGHT, key=lambda loss: WEIGHT[loss]) == "hardware"


def test_idle_gpus_come_before_new_ones() -> None:
    options: dict[str, OptionValue] = {"tensor_parallel_size": 1}
    request = PlanRequest(models.load("meta-llama/Llama-3.3-70B-Instruct"), gpus.machine("4xH100"), options=options)
    ways = remedies(request, engine("vllm").plan(request), others)
    assert ways[0].names == ("tensor_parallel",)
    assert ways[0].request.options["tensor_parallel_size"] == 4
    assert not any("gpus" in way.names for way in ways)


def test_weights_on_the_host_carry_no_load() -> None:
    """Two 24 GB cards and a 70B in 16 bits: 52 GiB a card and token over the bus serves nobody, whatever fits."""
    request = PlanRequest(
        models.load("meta-llama/Llama-3.3-70B-Instruct"), gpus.machine("2xRTX 4090"), load=Load(4, 1500, 500)
    )
    ways = remedies(request, engine("vllm").plan(request), others)
    slow = ["slow" in way.losses for way in ways if way.sure]
    assert slow == [*sorted(slow)]
    assert {slow[0], slow[-1]} == {False, True}


def test_a_load_is_carried_where_anything_can_carry_it() -> None:
    request = PlanRequest(
        models.load("meta-llama/Llama-3.1-8B-Instruct"), gpus.machine("RTX 4090"), load=Load(32, 1500, 500)
    )
    ways = remedies(request, engine("vllm").plan(request), others)
    assert ways[0].plan.limits.sure_serves_users == 32
    shorter = next(way for way in ways if way.names == ("context",))
    assert (shorter.plan.kv_cache.context_length if shorter.plan.kv_cache else 0) >= 2000


def test_no_lever_shortens_the_context_below_the_load() -> None:
    load = Load(2, 60_000, 4000)
    request = PlanRequest(models.load("meta-llama/Llama-3.1-8B-Instruct"), gpus.machine("RTX 4090"), load=load)
    for way in remedies(request, engine("vllm").plan(request), others):
        assert way.plan.limits.serves_users


def test_the_search_stops_between_two_plans() -> None:
    from kvplanner.solve.remedies import found as search

    request = PlanRequest(models.load("google/gemma-3-27b-it"), gpus.machine("H100"))
    first = next(search(request, engine("vllm").plan(request), others))
    assert first.plan.fits


@pytest.mark.slow
def test_over_the_catalogue_a_remedy_of_any_engine_is_the_plan_that_it_promises() -> None:
    """A few of the cases that `python -m tests.solve.wide` runs by the thousand."""
    for request in wide.requests(24, 5):
        assert [*wide.wrong(request)] == [], request.model.id


def test_what_serves_everybody_comes_before_what_serves_more() -> None:
    """Five people at 128,000 tokens on two H100s: 8-bit keys carry three of them, four cards all."""
    request = PlanRequest(
        models.load("meta-llama/Llama-3.3-70B-Instruct"), gpus.machine("2xH100"), load=Load(5, 120_000, 8000),
        weight_format="FP8",
    )  # fmt: skip
    ways = remedies(request, engine("vllm").plan(request), others)
    assert [way.plan.limits.sure_serves_users for way in ways][:2] == [5, 3]


def test_what_serves_more_and_may_not_start_is_made_sure() -> None:
    """A 32B in four bits on two 24 GB cards, eight users at 32k: 8-bit keys alone leave the start in doubt."""
    request = PlanRequest(
        models.load(models.find("Qwen2.5-32B-Instruct-AWQ").id), gpus.machine("2xRTX 3090"), load=Load(8, 30_000, 2000)
    )
    plan = engine("vllm").plan(request)
    doubtful = engine("vllm").plan(request._replace(options={"kv_cache_dtype": "fp8"}))
    assert doubtful.fits
    assert not doubtful.sure
    ways = remedies(request, plan, others)
    options = [{change.option: change.value for change in way.changes} for way in ways]
    assert all(way.sure for way in ways)
    assert {"kv_cache_dtype": "fp8", "gpu_memory_utilization": 0.9} in options
    assert sum("gpus" in way.names for way in ways) <= 2, "a machine that carries all is enough"
