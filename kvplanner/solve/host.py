"""What a change makes an engine move to the host by itself."""

from __future__ import annotations

from typing import Final

from kvplanner.engine.plan import Plan
from kvplanner.engine.segment import SegmentKind
from kvplanner.units import format_bytes

# So much more of the weights on the host is no longer what another format of the embedding makes of it.
_MOVED: Final = 1 / 16


def moved_to_host(before: Plan, plan: Plan) -> str:
    """What it costs that more of the weights lies on the host, of their bytes and their share; "" where none does.

    Both by what the devices show: a setting may move weights as well as the engine of its own (Plan.moved_bytes).
    """
    there, was = _on_host(plan, "weights"), _on_host(before, "weights")
    whole, wholly = (max(p.bytes_of("weights"), 1) for p in (plan, before))
    if there - was <= whole * _MOVED or there / whole - was / wholly <= _MOVED:
        return ""
    size = format_bytes(_on_host(plan, "weights", "kv_cache"), "GiB")
    return f"weights move to the host: many times slower, and it must hold {size} of weights and cache"


def _on_host(plan: Plan, *kinds: SegmentKind) -> int:
    """Bytes of these kinds on the host."""
    hosts = (device for device in plan.devices if device.device.kind == "host")
    return sum(s.bytes for d in hosts for kind in kinds if (s := d.segment(kind)) is not None)
