"""Remedies over the catalogue × GPUs × releases × engines: `python -m tests.solve.wide COUNT [SEED]`.

The suite takes a few of these cases; run some thousands after a change of an engine or of the search. Each case is a
request that a user might make; what is said of its remedies is held against plans made anew.
"""

from __future__ import annotations

import random
import sys
import traceback
from collections import Counter
from collections.abc import Iterator
from typing import Final, NamedTuple

from kvplanner.catalog import gpus, models
from kvplanner.engine.command import role_option
from kvplanner.engine.option import OptionValue, Role
from kvplanner.engine.plan import Plan
from kvplanner.engine.registry import engine, names
from kvplanner.engine.request import Load, PlanRequest
from kvplanner.errors import PlannerError
from kvplanner.gpu.spec import Machine
from kvplanner.solve.change import GPUS, MODEL, WEIGHT_FORMAT, Change
from kvplanner.solve.others import others
from kvplanner.solve.ranking import served
from kvplanner.solve.remedies import Remedy, remedies

# Parts whose bands are tried at their high ends, each alone: they are independent.
PARTS: Final = ("runtime_outside", "runtime", "weights", "workspace", "activations", "cuda_graphs", "compute")
_COUNTS: Final = (1, 1, 1, 2, 2, 4, 8)
_LOADS: Final = (None, None, Load(32, 1500, 500), Load(4, 30_000, 2000), Load(1, 3500, 500))
_SETTINGS: Final[tuple[dict[Role, OptionValue], ...]] = (
    {}, {}, {}, {"context": 8192}, {"context": 32_768}, {"max_requests": 16}, {"max_requests": 512}, {"eager": True},
    {"budget_share": 0.6}, {"budget_share": 0.85, "context": 16_384}, {"budget_share": 0.97}, {"step_tokens": 4096},
    {"tensor_parallel": 2}, {"pipeline_parallel": 2}, {"context": 4096, "max_requests": 64},
)  # fmt: skip


class Found(NamedTuple):
    """What does not hold of one remedy, in words."""

    what: str
    names: tuple[str, ...]
    changes: tuple[Change, ...]


def planned(request: PlanRequest) -> Plan | None:
    """The plan, None where there is none."""
    try:
        return engine(request.engine).plan(request)
    except PlannerError:
        return None


def requests(count: int, seed: int) -> Iterator[PlanRequest]:
    """So many requests that an engine takes, of any model of the catalogue on any GPUs of it."""
    chosen = random.Random(seed)
    made = 0
    while made < count:
        name = names()[made % len(names())]
        version = chosen.choice((None, None, *engine(name).versions))
        settings = chosen.choice(_SETTINGS)
        options = {o.name: v for role, v in settings.items() if (o := role_option(engine(name), version, role))}
        try:
            model = models.load(chosen.choice(models.index()).id)
            machine = _machine(chosen)
        except PlannerError:
            continue
        formats = ("FP8", "AWQ 4-bit") if name in ("vllm", "sglang") else ("GGUF Q4_K_M", "GGUF Q8_0")
        weight_format = chosen.choice(formats) if chosen.random() < 0.25 or name in ("llamacpp", "ollama") else None
        request = PlanRequest(
            model, machine, name, version, options, load=chosen.choice(_LOADS), weight_format=weight_format
        )
        plan = planned(request)
        if plan is not None and plan.fits is not None:
            made += 1
            yield request


def _machine(chosen: random.Random) -> Machine:
    entries = [entry for entry in gpus.index() if (entry.memory_gb or 0) >= 8]
    if chosen.random() < 0.1:
        machine = gpus.machine(
            chosen.choice(("1xRTX 4090,1xRTX 3090", "1xRTX 4080,1xRTX 5090", "1xA100-SXM4-80GB,1xL4"))
        )
    else:
        machine = gpus.machine(f"{chosen.choice(_COUNTS)}x{chosen.choice(entries).id}")
    if chosen.random() < 0.2:
        free = [d._replace(free_bytes=d.gpu.cuda_total.value * 3 // 4) for d in machine.devices if d.gpu.cuda_total]
        machine = machine._replace(devices=tuple(free) or machine.devices)
    return machine


def wrong(request: PlanRequest) -> Iterator[Found]:
    """What does not hold of a request's remedies."""
    plan = planned(request)
    assert plan is not None
    for remedy in remedies(request, plan, others):
        yield from (Found(what, remedy.names, remedy.changes) for what in _wrong(request, plan, remedy))


def _wrong(request: PlanRequest, plan: Plan, remedy: Remedy) -> Iterator[str]:
    again = planned(remedy.request)
    if again != remedy.plan:
        yield "gives another plan"
        return
    assert again is not None
    if not again.fits:
        yield "does not fit"
    if remedy.aim == "more" and served(again) <= served(plan) and _context(again) <= _context(plan):
        yield "serves no more"
    if remedy.aim == "less" and (again.limits.sure_serves_users or 0) < (plan.limits.sure_serves_users or 0):
        yield "serves less"
    if remedy.aim == "faster" and again.moved_bytes:
        yield "leaves weights in RAM"
    yield from (f"changes {name} unsaid" for name in _unsaid(request, remedy))
    if remedy.sure:
        yield from _unsure(again, remedy)


def _context(plan: Plan) -> int:
    return plan.kv_cache.context_length if plan.kv_cache else 0


def _unsaid(before: PlanRequest, remedy: Remedy) -> Iterator[str]:
    after, named = remedy.request, {change.option: change.value for change in remedy.changes}
    for name in sorted({*before.options, *after.options}):
        if before.options.get(name) != after.options.get(name) and named.get(name) != after.options.get(name):
            yield name
    for name, same in (
        (MODEL, before.model == after.model), (GPUS, before.machine == after.machine),
        (WEIGHT_FORMAT, before.weight_format == after.weight_format),
    ):  # fmt: skip
        if same == (name in named):
            yield name
    if (before.load, before.version, before.engine) != (after.load, after.version, after.engine):
        yield "what was asked"


def _unsure(plan: Plan, remedy: Remedy) -> Iterator[str]:
    """What speaks against a plan that is said to be sure: a part that is as large as its band allows."""
    if plan.verdict.certainty != "certain":
        yield f"is sure, and {plan.verdict.certainty}"
    gpus_ = [device for device in plan.devices if device.device.kind == "gpu"]
    for kind in PARTS:
        highs = {s.estimate.high for d in gpus_ if (s := d.segment(kind)) is not None}
        lows = {s.estimate.low for d in gpus_ if (s := d.segment(kind)) is not None}
        if len(highs) != 1 or highs == lows:
            continue
        worse = planned(remedy.request._replace(measured={kind: highs.pop()}))
        if worse is not None and worse.fits is False:
            yield f"fails at {worse.stage} where {kind} is at its high end"


def main() -> None:
    """Tell what is wrong, and how much was tried."""
    count, seed = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1
    tried: Counter[str] = Counter()
    for request in requests(count, seed):
        tried[request.engine] += 1
        asked = (request.engine, request.version, request.model.id, gpus.machine_words(request.machine),
                 [d.free_bytes for d in request.machine.devices][:1], dict(request.options), request.load,
                 request.weight_format)  # fmt: skip
        try:
            for what, names_, changes in wrong(request):
                tried["wrong"] += 1
                print(what, "|", names_, [tuple(change) for change in changes], "|", *asked, flush=True)
        except Exception as error:  # noqa: BLE001  # a fault of any kind is what is looked for
            tried["wrong"] += 1
            print(repr(error), traceback.format_exc().splitlines()[-3].strip(), "|", *asked, flush=True)
    print(*tried.items())


if __name__ == "__main__":
    main()
