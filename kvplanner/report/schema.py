"""A plan as JSON values, schema kvplanner.plan/1: the names that scripts depend on.

Every size is an integer number of bytes, per device unless the name says otherwise, null where it is not known; a
rate, such as bytes per token, has a fraction only where it is none. Fields may be added; renaming one takes a new
schema number.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kvplanner.engine.plan import DevicePlan, KvCache, Plan, StageMemory, Step
from kvplanner.engine.request import Load
from kvplanner.engine.segment import Segment
from kvplanner.engine.verdict import Reason
from kvplanner.estimate import Estimate
from kvplanner.model.model import Model
from kvplanner.report.remedies import flags, flags_of, headroom_bytes
from kvplanner.report.sentences import notes, summary
from kvplanner.solve.change import removed
from kvplanner.solve.remedies import Remedy
from kvplanner.solve.solver import Solved
from kvplanner.units import whole

SCHEMA: Final = "kvplanner.plan/1"

Json = dict[str, object]


def to_json(plan: Plan, remedies: Sequence[Remedy] | None = None, solved: Solved | None = None) -> Json:
    """The plan as dicts, lists, strings, numbers, booleans and None; with what was asked beside it."""
    request = plan.request
    load = request.load
    return {
        "schema": SCHEMA,
        "engine": {"name": request.engine, "version": plan.engine_version, "rules": plan.rules},
        "model": _model(request.model, request.weight_format),
        "options": {
            name: {"value": resolved.value, "origin": resolved.origin, "reason": resolved.reason}
            for name, resolved in plan.options.items()
        },
        "load": None if load is None else _load(load),
        "replicas": plan.replicas,
        "fits": plan.fits,
        "stage": plan.stage,
        "summary": summary(plan),
        "verdict": _verdict(plan),
        "engine_message": (plan.verdict.failing.message if plan.verdict.failing else "") or None,
        "missing_bytes": plan.missing_bytes,
        "warnings": list(notes(plan)),
        "tightest_device": plan.tightest,
        "devices": [_device(d) for d in plan.devices],
        "kv_cache": _kv_cache(plan.kv_cache) if plan.kv_cache else None,
        "step": _step(plan.step) if plan.step else None,
        "limits": {
            "max_context_length": plan.limits.max_context_length,
            "max_concurrent_requests": plan.limits.max_concurrent_requests,
            "serves_users": plan.limits.serves_users,
            "sure_max_context_length": plan.limits.sure_max_context_length,
            "sure_max_concurrent_requests": plan.limits.sure_max_concurrent_requests,
            "sure_serves_users": plan.limits.sure_serves_users,
            "blocks_per_user": plan.limits.units_per_user,
            "bytes_per_user": plan.limits.bytes_per_user,
            "max_requests": plan.limits.max_requests,
            "limited_by": plan.limits.limited_by or None,
        },
        "moved_bytes": plan.moved_bytes,
        "working_ranges": [
            {
                "option": r.option,
                "low": r.low,
                "high": r.high,
                "sure_low": r.sure_low,
                "sure_high": r.sure_high,
                "below": r.below,
                "above": r.above,
            }
            for r in plan.ranges
        ],
        **({} if remedies is None else {"remedies": [remedy_to_json(remedy) for remedy in remedies]}),
        **({} if solved is None else {"solved": solved_to_json(solved)}),
    }


def _load(load: Load) -> Json:
    """What the server should carry; the kinds of its users where there are several."""
    found: Json = {"users": load.users, "prompt_tokens": load.prompt_tokens, "output_tokens": load.output_tokens}
    return found | ({"mix": [part._asdict() for part in load.mix]} if load.mix else {})


def solved_to_json(solved: Solved) -> Json:
    """How far a setting goes."""
    return {
        "asked": solved.asked,
        "value": solved.value,
        "sure_value": solved.sure_value,
        "bound_by": solved.bound_by,
        "changes": [{"option": change.option, "value": change.value} for change in solved.changes],
        "flags": flags(solved.request, solved.changes) if solved.request else None,
        "mix": [{"users": number, **part._asdict()} for number, part in solved.parts] or None,
        "context_length": solved.plan.kv_cache.context_length if solved.plan and solved.plan.kv_cache else None,
        "shorter": solved.shorter._asdict() if solved.shorter is not None else None,
    }


def remedy_to_json(remedy: Remedy) -> Json:
    """What to change, what it costs, and what the plan then is."""
    plan, load = remedy.plan, remedy.request.load
    return {
        "levers": list(remedy.names),
        "aim": remedy.aim,
        "changes": [{"option": change.option, "value": change.value} for change in remedy.changes],
        "flags": flags_of(remedy),
        "without_flags": list(removed(remedy.request, remedy.changes)),
        "fits": plan.fits,
        "sure": remedy.sure,
        "tokens": plan.kv_cache.tokens if plan.kv_cache else None,
        "context_length": plan.kv_cache.context_length if plan.kv_cache else None,
        "max_concurrent_requests": plan.limits.max_concurrent_requests,
        "serves_users": plan.limits.serves_users if load else None,
        "sure_serves_users": plan.limits.sure_serves_users if load else None,
        "headroom_bytes": headroom_bytes(plan),
        "cost": "; ".join(remedy.costs),
        "losses": list(remedy.losses),
        "stage_before": remedy.stage_before,
    }


def _model(model: Model, what_if: str | None) -> Json:
    return {
        "id": model.id,
        "architecture": model.spec.architecture,
        "parameters": model.parameters,
        "stored_bytes": model.stored.value if model.stored else None,
        "weight_format": what_if or model.weight_format,
        "source": {"kind": model.source_kind, "detail": model.source_detail},
    }


def _verdict(plan: Plan) -> Json:
    """The answer as data, so that no script needs to read a sentence."""
    verdict = plan.verdict
    failing, doubt = verdict.failing, verdict.doubt
    return {
        "state": verdict.state,
        "certainty": verdict.certainty,
        "stage": plan.stage,
        "device": failing.device if failing else None,
        "missing_bytes": plan.missing_bytes if failing else None,
        "reason": _reason(verdict.blocked[0] if verdict.blocked else failing.reason if failing else None),
        "doubt": None if doubt is None else {
            "stage": doubt.stage,
            "device": doubt.device,
            "most_missing_bytes": doubt.most_bytes,
            "certainty": doubt.certainty,
        },
        "spilled": _reason(verdict.spilled),
    }  # fmt: skip


def _reason(reason: Reason | None) -> Json | None:
    return None if reason is None else {"code": reason.code, "figures": dict(reason.figures)}


def _device(device: DevicePlan) -> Json:
    real = device.device
    return {
        "index": real.index,
        "kind": real.kind,
        "gpu": real.gpu.name,
        "gpu_id": real.gpu.id,
        "uuid": real.uuid or None,
        "role": device.role,
        "total_bytes": device.total_bytes or None,
        "cuda_total_bytes": device.cuda_total_bytes or None,
        "budget_bytes": device.budget.value if device.budget else None,
        "free_bytes": real.free_bytes,
        "bytes_per_block": device.bytes_per_unit,
        "overflow_bytes": device.overflow_bytes,
        "lack_bytes": device.lack.bytes if device.lack else 0,
        "group": device.group,
        "replica": device.replica,
        "segments": [_segment(s) for s in device.segments],
        "stages": [_stage(s) for s in device.stages],
    }


def _segment(segment: Segment) -> Json:
    sizes = _sized(segment.estimate)
    place = {"in_budget": segment.in_budget, "state": segment.state}
    return {"kind": segment.kind, **sizes, **place, **estimate_to_json(segment.estimate)}


def _sized(estimate: Estimate) -> Json:
    return {"bytes": estimate.value, "low_bytes": estimate.low, "high_bytes": estimate.high}


def estimate_to_json(estimate: Estimate) -> Json:
    """Where an estimate comes from: its basis, formula (names as in inputs), inputs and remarks."""
    return {
        "basis": estimate.basis,
        "formula": estimate.in_words(),
        "inputs": [{"name": i.name, "value": i.value, "unit": i.unit, "source": i.source} for i in estimate.inputs],
        "notes": list(estimate.notes),
    }


def _stage(stage: StageMemory) -> Json:
    return {
        "stage": stage.stage,
        "label": stage.label,
        "end_bytes": stage.end_bytes,
        "peak_bytes": stage.peak_bytes,
        "failing": stage.failing,
        "reached": stage.reached,
        "note": stage.note,
    }


def _step(step: Step) -> Json:
    return {
        "max_tokens": step.tokens,
        "max_sequences": step.sequences,
        "sequence_length": step.length,
        "full_length_sequences": step.holds(step.length),
    }


def _kv_cache(cache: KvCache) -> Json:
    return {
        "available_bytes": cache.available.value,
        "available_low_bytes": cache.available.low,
        "available_high_bytes": cache.available.high,
        "unit": cache.unit,
        "bytes_per_block": cache.bytes_per_unit,
        "block_size": cache.unit_tokens,
        "num_blocks": cache.units,
        "tokens": cache.tokens,
        "tokens_low": cache.tokens_low,
        "tokens_high": cache.tokens_high,
        "max_concurrency": cache.max_concurrency,
        "context_length": cache.context_length,
        "bytes_per_token": whole(cache.bytes_per_token) if cache.bytes_per_token is not None else None,
        "groups": [
            {
                "kind": group.kind,
                "layers": group.layers,
                "padding_layers": group.padding_layers,
                "block_size": group.unit_tokens,
                "page_bytes": group.page_bytes,
                "blocks_per_request": group.units_per_request,
            }
            for group in cache.groups
        ],
        "error": cache.error,
        "estimated_max_model_len": cache.suggested_context_length,
    }
