"""vLLM's stages of start-up, in the order of v1/engine/core.py (0.33), with a device's memory at each."""

from __future__ import annotations

from typing import Final

from kvplanner.engine.plan import StageMemory
from kvplanner.engine.segment import SegmentKind
from kvplanner.engine.shared import device as shared
from kvplanner.engine.stage import StageRule, StepLabel
from kvplanner.engine.vllm.startup.rank import Rank

_FIRST: Final = frozenset[SegmentKind]({"driver_reserved", "other", "runtime_outside", "headroom"})
_RESIDENT: Final = _FIRST | frozenset[SegmentKind]({"runtime", "weights", "workspace"})
_PROFILED: Final = _RESIDENT | frozenset[SegmentKind]({"activations", "cuda_graphs"})
_CACHED: Final = _RESIDENT | frozenset[SegmentKind]({"kv_cache"})
_FREED: Final = frozenset[SegmentKind]({"activations"})

# As start-up comes to them.
RULES: Final = (
    StageRule("free_memory_check", "start", "at the free-memory check, before loading", "the free-memory check",
              "free", _FIRST),
    StageRule("weights", "load", "while loading the weights", "loading the weights",
              "card", _FIRST | {"weights"}, early=True),
    StageRule("profile", "profile", "in the profile run", "the profile run",
              "card", _RESIDENT | {"activations"}, early=True),
    StageRule("kv_cache_sizing", "size", "when the KV cache is sized", "sizing the KV cache",
              "budget", _PROFILED, early=True),
    StageRule("kv_cache_too_small", "size", "when the KV cache is sized", "sizing the KV cache",
              "request", _PROFILED | {"kv_cache"}),
    StageRule("kv_cache_allocation", "allocate", "when the KV cache is allocated", "allocating the KV cache",
              "card", _CACHED, _FREED, starting=True),
    StageRule("graph_capture", "graphs", "while capturing CUDA graphs", "capturing CUDA graphs",
              "card", _CACHED | {"cuda_graphs", "fragmentation"}, _FREED, starting=True),
    StageRule("runtime", "serve", "while serving", "serving", "card",
              _CACHED | {"cuda_graphs", "activations", "fragmentation"}),
)  # fmt: skip
ORDER: Final = tuple(rule.stage for rule in RULES)
STEPS: Final = (
    StepLabel("start", "context and communicators"), StepLabel("load", "load weights"),
    StepLabel("profile", "profile run"), StepLabel("size", "size the KV cache"),
    StepLabel("allocate", "allocate the KV cache"), StepLabel("graphs", "capture CUDA graphs"),
    StepLabel("serve", "serve"),
)  # fmt: skip


def rule_of(stage: str | None, *, graphs_in_budget: bool) -> StageRule | None:
    """The rule of the failing stage; graphs captured outside the budget count only once the cache is there."""
    rule = next((rule for rule in RULES if rule.stage == stage), None)
    if rule is None or graphs_in_budget or rule.step != "size":
        return rule
    return rule._replace(in_use=rule.in_use - {"cuda_graphs"})


def timeline(rank: Rank, kv_bytes: int, rule: StageRule | None) -> tuple[StageMemory, ...]:
    """Every stage, those after the failing one not reached; device memory in use, the driver's part included."""
    base = rank.reserved_bytes + rank.other.value + rank.outside.value
    loaded = base + rank.weights.value
    resident = rank.reserved_bytes + rank.resident_bytes
    allocated = resident + kv_bytes
    captured = allocated + rank.graphs.value + rank.after.value + rank.fragmentation.value
    sizes = (
        (base, base, ""),
        (loaded, loaded + rank.staging.value, "staging on top"),
        (resident, resident + rank.activations.value, "its peak sizes the KV cache"),
        (resident, resident, ""),
        (allocated, allocated, ""),
        (captured, captured, "and buffers made after the measurement"),
        (captured, captured + rank.serving.value, "at a full batch"),
    )
    return shared.timeline(STEPS, sizes, rule, rank.total.value)
