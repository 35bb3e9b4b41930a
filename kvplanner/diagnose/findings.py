"""Where a log contradicts a figure that a plan counts exactly: the engine is right then."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kvplanner.diagnose.diagnosis import Diagnosis
from kvplanner.engine.plan import Plan
from kvplanner.engine.registry import engine
from kvplanner.engine.request import PlanRequest
from kvplanner.errors import PlannerError
from kvplanner.record import NamedTuple
from kvplanner.units import GIB, MIB

# A log prints weights as the change of free memory: allocator blocks, and buffers made while loading.
_WEIGHTS_SLACK: Final = 160 * MIB
_WEIGHTS_SHARE: Final = 0.02
_PRINTED: Final = round(0.005 * GIB)


class Finding(NamedTuple):
    """A figure that the rules count exactly and a run prints otherwise. name: in words; tokens: else bytes."""

    name: str
    measured: int
    planned: int
    tokens: bool = False


def contradictions(found: Diagnosis, plan: Plan) -> tuple[Finding, ...]:
    """The exact figures of a plan that the log of its start prints otherwise, () where the plan is not of its GPU."""
    stated, total = found.size("gpu_total"), plan.devices[plan.tightest].cuda_total_bytes
    told = found.reading.arguments or found.reading.command
    if (
        plan.fits is None
        or found.problems
        or not told
        or (stated is not None and total and abs(stated / total - 1) > _WEIGHTS_SHARE)
    ):
        return ()
    return tuple(_findings(found, plan))


def _findings(found: Diagnosis, plan: Plan) -> Iterator[Finding]:
    """Exact figures of the plan that the log prints otherwise."""
    request, device = plan.request, plan.devices[plan.tightest]
    stated, weights = found.size("weights"), device.segment("weights")
    alone = request.draft is None and not found.devices and "speculative" not in " ".join(request.options)
    if stated is not None and weights is not None and weights.estimate.basis == "exact" and alone:
        slack = max(_WEIGHTS_SLACK, round(_WEIGHTS_SHARE * weights.bytes))
        if abs(stated - weights.bytes) > slack:
            yield Finding("weights", stated, weights.bytes)
    available, tokens = found.size("kv_cache"), found.tokens
    if available is None or tokens is None or available <= 0 or found.devices or found.engine != plan.request.engine:
        return
    planned = [_tokens(request, available + off) for off in (0, -_PRINTED, _PRINTED)]
    if None in planned or found.size("keys") is not None:
        return
    value, low, high = (count or 0 for count in planned)
    unit = plan.kv_cache.unit_tokens if plan.kv_cache is not None else 1
    if not low - unit <= tokens <= high + unit:
        yield Finding("KV cache tokens in the memory that it has", tokens, value, tokens=True)


def _tokens(request: PlanRequest, available: int) -> int | None:
    try:
        made = engine(request.engine).plan(request._replace(measured={"kv_cache": max(available, 1)}))
    except PlannerError:
        return None
    return made.kv_cache.tokens if made.kv_cache is not None else None
