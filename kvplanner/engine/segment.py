"""The parts of a device's memory, by the names of the plan schema (kvplanner.plan/1)."""

from typing import Final, Literal, NamedTuple

from kvplanner.estimate import Estimate

SegmentKind = Literal[
    "driver_reserved", "other", "runtime_outside", "runtime", "weights", "workspace", "activations", "cuda_graphs",
    "kv_cache", "headroom",
]  # fmt: skip
# In drawing order; those of BUDGET_KINDS lie inside the engine's budget.
SEGMENT_KINDS: Final[tuple[SegmentKind, ...]] = (
    "driver_reserved", "other", "runtime_outside", "runtime", "weights", "workspace", "activations", "cuda_graphs",
    "kv_cache", "headroom",
)  # fmt: skip
BUDGET_KINDS: Final[tuple[SegmentKind, ...]] = (
    "runtime", "weights", "workspace", "activations", "cuda_graphs", "kv_cache",
)  # fmt: skip


class Segment(NamedTuple):
    """One part of a device's memory."""

    kind: SegmentKind
    estimate: Estimate

    @property
    def bytes(self) -> int:
        """The part's size."""
        return self.estimate.value
