"""llama.cpp's stages of start-up: weights, cache, compute buffers; then the first requests."""

from __future__ import annotations

from itertools import accumulate
from typing import Final

from kvplanner.engine.plan import StageMemory
from kvplanner.engine.segment import SegmentKind
from kvplanner.engine.shared import device as shared
from kvplanner.engine.stage import StageRule, StepLabel

_FIRST: Final = frozenset[SegmentKind]({"driver_reserved", "other", "runtime_outside", "headroom"})
_LOADED: Final = _FIRST | frozenset[SegmentKind]({"weights"})
_CACHED: Final = _LOADED | frozenset[SegmentKind]({"kv_cache"})
_RESERVED: Final = _CACHED | frozenset[SegmentKind]({"compute", "output"})

RULES: Final = (
    StageRule("weights", "load", "while loading the weights", "loading the weights", "card", _LOADED),
    StageRule("kv_cache_allocation", "cache", "when the KV cache is allocated", "allocating the KV cache", "card",
              _CACHED),
    StageRule("compute", "reserve", "when the compute buffers are reserved", "reserving the compute buffers", "card",
              _RESERVED),
    StageRule("runtime", "serve", "with the first requests", "serving", "card",
              _RESERVED | frozenset[SegmentKind]({"runtime"})),
)  # fmt: skip
ORDER: Final = tuple(rule.stage for rule in RULES)
STEPS: Final = (
    StepLabel("start", "open the device"), StepLabel("load", "load weights"), StepLabel("cache", "allocate the cache"),
    StepLabel("reserve", "reserve compute buffers"), StepLabel("serve", "serve"),
)  # fmt: skip


def rule_of(stage: str | None) -> StageRule | None:
    """The rule of a failing stage."""
    return next((rule for rule in RULES if rule.stage == stage), None)


def timeline(base: int, added: tuple[int, int, int, int], rule: StageRule | None) -> tuple[StageMemory, ...]:
    """Every stage; base: what is there at the start; added: weights, cache, compute, and what serving adds."""
    sizes = [(held, held, "") for held in accumulate((base, *added))]
    return shared.timeline(STEPS, sizes, rule)
