"""What holds for every plan: sums, formulas that give their values, one rounding, the first failing stage."""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Mapping

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from kvplanner.catalog import gpus, models
from kvplanner.engine.option import OptionValue
from kvplanner.engine.plan import DevicePlan, Plan
from kvplanner.engine.registry import engine
from kvplanner.engine.request import Load, PlanRequest, mixed
from kvplanner.engine.segment import SegmentKind
from kvplanner.errors import PlannerError
from kvplanner.estimate import Estimate
from kvplanner.report import text as report
from kvplanner.report.sentences import summary
from kvplanner.request.named import parse_mix
from kvplanner.units import GIB, round_to_band

VLLM = engine("vllm")
MODELS = tuple(entry.id for entry in models.index())
MACHINES = ("16GB", "24GiB", "2x24GiB", "80GB", "4x80GB", "1x24GiB,1x40GiB", "T4", "RTX 4090", "2xRTX 4090", "4xL4",
            "8xRTX 3060 12GB", "A100-PCIE-40GB", "2xH100", "8xH200", "DGX Spark")  # fmt: skip
VERSIONS = (None, None, "0.30", "0.24", "0.21", "0.19", "0.16", "0.11", "0.9.2", "0.8.5", "0.6.6")
PARALLEL = ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size")
MEASURED: tuple[SegmentKind, ...] = (
    "other", "runtime_outside", "runtime", "weights", "workspace", "activations", "cuda_graphs", "kv_cache",
)  # fmt: skip
OPTIONS: dict[str, st.SearchStrategy[OptionValue]] = {
    "max_model_len": st.sampled_from([1024, 8192, 32_768]),
    "gpu_memory_utilization": st.sampled_from([0.3, 0.5, 0.8, 0.9, 0.95, 1.0]),
    "max_num_seqs": st.sampled_from([1, 64, 300, 1024, 4096]),
    "max_num_batched_tokens": st.sampled_from([2048, 16_384]),
    "enforce_eager": st.just(True),
    "kv_cache_dtype": st.just("fp8"),
    "kv_cache_memory_bytes": st.integers(1, 90 * GIB),
    "num_gpu_blocks_override": st.integers(1, 20_000),
}
ARITHMETIC: Mapping[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
}  # fmt: skip
FUNCTIONS: Mapping[str, Callable[..., float]] = {"max": max, "min": min, "ceil": math.ceil}
BEFORE_THE_CACHE = ("free_memory_check", "weights", "profile")
often = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Plans of any model on common machines with common options."""
    machine = gpus.machine(draw(st.sampled_from(MACHINES)))
    options: dict[str, OptionValue] = draw(st.fixed_dictionaries({}, optional=OPTIONS))
    if len(machine.devices) > 1:
        options[draw(st.sampled_from(PARALLEL))] = len(machine.devices)
    if draw(st.integers(0, 3)) == 0:
        least = min(d.gpu.cuda_total.value for d in machine.devices if d.gpu.cuda_total)
        free = draw(st.integers(0, least))
        machine = machine._replace(devices=tuple(d._replace(free_bytes=free) for d in machine.devices))
    measured: dict[SegmentKind, int] = draw(
        st.just({}) | st.dictionaries(st.sampled_from(MEASURED), st.integers(0, 40 * GIB), max_size=1)
    )
    plain = st.builds(Load, st.integers(1, 500), st.integers(1, 5000), st.integers(0, 1000), st.just(()))
    load = draw(st.none() | plain | st.builds(mixed, st.integers(1, 500), st.just(parse_mix("9:1k+0,1:4k+9"))))
    request = PlanRequest(
        models.load(draw(st.sampled_from(MODELS))), machine, version=draw(st.sampled_from(VERSIONS)), options=options,
        load=load, measured={str(kind): size for kind, size in measured.items()},
    )  # fmt: skip
    return plan_of(request)


def plan_of(request: PlanRequest) -> Plan:
    try:
        return VLLM.plan(request)
    except PlannerError:
        assume(False)
        raise


def value_of(estimate: Estimate) -> float | None:
    """What an estimate's formula gives with its inputs, None where it has words in place of numbers."""
    formula, values = estimate.formula, dict[str, float]()
    for number, item in enumerate(estimate.inputs):
        if f"{{{item.name}}}" in formula:
            if isinstance(item.value, str):
                return None
            formula, values[f"v{number}"] = formula.replace(f"{{{item.name}}}", f"v{number}"), item.value
    assert "{" not in formula, estimate.formula
    if not values or "everything above" in formula:
        return None
    return calculated(ast.parse(formula.translate(str.maketrans("−×÷", "-*/")), mode="eval").body, values)


def calculated(node: ast.expr, values: Mapping[str, float]) -> float:
    match node:
        case ast.Constant(value=int() | float() as number):
            return number
        case ast.Name(id=name):
            return values[name]
        case ast.BinOp(left=left, op=op, right=right):
            return ARITHMETIC[type(op)](calculated(left, values), calculated(right, values))
        case ast.Call(func=ast.Name(id=name), args=arguments):
            return FUNCTIONS[name](*(calculated(argument, values) for argument in arguments))
    raise AssertionError(ast.dump(node))


@often
@given(plans())
def test_every_formula_gives_its_value(plan: Plan) -> None:
    estimates = [s.estimate for d in plan.devices for s in d.segments]
    estimates += [d.budget for d in plan.devices if d.budget]
    estimates += [plan.kv_cache.available] if plan.kv_cache else []
    for estimate in dict.fromkeys(estimates):
        found = value_of(estimate)
        assert found is None or abs(found - estimate.value) <= max(16, 1e-6 * estimate.value), estimate


@often
@given(plans())
def test_tokens_are_rounded_once(plan: Plan) -> None:
    """The headline, the table and the figures, all by the same band."""
    cache = plan.kv_cache
    assume(cache is not None and cache.tokens)
    assert cache is not None
    near = f"{round_to_band(cache.tokens, cache.tokens_low, cache.tokens_high):,}"
    for text in (summary(plan), report.text(plan)):
        told = re.search(r"^Tokens +(?:≈ )?([\d,]+) tokens|KV cache for (?:≈ )?([\d,]+) tokens", text, re.MULTILINE)
        assert told is None or near in told.groups()
    assert cache.tokens_low <= cache.tokens <= cache.tokens_high


@often
@given(plans())
def test_the_cache_is_whole_blocks_of_what_is_available(plan: Plan) -> None:
    cache = plan.kv_cache
    assume(cache is not None and cache.error is None and cache.bytes_per_unit)
    assert cache is not None
    assert 0 <= cache.available.value - cache.units * cache.bytes_per_unit < cache.bytes_per_unit
    for device in plan.devices:
        segment = device.segment("kv_cache")
        assert segment is None or segment.bytes == cache.units * device.bytes_per_unit or plan.replicas > 1


def lacks(device: DevicePlan) -> dict[str, int]:
    """What a device lacks at each stage before the cache, from its segments alone."""
    held = {segment.kind: segment.bytes for segment in device.segments}
    free = device.cuda_total_bytes - held["other"] - held["runtime_outside"]
    assert device.budget is not None
    inside = held["runtime"] + held["weights"] + held["workspace"] + held["activations"]
    lacking = (device.budget.value - free, held["weights"] - free, inside - free)
    return dict(zip(BEFORE_THE_CACHE, lacking, strict=True))


@often
@given(plans())
def test_the_failing_stage_is_the_first_that_fails(plan: Plan) -> None:
    """But for what loading holds beside the weights, which no segment shows."""
    assume(plan.fits is not None and all(device.budget for device in plan.devices))
    failing = [
        stage for stage in BEFORE_THE_CACHE
        if any(lacks(device)[stage] > 0 for device in plan.devices)
        and (stage != "free_memory_check" or not plan.rules.startswith(("0.0", "0.6", "0.8")))
    ]  # fmt: skip
    if failing:
        assert plan.stage == failing[0] or (plan.stage, failing[0]) == ("weights", "profile")
    else:
        assert plan.stage not in ("free_memory_check", "profile")
    assert (plan.missing_bytes > 0) == (plan.fits is False)
    marked = [step.stage for step in plan.devices[plan.tightest].stages if step.failing]
    assert len(marked) == (plan.fits is False)


@often
@given(plans())
def test_more_of_the_memory_never_holds_fewer_tokens(plan: Plan) -> None:
    """As long as both plans fit: beyond, what lies outside the budget runs short."""
    fewest = 0
    for utilization in (0.3, 0.5, 0.7, 0.8, 0.85, 0.9, 0.95):
        options = {**plan.request.options, "gpu_memory_utilization": utilization}
        other = plan_of(plan.request._replace(options=options))
        if other.fits and other.kv_cache:
            assert other.kv_cache.tokens >= fewest
            fewest = other.kv_cache.tokens
