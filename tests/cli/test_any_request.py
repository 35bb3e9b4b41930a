"""Any request, however odd: a plan that keeps the contract or a refusal in words, quickly and in little memory."""

from __future__ import annotations

import json
from collections.abc import Mapping

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvplanner.catalog import gpus, models
from kvplanner.engine.command import format_command
from kvplanner.engine.option import Option, OptionValue
from kvplanner.engine.registry import engine, names
from kvplanner.engine.request import Load, PlanRequest, mixed
from kvplanner.errors import PlannerError
from kvplanner.report import schema
from kvplanner.report import text as report
from kvplanner.report.sentences import summary
from kvplanner.request.named import parse_mix
from kvplanner.units import GIB
from tests.patience import processor_seconds
from tests.report.contract import check_plan

FAMILIES = {entry.architecture: entry.id for entry in models.index()}
MACHINES = ("H100", "8xH100", "RTX 4090", "2x24GiB", "1xRTX 4090,1xRTX 3090", "16xH200", "GTX 1080 Ti", "2xV100 32GB",
            "A100-PCIE-40GB", "M3 Max", "MI300X")  # fmt: skip
MEASURABLE = ("other", "runtime_outside", "runtime", "weights", "workspace", "activations", "cuda_graphs", "kv_cache")
PATIENCE_S = 2.0


def values(option: Option) -> st.SearchStrategy[OptionValue]:
    """What the option takes, its ends and absurd numbers among them."""
    if option.type == "bool":
        return st.booleans()
    if option.type == "choice":
        return st.sampled_from(option.choices)
    if option.type == "float":
        low, high = option.low or 0.0, option.high or 2.0
        return st.floats(low, high) | st.sampled_from((low, high))
    if option.type == "text":
        return st.sampled_from(("", "x", "1,2,4", "auto", "0-3", "fp8", "999999999999"))
    low, high = int(option.low or 0), int(option.high or 10**12)
    return st.integers(low, high) | st.sampled_from((low, high))


@st.composite
def requests(draw: st.DrawFn) -> PlanRequest:
    """A model of any architecture on any machine under any engine, with some of the version's options set."""
    name = draw(st.sampled_from(names()))
    version = draw(st.none() | st.sampled_from(engine(name).versions))
    known = engine(name).options(version)
    chosen = draw(st.lists(st.sampled_from(known), max_size=4, unique_by=lambda o: o.name))
    options: Mapping[str, OptionValue] = {option.name: draw(values(option)) for option in chosen}
    many = st.integers(1, 10**9)
    plain = st.builds(Load, many, many, st.integers(0, 10**9), st.just(()))
    load = draw(st.none() | plain | st.builds(mixed, many, st.just(parse_mix("9:1k+0,1:400k+9"))))
    measured = draw(st.dictionaries(st.sampled_from(MEASURABLE), st.integers(0, 10**13), max_size=2))
    model = models.load(FAMILIES[draw(st.sampled_from(sorted(FAMILIES)))])
    machine = gpus.machine(draw(st.sampled_from(MACHINES)))
    free = draw(st.none() | st.integers(0, 200 * GIB))
    machine = machine._replace(devices=tuple(device._replace(free_bytes=free) for device in machine.devices))
    return PlanRequest(model, machine, name, version, options, load=load, measured=measured)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(requests())
def test_a_plan_or_a_refusal(request: PlanRequest) -> None:
    try:
        with processor_seconds(PATIENCE_S, request.model.id):
            plan = engine(request.engine).plan(request)
    except PlannerError as error:
        assert error.what
        assert "\n" not in error.what
        return
    check_plan(json.loads(json.dumps(schema.to_json(plan), allow_nan=False)))
    assert report.text(plan).startswith(summary(plan))
    assert report.explain(plan)
    assert format_command(engine(request.engine), request)
