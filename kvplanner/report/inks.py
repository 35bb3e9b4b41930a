"""The colours of segments, on light and on dark grounds: safe for the common colour-vision deficiencies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kvplanner.engine.segment import SegmentKind

LIGHT_FILLS: Final[dict[SegmentKind, str]] = {
    "driver_reserved": "#b4bbc3", "other": "#69727c", "runtime_outside": "#8a6a2c", "runtime": "#c3ab7c",
    "weights": "#0072b2", "workspace": "#7cc4ee", "activations": "#e69f00", "cuda_graphs": "#c97fb0",
    "kv_cache": "#00785a", "compute": "#e69f00", "output": "#7cc4ee", "fragmentation": "#4a3f73",
}  # fmt: skip
DARK_FILLS: Final[dict[SegmentKind, str]] = {
    "driver_reserved": "#5b646e", "other": "#9aa4ae", "runtime_outside": "#a8853f", "runtime": "#d9c69b",
    "weights": "#4ba3dd", "workspace": "#b5dcf5", "activations": "#f0b23c", "cuda_graphs": "#9c5aa0",
    "kv_cache": "#2bb58a", "compute": "#f0b23c", "output": "#b5dcf5", "fragmentation": "#8f4a3a",
}  # fmt: skip
