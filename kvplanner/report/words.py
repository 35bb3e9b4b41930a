"""Sizes, tokens and devices in words, as all views write them."""

from __future__ import annotations

from typing import Literal

from kvplanner.engine.plan import KvCache, Plan
from kvplanner.engine.segment import SegmentKind
from kvplanner.report import devices
from kvplanner.report.segments import heading_of, name_of
from kvplanner.sized_text import MINUS, show_size
from kvplanner.units import round_band, round_to_band

Unit = Literal["GiB", "GB"]

# Sizes, their ranges and shares read as in the terminal.
number, low_end, span, percent = devices.number, devices.low_end, devices.span, devices.percent


def size(value: float, unit: Unit, digits: int | None = None) -> str:
    """Bytes with their unit: "14.96 GiB"; small ones in MiB or MB."""
    return show_size(value, unit, digits)


def tokens(value: int, low: int, high: int) -> str:
    """Tokens with no more digits than their band allows: "≈ 212,000 tokens (204,000–216,000)"."""
    if low == high:
        return f"{value:,} tokens"
    near, least, most = round_band(value, low, high)
    return f"≈ {near:,} tokens ({least:,}–{most:,})"


def change_of_tokens(before: KvCache, now: KvCache) -> str:
    """A change with no more digits than the less sure of both allows: "+38,000 tokens", "" for none."""
    doubts = [(max(c.tokens - c.tokens_low, 0), max(c.tokens_high - c.tokens, 0)) for c in (before, now)]
    below, above = max(doubts, key=lambda pair: min((side for side in pair if side), default=0))
    change = now.tokens - before.tokens
    value = round_to_band(change, change - below, change + above)
    return signed_tokens(value) if value else ""


def signed_tokens(value: int) -> str:
    """A change: "+38,000 tokens"."""
    return f"{'+' if value >= 0 else MINUS}{abs(value):,} tokens"


def device_name(plan: Plan, positions: tuple[int, ...]) -> str:
    """ "GPU 0", "GPU 0–7" or "Host"."""
    return devices.where(plan, positions)


def identity(plan: Plan, positions: tuple[int, ...]) -> str:
    """What tells a real device from others like it: "UUID …1d3f9a · display · ECC"; "" for one of a catalogue."""
    if len(positions) != 1:
        return ""
    device = plan.devices[positions[0]].device
    tail = f"UUID …{device.uuid[-6:]}" if device.uuid else ""
    return " · ".join(part for part in (tail, *device.marks) if part)


def segment_line(plan: Plan, positions: tuple[int, ...], kind: SegmentKind, unit: Unit) -> str:
    """A segment in one line: "GPU 0 · Weights 7.48 GiB = 8.03 GB · 31 % · exact"."""
    device = plan.devices[positions[0]]
    segment = device.segment(kind)
    if segment is None:
        return f"{device_name(plan, positions)} · {heading_of(kind)}: none"
    other: Unit = "GB" if unit == "GiB" else "GiB"
    parts = [
        device_name(plan, positions),
        f"{heading_of(kind)} {size(segment.bytes, unit)} = {size(segment.bytes, other)}",
    ]
    reach = span(segment.estimate, unit)
    if reach:
        parts.append(f"range {reach} {unit}")
    parts += [percent(segment.bytes, device.total_bytes), segment.estimate.basis]
    return " · ".join(parts)


def segment_name(plan: Plan, positions: tuple[int, ...], kind: SegmentKind, unit: Unit) -> str:
    """A segment's accessible name: "GPU 0, weights, 14.96 GiB"."""
    segment = plan.devices[positions[0]].segment(kind)
    return f"{device_name(plan, positions)}, {name_of(kind)}, {size(segment.bytes if segment else 0, unit)}"


def rich(text: str) -> str:
    """Text as rich text that shows it unchanged."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")
