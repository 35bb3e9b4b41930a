"""SGLang's stages of start-up, in the order of managers/scheduler.py init_model_worker (0.5.23).

There is no profile run: pools are sized from free memory, and what does not fit then fails while it is captured or
served.
"""

from __future__ import annotations

from typing import Final

from kvplanner.engine.plan import StageMemory
from kvplanner.engine.segment import SegmentKind
from kvplanner.engine.sglang.startup.checks import Late
from kvplanner.engine.sglang.startup.rank import Rank
from kvplanner.engine.shared import device as shared
from kvplanner.engine.stage import StageRule, StepLabel

_FIRST: Final = frozenset[SegmentKind]({"driver_reserved", "other", "runtime_outside", "headroom"})
_LOADED: Final = _FIRST | frozenset[SegmentKind]({"weights"})
_POOLS: Final = _LOADED | frozenset[SegmentKind]({"kv_cache", "workspace"})
_CAPTURED: Final = _POOLS | frozenset[SegmentKind]({"cuda_graphs"})

# As start-up comes to them.
RULES: Final = (
    StageRule("free_memory_check", "start", "at the memory baseline, before loading", "the memory baseline",
              "free", _FIRST),
    StageRule("weights", "load", "while loading the weights", "loading the weights", "card", _LOADED, early=True),
    StageRule("kv_cache_sizing", "size", "when the pools are sized", "sizing the pools", "budget", _LOADED, early=True),
    StageRule("kv_cache_too_small", "size", "when the pools are sized", "sizing the pools", "request", _LOADED),
    StageRule("kv_cache_allocation", "allocate", "when the request table and the pools are allocated",
              "allocating the request table and the pools", "card", _POOLS),
    StageRule("graph_capture", "graphs", "while capturing CUDA graphs", "capturing CUDA graphs", "card", _CAPTURED),
    StageRule("runtime", "serve", "while serving, in the warm-up or the first long prompt", "serving", "card",
              _CAPTURED | {"activations", "runtime"}),
)  # fmt: skip
ORDER: Final = tuple(rule.stage for rule in RULES)
STEPS: Final = (
    StepLabel("start", "context and communicators"), StepLabel("load", "load weights"),
    StepLabel("size", "size the pools"), StepLabel("allocate", "allocate request table and pools"),
    StepLabel("graphs", "capture CUDA graphs"), StepLabel("serve", "serve"),
)  # fmt: skip


def rule_of(stage: str | None) -> StageRule | None:
    """The rule of the failing stage, None for none."""
    return next((rule for rule in RULES if rule.stage == stage), None)


def timeline(rank: Rank, pools: int, late: Late | None, rule: StageRule | None) -> tuple[StageMemory, ...]:
    """Every stage, those after the failing one not reached; device memory in use, the driver's part included."""
    base = rank.reserved_bytes + rank.other.value + rank.outside.value
    loaded = base + rank.weights.value
    allocated = loaded + pools + (late.exact_bytes if late else 0)
    captured = allocated + rank.workspace.value + rank.graphs.value
    serving = captured + (late.eager.value if late else 0) + rank.late.value
    sizes = (
        (base, base, ""),
        (loaded, loaded, ""),
        (loaded, loaded, "free memory is measured"),
        (allocated, allocated, ""),
        (captured, captured, "out of the slack"),
        (captured, serving, "at a full chunk, out of the slack"),
    )
    return shared.timeline(STEPS, sizes, rule)
