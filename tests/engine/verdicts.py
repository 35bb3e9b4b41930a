"""Verdicts for hand-made plans."""

from __future__ import annotations

from kvplanner.engine.plan import DevicePlan, Plan
from kvplanner.engine.shared.device import at_stage, described
from kvplanner.engine.verdict import Bytes, Reason, Shortfall, Verdict
from kvplanner.engine.vllm.startup.stages import rule_of

FITS = Verdict("fits")


def short(stage: str, missing_bytes: int, device: int = 0, text: str = "it lacks {missing}") -> Shortfall:
    """A stage that lacks memory for sure."""
    reason = Reason(stage, text, {"missing": Bytes(missing_bytes)})
    return Shortfall(stage, device, missing_bytes, missing_bytes, missing_bytes, reason)


def fails(stage: str, missing_bytes: int, device: int = 0, text: str = "it lacks {missing}") -> Verdict:
    """A plan that fails at a stage."""
    return Verdict("does_not_fit", failing=short(stage, missing_bytes, device, text))


def may_fail(stage: str, most_bytes: int, device: int = 0, text: str = "it may lack {missing}") -> Verdict:
    """A plan that fits, and may not at the end of its bands."""
    doubt = short(stage, most_bytes, device, text)._replace(missing_bytes=-most_bytes, least_bytes=-2 * most_bytes)
    return Verdict("fits", doubt.certainty, doubt=doubt)


def cannot_tell(why: str) -> Verdict:
    """A plan of which nothing can be told."""
    return Verdict("cannot_tell", blocked=(Reason("why", "{why}", {"why": why}),))


def again(plan: Plan, *, devices: tuple[DevicePlan, ...] | None = None, verdict: Verdict | None = None) -> Plan:
    """The plan with other devices or another verdict, and what follows from them worked out anew."""
    verdict, devices = verdict or plan.verdict, devices or plan.devices
    charged = all(s.in_budget for d in devices for s in d.segments if s.kind == "cuda_graphs")
    rule = rule_of(verdict.failing.stage if verdict.failing else None, graphs_in_budget=charged)
    stated = tuple(
        d._replace(segments=at_stage([s._replace(state="in_use") for s in d.segments], rule)) for d in devices
    )
    found = described(
        stated, verdict=verdict, rule=rule, tightest=plan.tightest, cache=plan.kv_cache, cache_given=plan.cache_given
    )
    return plan._replace(devices=found, verdict=verdict)
