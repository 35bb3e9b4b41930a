"""Plans made in one line, for the tests of every engine."""

from __future__ import annotations

from collections.abc import Mapping

from kvplanner.catalog import gpus, models
from kvplanner.engine.option import OptionValue
from kvplanner.engine.plan import Plan
from kvplanner.engine.registry import engine
from kvplanner.engine.request import Load, PlanRequest
from kvplanner.engine.segment import SegmentKind

VLLM = engine("vllm")


LLAMA_8B = "meta-llama/Meta-Llama-3-8B-Instruct"


LLAMA_70B = "meta-llama/Meta-Llama-3-70B-Instruct"


def plan(
    model: str,
    gpu: str,
    options: Mapping[str, OptionValue] | None = None,
    measured: Mapping[str, int] | None = None,
    free: int | None = None,
    load: Load | None = None,
    version: str | None = None,
) -> Plan:
    machine = gpus.machine(gpu)
    if free is not None:
        devices = tuple(d._replace(free_bytes=free, free_source="--free") for d in machine.devices)
        machine = machine._replace(devices=devices)
    request = PlanRequest(
        models.load(model), machine, version=version, options=options or {}, load=load, measured=measured or {}
    )
    return VLLM.plan(request)


def size(plan_: Plan, kind: SegmentKind, device: int = 0) -> int:
    segment = plan_.devices[device].segment(kind)
    assert segment is not None, kind
    return segment.bytes
