"""What the views call things: segments, stages, bases, sizes, devices."""

from __future__ import annotations

import re
from typing import Final, Literal

from kvplanner.engine.plan import KvCache, Plan
from kvplanner.engine.segment import SegmentKind
from kvplanner.report import parts as told
from kvplanner.report.held import cache_is_given, graphs_outside
from kvplanner.report.lacking import where
from kvplanner.sized_text import MINUS, show_size
from kvplanner.units import round_band, round_to_band

Unit = Literal["GiB", "GB"]

# Sizes, their ranges and shares read as in the terminal.
number, low_end, span, percent = told.number, told.low_end, told.span, told.percent

NAMES: Final[dict[SegmentKind, str]] = {
    "driver_reserved": "Driver reserved",
    "other": "Other programs",
    "runtime_outside": "Runtime outside budget",
    "runtime": "Runtime",
    "weights": "Weights",
    "workspace": "Workspace",
    "activations": "Activations",
    "cuda_graphs": "CUDA graphs",
    "kv_cache": "KV cache",
    "headroom": "Headroom",
}
SHORT: Final[dict[SegmentKind, str]] = {
    "driver_reserved": "driver",
    "other": "others",
    "runtime_outside": "outside",
    "runtime": "runtime",
    "weights": "weights",
    "workspace": "workspace",
    "activations": "activations",
    "cuda_graphs": "graphs",
    "kv_cache": "KV cache",
    "headroom": "headroom",
}
MEANING: Final[dict[SegmentKind, str]] = {
    "driver_reserved": "what the driver keeps for itself: NVML counts it, CUDA never sees it",
    "other": "what other programs hold before the engine starts",
    "runtime_outside": "CUDA context, NCCL and the like, made before the engine looks: not charged to its budget",
    "runtime": "libraries and kernels that load after the engine has looked",
    "weights": "this rank's share of the model's tensors",
    "workspace": "buffers that the engine keeps for as long as it runs",
    "activations": "the peak of the profile run: one step of the most tokens it may batch",
    "cuda_graphs": "recorded kernels and their memory pools",
    "kv_cache": "what is left of the budget, cut into blocks",
    "headroom": "what the engine leaves alone",
}
_GIVEN_CACHE: Final = "of the size that was given, cut into blocks"
_AFTER_CACHE: Final = "recorded kernels and their pools: captured after the cache, outside the budget"
STAGES = told.STAGES
_NUMBER: Final = re.compile(r"\d+")


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
    return where(plan, positions)


def identity(plan: Plan, positions: tuple[int, ...]) -> str:
    """What tells a real device from others like it: "UUID …1d3f9a · display · ECC"; "" for one of a catalogue."""
    if len(positions) != 1:
        return ""
    device = plan.devices[positions[0]].device
    tail = f"UUID …{device.uuid[-6:]}" if device.uuid else ""
    return " · ".join(part for part in (tail, *device.marks) if part)


def replicas(plan: Plan, positions: tuple[int, ...]) -> str:
    """How many replicas of the model several devices hold: "4 replicas", "" for one."""
    held = {plan.devices[p].role.split("/")[0] for p in positions if plan.devices[p].role.startswith("dp")}
    return f"{len(held)} replicas" if len(held) > 1 else ""


def role_name(plan: Plan, positions: tuple[int, ...]) -> str:
    """ "tp0" or, for several, "tp0–7"; of several replicas the part that each has: "tp0–1"."""
    roles = [plan.devices[p].role for p in positions]
    if replicas(plan, positions):
        roles = [role.partition("/")[2] for role in roles]
    first, last = min(roles, key=_by_number), max(roles, key=_by_number)
    if first == last:
        return first
    stem = first.rstrip("0123456789")
    return f"{first}–{last.removeprefix(stem)}" if stem and last.startswith(stem) else f"{first}–{last}"


def _by_number(role: str) -> tuple[int, ...]:
    return tuple(int(n) for n in _NUMBER.findall(role))


def segment_line(plan: Plan, positions: tuple[int, ...], kind: SegmentKind, unit: Unit) -> str:
    """A segment in one line: "GPU 0 · Weights 7.48 GiB = 8.03 GB · 31 % · exact"."""
    device = plan.devices[positions[0]]
    segment = device.segment(kind)
    if segment is None:
        return f"{device_name(plan, positions)} · {NAMES[kind]}: none"
    other: Unit = "GB" if unit == "GiB" else "GiB"
    parts = [
        device_name(plan, positions),
        f"{NAMES[kind]} {size(segment.bytes, unit)} = {size(segment.bytes, other)}",
    ]
    reach = span(segment.estimate, unit)
    if reach:
        parts.append(f"range {reach} {unit}")
    parts += [percent(segment.bytes, device.total_bytes), segment.estimate.basis]
    return " · ".join(parts)


def meaning(plan: Plan, position: int, kind: SegmentKind) -> str:
    """What a segment is, by this plan's rules."""
    if kind == "cuda_graphs" and graphs_outside(plan.devices[position]):
        return _AFTER_CACHE
    return _GIVEN_CACHE if kind == "kv_cache" and cache_is_given(plan) else MEANING[kind]


def within(kind: SegmentKind) -> str:
    """A segment's name inside a sentence: "weights", "KV cache"."""
    name = NAMES[kind]
    return name if name[:2].isupper() else name[0].lower() + name[1:]


def segment_name(plan: Plan, positions: tuple[int, ...], kind: SegmentKind, unit: Unit) -> str:
    """A segment's accessible name: "GPU 0, weights, 14.96 GiB"."""
    segment = plan.devices[positions[0]].segment(kind)
    return f"{device_name(plan, positions)}, {within(kind)}, {size(segment.bytes if segment else 0, unit)}"


def rich(text: str) -> str:
    """Text as rich text that shows it unchanged."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")
