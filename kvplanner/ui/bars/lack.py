"""What a device lacks when a plan does not fit, told once for bars, table and pictures."""

from __future__ import annotations

from kvplanner.engine.base import Plan
from kvplanner.ui.bars import words
from kvplanner.ui.bars.fold import budget_start, used_bytes
from kvplanner.ui.bars.words import Unit


def lack_of(plan: Plan, positions: tuple[int, ...]) -> tuple[int, int, bool] | None:
    """From where to where (bytes) a device lacks memory; whether that is only asked for; None where it does not."""
    device = plan.devices[positions[0]]
    used = used_bytes(device)
    if used > device.total_bytes:
        return device.total_bytes, used, False
    if plan.fits is not False or not plan.missing_bytes:
        return None
    end = budget_start(device) + device.budget.value if device.budget else device.total_bytes
    if plan.stage == "free_memory_check" and end > device.total_bytes:
        return device.total_bytes, end, True
    if used > end and plan.stage not in ("graph_capture", "runtime"):
        return end, used, False
    if plan.tightest in positions:
        return used, used + plan.missing_bytes, True
    return None


def lack_text(plan: Plan, positions: tuple[int, ...], lack: tuple[int, int, bool], unit: Unit) -> str:
    """What is missing at the failing stage, and in all where later stages would lack more."""
    drawn = lack[1] - lack[0]
    if plan.tightest not in positions or not plan.missing_bytes:
        return f"{words.size(drawn, unit)} too much"
    short = f"{words.size(plan.missing_bytes, unit)} short"
    if abs(drawn - plan.missing_bytes) <= drawn // 100:
        return short
    return f"{short} at this stage, {words.number(drawn, unit)} in all"
