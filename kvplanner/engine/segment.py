"""The parts of a device's memory, by the names of the plan schema (kvplanner.plan/1)."""

from __future__ import annotations

from typing import Final, Literal, get_args

from kvplanner.estimate import Estimate
from kvplanner.record import NamedTuple

SegmentKind = Literal[
    "driver_reserved", "other", "runtime_outside", "runtime", "weights", "workspace", "activations", "compute",
    "output", "cuda_graphs", "kv_cache", "fragmentation", "headroom",
]  # fmt: skip
# Every kind that an engine may use, in the usual drawing order; which ones and in which order is the engine's.
SEGMENT_KINDS: Final[tuple[SegmentKind, ...]] = get_args(SegmentKind)
# What lies on a device before the engine counts: the budget begins where these end.
BEFORE_BUDGET: Final[frozenset[SegmentKind]] = frozenset({"driver_reserved", "other", "runtime_outside"})

# At the stage that a plan is about: the failing one, else serving.
SegmentState = Literal["in_use", "not_reached", "released"]


class Segment(NamedTuple):
    """One part of a device's memory.

    state: whether it counts at the stage where the plan fails; always "in_use" where it does not fail. in_budget:
    charged to the engine's budget. meaning: what it is in this plan, "" where the usual words hold.
    """

    kind: SegmentKind
    estimate: Estimate
    state: SegmentState = "in_use"
    in_budget: bool = False
    meaning: str = ""

    @property
    def bytes(self) -> int:
        """The part's size."""
        return self.estimate.value
