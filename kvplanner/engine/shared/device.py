"""What a plan says of its devices, worked out once: what counts where it fails, what each lacks, which are alike."""

from __future__ import annotations

from collections.abc import Sequence

from kvplanner.engine.plan import DevicePlan, KvCache, Lack, StageMemory
from kvplanner.engine.segment import Segment
from kvplanner.engine.stage import StageRule, StepLabel
from kvplanner.engine.verdict import Verdict
from kvplanner.gpu.spec import Machine


def unplannable(machine: Machine, title: str) -> str:
    """Why a CUDA engine's memory on these devices cannot be told, "" when it can."""
    for device in machine.devices:
        if device.gpu.vendor not in ("nvidia", "custom"):
            return f"{device.gpu.name} is not an NVIDIA GPU, and {title}'s memory rules are known for CUDA devices only"
        if device.gpu.total is None or device.gpu.cuda_total is None:
            return f"the memory of {device.gpu.name} is not known; give its size instead, for example --gpu 64GB"
    return ""


def at_stage(segments: Sequence[Segment], rule: StageRule | None) -> tuple[Segment, ...]:
    """The segments with their states at the failing stage; all in use where none fails."""
    if rule is None:
        return tuple(segments)
    return tuple(
        s if s.kind in rule.in_use else s._replace(state="released" if s.kind in rule.released else "not_reached")
        for s in segments
    )


def described(
    devices: Sequence[DevicePlan],
    *,
    verdict: Verdict,
    rule: StageRule | None,
    tightest: int,
    cache: KvCache | None,
    cache_given: bool,
) -> tuple[DevicePlan, ...]:
    """The devices with what each lacks and the number of those that are alike.

    rule: of the failing stage, None where none fails. tightest: the position of the device that lacks most.
    """
    numbers: dict[object, int] = {}
    alike = {id(device.segments): device.segments for device in devices}  # one for ranks that were planned once
    shown = {at: _shown(segments) for at, segments in alike.items()}
    groups = [numbers.setdefault(_likeness(d, shown[id(d.segments)]), len(numbers)) for d in devices]
    if rule is None and all(d.overflow_bytes == 0 for d in devices):
        return tuple(d._replace(group=group) for d, group in zip(devices, groups, strict=True))
    missing = verdict.failing.missing_bytes if rule is not None and verdict.failing is not None else 0
    worst = devices[tightest]
    in_all = None if cache_given else _in_all(worst, rule, cache, missing)
    lacks: dict[tuple[int, int], Lack | None] = {}
    out: list[DevicePlan] = []
    for device, group in zip(devices, groups, strict=True):
        key = group, device.replica
        if key not in lacks:
            is_worst = group == groups[tightest]
            beside = 0 if is_worst else _beside_the_worst(device, worst, missing)
            lacks[key] = _lack(device, rule, missing, is_worst=is_worst, in_all=in_all, beside=beside)
        out.append(device._replace(lack=lacks[key], group=group))
    return tuple(out)


def _shown(segments: Sequence[Segment]) -> tuple[object, ...]:
    """Everything that is shown of segments."""
    return tuple((s.kind, s.state, *_band(s)) for s in segments)


def _likeness(device: DevicePlan, parts: object) -> tuple[object, ...]:
    """Everything that is shown of a device but its index, role and replica. parts: what is shown of its segments."""
    real = device.device
    budget = device.budget.value if device.budget else None
    return real.kind, real.gpu.id, real.free_bytes, real.marks, device.total_bytes, budget, device.overflow_bytes, parts


def _band(segment: Segment) -> tuple[int, int, int]:
    estimate = segment.estimate
    return estimate.value, estimate.low, estimate.high


def _lack(
    device: DevicePlan, rule: StageRule | None, missing: int, *, is_worst: bool, in_all: int | None, beside: int
) -> Lack | None:
    """What a device lacks. missing: of the device that lacks most; beside: what this one's own replica lacks."""
    used, total = device.used_bytes, device.total_bytes
    over = Lack(total, used, asked=False) if used > total else None
    if rule is None or not missing:
        return over
    end = device.budget_end
    end = total if end is None else end
    if rule.against == "free" and end > total:
        return Lack(total, end, asked=True)
    if rule.against == "card" and (used > total or is_worst):
        by = max(used - total, missing if is_worst else 0)
        return Lack(total, total + by, asked=used <= total, in_all=in_all if is_worst else None)
    if rule.against == "budget" and used > end:
        return Lack(end, used, asked=False, in_all=in_all if is_worst else None)
    if is_worst:
        return Lack(used, used + missing, asked=True)
    if rule.against == "request" and beside > 0:
        return Lack(used, used + beside, asked=True)
    return over


def _beside_the_worst(device: DevicePlan, worst: DevicePlan, missing: int) -> int:
    """What another replica's cache lacks, from what the worst one lacks, within a unit; at most 0 for nothing.

    Ranks of one replica hold equally many units, so beside the worst rank of its own none lacks more.
    """
    if device.replica == worst.replica:
        return 0
    cache, least = device.segment("kv_cache"), worst.segment("kv_cache")
    return missing + (least.bytes if least else 0) - (cache.bytes if cache else 0)


def _in_all(worst: DevicePlan, rule: StageRule | None, cache: KvCache | None, missing: int) -> int | None:
    """Everything in the budget with one full-length request, less the budget."""
    if rule is None or not rule.early or cache is None or worst.budget is None:
        return None
    inside = sum(s.bytes for s in worst.segments if s.in_budget and s.kind != "kv_cache")
    whole = inside + cache.request_bytes - worst.budget.value
    return whole if whole > missing * 1.01 else None


def timeline(
    steps: Sequence[StepLabel], sizes: Sequence[tuple[int, int, str]], rule: StageRule | None, total: int | None = None
) -> tuple[StageMemory, ...]:
    """What every stage of start-up takes, those after a failing one not reached.

    sizes: bytes at each step's end, at its highest, and a note. rule: of the failing stage.

    total: the device's bytes, where a step before that is to say that it may not fit.
    """
    out: list[StageMemory] = []
    failed = False
    for (step, label), (end, peak, note) in zip(steps, sizes, strict=True):
        if failed:
            out.append(StageMemory(step, label, 0, 0, reached=False))
            continue
        failed = rule is not None and rule.step == step
        if total is not None and peak > total and not failed:
            note += ", which may not fit"
        out.append(StageMemory(step, label, end, peak, failed, note))
    return tuple(out)
